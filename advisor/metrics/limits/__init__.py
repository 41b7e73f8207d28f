"""Numbers that decide what a pause, a step, a slow call, a layer or lost work is, gathered by subject.

Open ``steps`` first, to see how a limit is described: what it is a limit of, its unit, where it comes from,
what goes wrong if it moves. Origins are a section of ``knowledge/calibration.md``, a measurement, or a
choice (a convention of this program) where neither is there. Units are in the names: ``_NS``, ``_BYTES``,
``_RATIO`` (a share, 0 to 1), ``_FACTOR`` (how many times as much); others are counts. Thresholds of rules
are theirs; sizes of caches and tables, and encodings of other tools, stand where they are used.
"""

from __future__ import annotations

from advisor.metrics.limits import host, kernels, recording, steps, window

__all__ = ["host", "kernels", "recording", "steps", "window"]
