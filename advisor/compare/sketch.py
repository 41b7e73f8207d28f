"""What pages draw of both sides: step times, and a typical step of each."""

from __future__ import annotations

from advisor.compare.operations import in_equal_steps
from advisor.compare.sides import Side, paired
from advisor.model.excerpt import Sketch


def sketch(before: Side, after: Side) -> Sketch | None:
    """None without a phase that both sides have."""
    before, after, _ = in_equal_steps(before, after)
    for label, b, a in paired(before, after):
        if b is not None and a is not None:
            steps = [s.diagnoses[0].excerpts[:1] for s in (before, after)]
            both = [e for one in steps for e in one if e.place is None]
            drawn = both[0].beside(both[1], (before.name, after.name)) if len(both) == len(steps) else None
            return Sketch(label, tuple(before.times(b).tolist()), tuple(after.times(a).tolist()), drawn)
    return None
