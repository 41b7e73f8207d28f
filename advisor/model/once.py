"""Values computed once and kept with their object, also if several threads ask for them at a time; and tasks
on threads.

The locks belong to a property or method, not to an object: a thread that holds one waits only for what the
value is made of, and no value is made of itself.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

T = TypeVar("T")


if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):
        """`functools.cached_property`, which from Python 3.12 on lets each thread compute the value."""

        def __init__(self, func):
            super().__init__(func)
            self._lock = RLock()

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            with self._lock:
                return super().__get__(instance, owner)


_locks: defaultdict[str, Any] = defaultdict(RLock)


def kept(owner: object, name: str, number: int, make: Callable[[], T]) -> T:
    """What `make` returned when it was first called for this name and number of the object."""
    known: dict[int, T] = owner.__dict__.setdefault(f"_kept_{name}", {})
    if number not in known:
        with _locks[name]:
            if number not in known:
                known[number] = make()
    return known[number]


def begin(threads: Executor | None, *tasks: Callable[[], object]) -> list[Future[object]]:
    """Begin the tasks on threads. Without threads nothing happens: they are for values that are kept."""
    return [threads.submit(task) for task in tasks] if threads else []


def at_once(threads: Executor | None, *tasks: Callable[[], object]) -> None:
    """Run the tasks at the same time on threads, without threads one after the other. Raises what the first
    of them raises."""
    if threads is None:
        for task in tasks:
            task()
        return
    begun = begin(threads, *tasks)
    try:
        for one in begun:
            one.result()
    finally:
        for one in begun:
            one.cancel()
