"""Values computed once, also if several threads ask for them; tasks on threads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from advisor.model.once import at_once, cached_property, kept


class Slow:
    def __init__(self) -> None:
        self.computed = 0

    def _value(self) -> int:
        count = self.computed
        time.sleep(0.01)  # another thread asks meanwhile
        self.computed = count + 1
        return self.computed

    @cached_property
    def whole(self) -> int:
        return self._value()

    def of(self, number: int) -> int:
        return number + kept(self, "part", number, self._value)


def test_threads_that_ask_at_the_same_time_share_one_value() -> None:
    slow = Slow()
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: slow.whole, range(4))) == {1}
        assert set(pool.map(lambda _: slow.of(10), range(4))) == {12}
    assert [slow.of(20), slow.of(10)] == [23, 12]


@pytest.fixture(params=[False, True])
def threads(request: pytest.FixtureRequest) -> Iterator[ThreadPoolExecutor | None]:
    if not request.param:
        yield None
        return
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_all_tasks_are_done(threads: ThreadPoolExecutor | None) -> None:
    done: list[int] = []
    at_once(threads, *(lambda i=i: done.append(i) for i in range(9)))
    assert sorted(done) == list(range(9))


def test_of_several_errors_the_one_of_the_first_task_is_raised(threads: ThreadPoolExecutor | None) -> None:
    def fail(text: str, after: float) -> None:
        time.sleep(after)
        raise ValueError(text)

    with pytest.raises(ValueError, match="first"):
        at_once(threads, lambda: fail("first", 0.02), lambda: fail("second", 0))
