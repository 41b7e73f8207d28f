"""Tasks that run at the same time: their results by name, and errors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from advisor.model.tasks import run_tasks


@pytest.fixture(params=[False, True])
def threads(request: pytest.FixtureRequest) -> Iterator[ThreadPoolExecutor | None]:
    if not request.param:
        yield None
        return
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_results_come_by_name_in_the_order_given(threads: ThreadPoolExecutor | None) -> None:
    def slower_first(i: int) -> int:
        time.sleep(0.01 * (i == 0))
        return i * i

    found = run_tasks(threads, {str(i): lambda i=i: slower_first(i) for i in range(9)})
    assert list(found.items()) == [(str(i), i * i) for i in range(9)]


def test_of_several_errors_the_one_of_the_first_task_is_raised(threads: ThreadPoolExecutor | None) -> None:
    def fail(text: str, after: float) -> None:
        time.sleep(after)
        raise ValueError(text)

    with pytest.raises(ValueError, match="first"):
        run_tasks(threads, {"a": lambda: fail("first", 0.02), "b": lambda: fail("second", 0)})


def test_after_an_error_no_other_task_begins() -> None:
    begun: list[int] = []

    def fail() -> None:
        while len(pool.futures) < 10:  # until all are waiting
            time.sleep(0.001)
        raise ValueError("wrong")

    def work(i: int) -> None:
        begun.append(i)
        until = time.monotonic() + 60
        while not pool.futures[-1].cancelled() and time.monotonic() < until:
            time.sleep(0.001)

    with Noted(1) as pool, pytest.raises(ValueError, match="wrong"):
        run_tasks(pool, {"a": fail, **{str(i): lambda i=i: work(i) for i in range(9)}})
    assert len(begun) <= 1


class Noted(ThreadPoolExecutor):
    """Threads that keep what they were given."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.futures: list[Future[Any]] = []

    def submit(self, *task: Any, **more: Any) -> Future[Any]:
        self.futures.append(super().submit(*task, **more))
        return self.futures[-1]
