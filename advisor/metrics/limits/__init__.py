"""Numbers that decide what a pause, a step, a slow call, a layer or lost work is, gathered by subject.

Open ``steps`` first, to see how a limit is described: what it is a limit of, its unit, where it comes from,
what goes wrong if it moves. It is Measured (which says the number, or names a section of
``knowledge/calibration.md`` with its captures), Documented by those named, Computed from other numbers, or
Judged: a convention of this program. Units are in the names: ``_NS``, ``_BYTES``,
``_RATIO`` (a share, 0 to 1), ``_FACTOR`` (how many times as much); others are counts. Thresholds of rules
are theirs; sizes of caches and tables, and encodings of other tools, stand where they are used.
"""

from __future__ import annotations

from advisor.metrics.limits import host, kernels, recording, steps, window

__all__ = ["host", "kernels", "recording", "steps", "window"]
