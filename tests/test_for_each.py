"""A test over many entries names each that fails, and fails for these alone."""

from __future__ import annotations

import pytest

from tests.for_each import for_each


def test_entries_that_fail_are_named() -> None:
    @for_each([1, 2, 3, 4], lambda n: f"number {n}")
    def odd(number: int) -> None:
        assert number % 2, "even"

    with pytest.raises(AssertionError, match=r"(?s)number 2: even.*number 4: even") as fault:
        odd()
    assert "number 1" not in str(fault.value)


def test_entries_that_hold_pass() -> None:
    for_each([1, 3])(print)()
