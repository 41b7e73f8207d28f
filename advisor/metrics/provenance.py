"""What the program called the GPU work of a capture: from the capture itself, or from another recording
of the same program that names it (`advisor REPORT TRACE --together`)."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from advisor.errors import InputError
from advisor.metrics.align import Match, align, match_calls
from advisor.metrics.origins import Origins, find_origins, is_operator_text
from advisor.model.arrays import Array, distinct
from advisor.sources.schema import MISSING, OPERATIONS

if TYPE_CHECKING:
    from advisor.metrics.analysis import Analysis

#: Recordings that have less in common are not of one program: those of one program share 97 % and more, of
#: others up to 75 % of the time and 70 % of the operations.
LEAST_MATCH = 0.75
#: With fewer kernels of one launch shape they are of other sizes (one program: 86 % and more).
LEAST_SAME = 0.25
_AGAIN = "record the same model, batch and phase with both profilers"


class Provenance:
    """Origins of the GPU work and of the calls of one analysis; None where nothing names any."""

    def __init__(self, a: Analysis) -> None:
        self._a = a

    @cached_property
    def match(self) -> Match | None:
        """How the operations of the other recording correspond; None without one that has GPU work."""
        other = self._a.other
        return align(self._a, other) if other is not None and len(other.ops) else None

    @cached_property
    def quality(self) -> float | None:
        """Share of the GPU time and of the operations that the recordings have in common; where the other
        has no GPU work (of two profilers at once one gets none), of the calls that it shows code around."""
        if self._a.other is None:
            return None
        if self.match is not None:
            return self.match.quality
        api = self._a.ops.api[self._a.ops.api >= 0]
        found = self.calls(distinct(api)) if len(api) else None
        return 0.0 if found is None else float(found.known.mean())

    def check(self) -> None:
        """Raise InputError where the two recordings are not of one program."""
        a, quality = self._a, self.quality
        if quality is not None and quality < LEAST_MATCH and a.other is not None:
            raise InputError(
                f"--together: {a.other.trace.capture.path} matches {quality:.0%} of {a.trace.capture.path}, "
                f"less than {LEAST_MATCH:.0%}; {_AGAIN}"
            )
        same = self.match.same_ratio if self.match is not None else None
        if same is not None and same < LEAST_SAME and a.other is not None:
            raise InputError(
                f"--together: {same:.0%} of the kernels of {a.other.trace.capture.path} have the launch "
                f"shape of {a.trace.capture.path}, less than {LEAST_SAME:.0%}; {_AGAIN}"
            )

    @property
    def in_words(self) -> str | None:
        """What the other recording is and how well it matches, in words."""
        other, match = self._a.other, self.match
        if other is None:
            return None
        if match is None:
            return (
                f"{other.trace.capture.path} (by clock; it shows code around {self.quality:.1%} of the calls)"
            )
        same = (
            "" if match.same_ratio is None else f"; {match.same_ratio:.1%} of the kernels in one launch shape"
        )
        return (
            f"{other.trace.capture.path} (by {match.by}; {match.time_ratio:.1%} of the GPU time and "
            f"{match.other_ratio:.1%} of its operations match{same})"
        )

    @cached_property
    def ops(self) -> Origins | None:
        """Origin of each operation of `ops`, by the call that launched it."""
        a, match = self._a, self.match
        if match is not None and a.other is not None:
            theirs = a.other.provenance.ops
            if theirs is None:
                return None
            found = theirs.take(match.other)
            return replace(found, operands=np.where(match.same, found.operands, MISSING))
        api = a.ops.api
        rows, at = np.unique(api[api >= 0], return_inverse=True)
        called = self.calls(rows)
        if called is None:
            return None
        place = np.full(len(api), MISSING, np.int64)
        place[api >= 0] = at
        return called.take(place)

    def calls(self, rows: Array) -> Origins | None:
        """Origin of each of these rows of api_calls."""
        a, other = self._a, self._a.other
        if other is not None and self.match is not None:
            at = match_calls(a, other, self.match.other, rows)
            theirs = other.provenance.calls(np.maximum(at, 0)) if other.trace.has("api_calls") else None
            return None if theirs is None else theirs.take(np.where(at < 0, MISSING, np.arange(len(at))))
        columns = a.trace.columns("api_calls", ("thread", "start"))
        thread, time = columns["thread"][rows], columns["start"][rows]
        if other is None:
            return find_origins(a.trace, a.ranges, thread, time) if _names_any(a) else None
        begun = a.trace.capture.start_utc_ns, other.trace.capture.start_utc_ns
        if begun[0] is None or begun[1] is None or not _names_any(other):
            return None
        threads = other.trace.columns("ranges", ("thread", "domain"))
        named = distinct(threads["thread"][threads["domain"] == OPERATIONS])
        if len(named) == 1 and not np.isin(named, thread).any():  # a container counts threads anew
            thread = np.full(len(thread), named[0])
        return find_origins(other.trace, other.ranges, thread, time + begun[0] - begun[1])


def _names_any(a: Analysis) -> bool:
    if a.trace.has("modules") or a.trace.has("python_calls") or a.ranges.by_profiler.any():
        return True
    return any(map(is_operator_text, a.ranges.texts))
