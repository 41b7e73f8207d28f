"""One test over many entries of the rules or the knowledge, which names each that fails and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
#: What takes one entry, and the test that pytest calls.
Check, Test = Callable[[T], None], Callable[[], None]


def for_each(entries: Iterable[T], name: Callable[[T], str] = str) -> Callable[[Check[T]], Test]:
    """A decorator: the test is called with every entry; what fails is listed by its name."""

    def decorate(check: Check[T]) -> Test:
        def test() -> None:
            failed = []
            for entry in entries:
                try:
                    check(entry)
                except AssertionError as fault:
                    failed.append(f"{name(entry)}: {fault}")
            assert not failed, "\n".join(failed)

        test.__doc__ = check.__doc__
        return test

    return decorate
