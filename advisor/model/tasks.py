"""Tasks that run at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")


def run_tasks(threads: Executor | None, tasks: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    """What each task returns, by name and in the order given: run on threads, without threads one after the
    other. Raises what the first of them raises."""
    if threads is None:
        return {name: task() for name, task in tasks.items()}
    begun = {name: threads.submit(task) for name, task in tasks.items()}
    try:
        return {name: one.result() for name, one in begun.items()}
    finally:
        for one in begun.values():
            one.cancel()
