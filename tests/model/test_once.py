"""Values computed once, also if several threads ask for them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from advisor.model.once import cached_property


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


def test_threads_that_ask_at_the_same_time_share_one_value() -> None:
    slow = Slow()
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: slow.whole, range(4))) == {1}
