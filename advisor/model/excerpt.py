"""Stretches of a capture with their events: what a page draws exactly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple


class Event(NamedTuple):
    """Times in ns, `start` from that of the excerpt; an event may begin before or end after it.
    `track`, `name` and `note` are positions in the texts of the excerpt, `call` that of the event
    that issued it, -1 where none is shown."""

    track: int
    start: int
    length: int
    name: int
    note: int
    call: int = -1


@dataclass(frozen=True)
class Excerpt:
    """Events between two times of the capture (ns): the longest of the `total` that lie there. `place` is
    the place of a finding that is shown, None for a step."""

    title: str
    start_ns: int
    end_ns: int
    tracks: tuple[str, ...]
    texts: tuple[str, ...]
    events: tuple[Event, ...]
    total: int
    place: tuple[int, int] | None = None

    def beside(self, other: Excerpt, names: tuple[str, str]) -> Excerpt:
        """Both from a common 0 on, one above the other."""
        tracks, texts, calls = len(self.tracks), len(self.texts), len(self.events)
        moved = (
            e._replace(
                track=e.track + tracks,
                name=e.name + texts,
                note=e.note + texts,
                call=e.call + calls if e.call >= 0 else -1,
            )
            for e in other.events
        )
        both = zip(names, (self, other), strict=True)
        return replace(
            self,
            start_ns=0,
            end_ns=max(self.end_ns - self.start_ns, other.end_ns - other.start_ns),
            tracks=tuple(f"{name}: {track}" for name, one in both for track in one.tracks),
            texts=self.texts + other.texts,
            events=self.events + tuple(moved),
            total=self.total + other.total,
        )


@dataclass(frozen=True)
class Sketch:
    """What a page draws of a comparison: step times (ms) of the phase that takes most time, and a
    typical step of each side above the other, where the events are at hand."""

    phase: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    steps: Excerpt | None = None
