"""What the page draws of excerpts: their events, with texts that are written once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from advisor.model.findings import Diagnosis
from advisor.model.work import Excerpt
from advisor.reports.layout import clean, cut_middle

#: Names are not longer; the middle of longer ones is left out.
NAME = 240


class Drawn(NamedTuple):
    """`titles` are those of the excerpts, in order; `data` holds them for the script."""

    titles: list[str]
    data: dict[str, object]


def drawn(diagnosis: Diagnosis) -> Drawn:
    """The excerpts of a diagnosis, places named by their finding."""
    found = {
        (r.start_ns, r.end_ns): f"{f.rank}. {f.code}, place {number}"
        for f in reversed(diagnosis.findings)
        for number, r in enumerate(f.time_ranges, 1)
    }
    named = [(e, found.get(e.place) if e.place else "") for e in diagnosis.excerpts]
    return together([(e, ": ".join(filter(None, (name, e.title)))) for e, name in named if name is not None])


def together(excerpts: Sequence[tuple[Excerpt, str]]) -> Drawn:
    """Excerpts with their titles."""
    texts: dict[str, int] = {}
    made = []
    for excerpt, _ in excerpts:
        at = [texts.setdefault(cut_middle(clean(t), NAME), len(texts)) for t in excerpt.texts]
        made.append(
            {
                "start": excerpt.start_ns,
                "end": excerpt.end_ns,
                "tracks": [clean(t) for t in excerpt.tracks],
                "total": excerpt.total,
                "place": excerpt.place,
                "events": [
                    [e.track, e.start, e.length, at[e.name], at[e.note], e.call] for e in excerpt.events
                ],
            }
        )
    return Drawn([clean(title) for _, title in excerpts], {"texts": list(texts), "excerpts": made})
