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


def at_once(threads: bool, *tasks: Callable[[], object]) -> None:
    """Run the tasks, on two threads or one after the other. Raises what the first of them raises."""
    if not threads:
        for task in tasks:
            task()
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        begun = [pool.submit(task) for task in tasks]
        try:
            for one in begun:
                one.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
