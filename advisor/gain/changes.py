"""What each what-if changes in the inputs of a replay: the modules of fixes register theirs by name."""

from __future__ import annotations

from collections.abc import Callable

from advisor.gain.inputs import Inputs
from advisor.gain.profiler import Scenario
from advisor.gain.replay_ops import Work
from advisor.gain.whatifs import Fix

#: The inputs with a fix carried out. The last argument is 0 for the most likely amount, -1 and 1 for what
#: makes the fix win least and most. Raises NoEstimate where the capture does not record it.
Change = Callable[[Fix, Inputs, Work, Scenario, int], Inputs]

CHANGES: dict[str, Change] = {}


def what_if(*others: str) -> Callable[[Change], Change]:
    """Register a function for the what-if of its name in `knowledge/whatifs.yaml`, and for `others` that
    change the same."""

    def registered(change: Change) -> Change:
        for name in (change.__name__, *others):
            CHANGES[name] = change
        return change

    return registered
