"""Values computed once and kept with their object, also if several threads ask for them at a time.

The locks belong to a property, not to an object: a thread that holds one waits only for what the value is
made of, and no value is made of itself.
"""

from __future__ import annotations

import functools
from threading import RLock
from typing import TYPE_CHECKING

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
