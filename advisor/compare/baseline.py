"""``--baseline FILE``: which findings are new, which were known, which are gone.

Two findings are the same if code and scope are equal. A finding counts as gone only if its rule was
judged again: a capture that cannot answer is no improvement.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from advisor.compare.differences import absence, among
from advisor.compare.store import documents, fault_text
from advisor.errors import InputError
from advisor.knowledge.compare import limit
from advisor.model.facts import LEVELS, TRACE, Scope
from advisor.model.findings import SEVERITIES, Baseline, Diagnosis, Finding, Gone, Severity, identity

HINT = "save one with 'advisor TRACE --format json -o FILE'"


class _Saved(BaseModel):
    """The part of a saved diagnosis that is read; other versions may hold more."""

    model_config = ConfigDict(extra="ignore", frozen=True)


def _known_levels(scope: Any) -> Any:
    """The levels of a scope that this version knows."""
    return {k: v for k, v in scope.items() if k in LEVELS} if isinstance(scope, dict) else scope


class _Entry(_Saved):
    code: str
    scope: Annotated[Scope, BeforeValidator(_known_levels)] = TRACE

    @property
    def identity(self) -> str:
        return identity(self.code, self.scope)


class _Impact(_Saved):
    share: float | None = None


class _Finding(_Entry):
    cause: str
    title: str = ""
    severity: Severity
    invalidates: bool = False
    impact: _Impact | None = None


class _Input(_Saved):
    path: str


class Saved(_Saved):
    """A saved diagnosis, as far as a comparison needs it."""

    schema_version: int
    inputs: tuple[_Input, ...] = ()
    verdict: str = ""
    findings: tuple[_Finding, ...] = ()
    not_evaluated: tuple[_Entry, ...] = ()

    @property
    def capture(self) -> str:
        """Names of the captures, without their folders."""
        return ", ".join(_name(i.path) for i in self.inputs)


def read(path: Path) -> tuple[Saved, ...]:
    """The saved diagnoses of a file. Raises InputError if it holds none."""
    label = f"--baseline {path}"
    entries = documents(path, label, HINT)
    try:
        return tuple(Saved.model_validate(entry) for entry in entries)
    except ValidationError as error:
        text = fault_text(error)
        raise InputError(f"{label}: not a saved diagnosis ({text}); {HINT}") from None


def mark_all(diagnoses: Sequence[Diagnosis], saved: Sequence[Saved], path: Path) -> tuple[Diagnosis, ...]:
    """Every diagnosis against its baseline: the only one, or the one of the same file name."""
    return tuple(mark(d, counterpart(d, diagnoses, saved, path), path) for d in diagnoses)


def counterpart(
    diagnosis: Diagnosis, diagnoses: Sequence[Diagnosis], saved: Sequence[Saved], path: Path
) -> Saved:
    """The saved diagnosis to compare with. Raises InputError if there is none."""
    if len(saved) == len(diagnoses) == 1:
        return saved[0]
    name = ", ".join(_name(i.path) for i in diagnosis.inputs)
    alike = [s for s in saved if s.capture == name]
    if len(alike) != 1:
        how_many = "none" if not alike else str(len(alike))
        raise InputError(
            f"--baseline {path}: holds {how_many} of {name}; save one diagnosis for each capture, "
            "under the same file names"
        )
    return alike[0]


def mark(diagnosis: Diagnosis, saved: Saved, path: Path) -> Diagnosis:
    """The diagnosis with every finding marked, and what is gone."""
    before = {
        f.identity: Before(f.code, f.scope, f.severity, f.impact.share if f.impact else None)
        for f in saved.findings
    }
    findings = tuple(
        f.replaced(
            baseline="known" if f.identity in before else "new", changed=change(before.get(f.identity), f)
        )
        for f in diagnosis.findings
    )
    known = sum(f.baseline == "known" for f in findings)
    baseline = Baseline(
        path=str(path),
        capture=saved.capture,
        verdict=saved.verdict,
        new=len(findings) - known,
        known=known,
        gone=_gone(diagnosis, saved),
        not_evaluated_before=tuple(
            f.code
            for f in findings
            if f.baseline == "new" and any(among(saved.not_evaluated, f.code, f.scope))
        ),
    )
    return diagnosis.replaced(findings=findings, baseline=baseline)


class Before(NamedTuple):
    """A finding of an earlier capture; `share` is of the window."""

    code: str
    scope: Scope
    severity: Severity
    share: float | None


def change(before: Before | None, now: Finding) -> Literal["worse", "better"] | None:
    """By severity; at equal severity by the share of the window, if both are known."""
    if before is None:
        return None
    levels = [SEVERITIES.index(f.severity) for f in (before, now)]
    if levels[0] != levels[1]:
        return "worse" if levels[1] > levels[0] else "better"
    share = now.share
    if before.share is None or share is None:
        return None
    grown = share - before.share
    return None if abs(grown) < limit("known-finding") else "worse" if grown > 0 else "better"


def _gone(diagnosis: Diagnosis, saved: Saved) -> tuple[Gone, ...]:
    now = {f.identity for f in diagnosis.findings}
    gone: dict[str, Gone] = {}
    for f in saved.findings:
        if f.identity in now or f.identity in gone:
            continue
        gone[f.identity] = Gone(
            code=f.code,
            cause=f.cause,
            title=f.title,
            severity=f.severity,
            scope=f.scope,
            status=absence(diagnosis, f.code, f.scope, invalidates=f.invalidates).status,
        )
    return tuple(gone.values())


def _name(path: str) -> str:
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2]
