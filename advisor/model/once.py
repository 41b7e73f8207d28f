"""Values computed once and kept with their object, also if several threads ask for them at a time.

The locks belong to a property or method, not to an object: a thread that holds one waits only for what the
value is made of, and no value is made of itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):
        """`functools.cached_property`, which from Python 3.12 on lets each thread compute the value."""

        def __init__(self, func):
            super().__init__(func)
            self._computing = RLock()

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            with self._computing:
                return super().__get__(instance, owner)


def once_each(method: F) -> F:
    """A method of one argument that computes its result once for each value of it."""
    name, computing = _name(method.__name__), RLock()

    @functools.wraps(method)
    def kept(self: Any, of: Any) -> Any:
        known = self.__dict__.setdefault(name, {})
        if of not in known:
            with computing:
                if of not in known:
                    known[of] = method(self, of)
        return known[of]

    return kept  # type: ignore[return-value]


def forget(owner: object, method: str) -> None:
    """Drop what a method has kept that computes `once_each`, as in a copy that differs in what it uses."""
    owner.__dict__.pop(_name(method), None)


def _name(method: str) -> str:
    return f"_{method}_of_each"
