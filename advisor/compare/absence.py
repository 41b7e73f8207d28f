"""Whether a finding that is absent is gone: only where its rule was judged again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, Protocol, TypeVar

from advisor.model.facts import Scope
from advisor.model.findings import Diagnosis


class _Scoped(Protocol):
    @property
    def code(self) -> str: ...
    @property
    def scope(self) -> Scope: ...


T = TypeVar("T", bound=_Scoped)


class Absence(NamedTuple):
    """What the absence of a finding means; `why` it says nothing, empty where it is gone."""

    status: Literal["gone", "not_evaluated", "overruled"]
    why: str = ""


def absence(diagnosis: Diagnosis, code: str, scope: Scope, *, invalidates: bool = False) -> Absence:
    """Why `diagnosis` does not have a finding of this code and scope. A capture that cannot be
    analysed has not been looked at, but for what is itself said of the capture (`invalidates`)."""
    if not invalidates and any(f.invalidates for f in diagnosis.findings):
        return Absence("not_evaluated", "the capture cannot be analysed")
    if (other := next(among(diagnosis.overruled, code, scope), None)) is not None:
        return Absence("overruled", f"overruled by {other.by}")
    if (entry := next(among(diagnosis.not_evaluated, code, scope), None)) is not None:
        stopped = entry.stopped_by and f"stopped by {entry.stopped_by}"
        return Absence("not_evaluated", stopped or "its rule could not be judged")
    return Absence("gone")


def among(entries: Iterable[T], code: str, scope: Scope) -> Iterator[T]:
    """The entries of this code about all that `scope` names (the process aside)."""
    mine = scope.without_process()
    return (e for e in entries if e.code == code and e.scope.without_process().encloses(mine))
