"""Conclusions about single ranks -> conclusions about the job: one for what holds on most ranks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from advisor.model.facts import Scope, Table
from advisor.model.findings import Finding, Healthy, NotEvaluated, Overruled, Symptom
from advisor.model.rules import RuleSpec

#: Ranks that are named one by one.
_NAMED = 8
_SHARES = 16

Item = TypeVar("Item", Finding, Healthy, NotEvaluated, Overruled)


class RankFinding(NamedTuple):
    """Something concluded about a capture, and the ranks of that capture which it is about."""

    ranks: tuple[int, ...]
    what: Finding


def merge_findings(found: Iterable[RankFinding], total: int, world: int | None = None) -> list[Finding]:
    """One finding for a code, phase and operation, with the numbers of the rank where it weighs
    most; it is about no rank where it holds on most of the `total` ranks that were read, else about
    that one. `world` counts the ranks of the job, read or not."""
    grouped: dict[Hashable, list[RankFinding]] = {}
    for stated in found:
        scope = stated.what.scope
        key = (stated.what.code, scope.phase or "", scope.operation or "")
        grouped.setdefault(key, []).append(stated)
    return [_merged(grouped[key], total, world or total) for key in sorted(grouped, key=str)]


def _merged(group: list[RankFinding], total: int, world: int) -> Finding:
    group = sorted(group, key=lambda s: (-_weight(s.what), s.ranks, _order(s.what.scope)))
    worst = group[0]
    ranks = sorted({r for stated in group for r in stated.ranks})
    most = 2 * len(ranks) > total
    shown = worst.ranks[0]
    several = len(worst.ranks) > 1
    devices = {stated.what.scope.device for stated in group}
    scope = replace(
        worst.what.scope,
        rank=None if most or several else shown,
        device=worst.what.scope.device if len(devices) == 1 or not most else None,
        process=worst.what.scope.process if len(group) == 1 else None,
    )
    shares = [(s.ranks[0], s.what.share) for s in group if s.what.share is not None]
    extent = _extent(ranks, total, world, worst.ranks, most, [share for _, share in shares])
    changes: dict[str, object] = {
        "scope": scope,
        "message": f"{worst.what.message} {extent}".strip(),
        "time_ranges": tuple(replace(t, label=f"rank {shown}: {t.label}") for t in worst.what.time_ranges),
    }
    if len(shares) > 1:
        by_rank = Table(title="Share by rank", columns=("rank", "share:ratio"), rows=tuple(shares[:_SHARES]))
        changes["evidence"] = (*worst.what.evidence, by_rank)
    return worst.what.model_copy(update=changes)


def _order(scope: Scope) -> tuple[int, int, str, str]:
    return (
        -1 if scope.device is None else scope.device,
        scope.process or -1,
        scope.phase or "",
        scope.operation or "",
    )


def _weight(finding: Finding) -> float:
    share = finding.share
    return (share or 0.0) * finding.confidence


def _extent(
    ranks: Sequence[int], total: int, world: int, shown: tuple[int, ...], most: bool, shares: Sequence[float]
) -> str:
    """Where else it holds, and how much there."""
    if world == 1:
        return ""
    if most:
        of = "" if len(shown) > 1 else f"; the numbers are those of rank {shown[0]}"
        between = f", a share of {percent(shares)}" if " to " in percent(shares) else ""
        return f"On {len(ranks)} of {world} ranks{unread(total, world)}{between}{of}."
    if len(shown) > 1:
        return f"On {listed(ranks)}."
    others = [r for r in ranks if r not in shown]
    return f"Also on {listed(others)}." if others else ""


def percent(shares: Sequence[float]) -> str:
    """``71 to 88 %``; one number where both ends are the same, none without any."""
    if not shares:
        return ""
    low, high = f"{100 * min(shares):.0f}", f"{100 * max(shares):.0f}"
    return f"{high} %" if low == high else f"{low} to {high} %"


def unread(total: int, world: int) -> str:
    """`` (1 not read)`` where `total` of the `world` ranks were read."""
    return f" ({world - total} not read)" if world > total else ""


def listed(ranks: Sequence[int]) -> str:
    """``ranks 1, 2 and 5``; the first ones where there are many."""
    named = [str(r) for r in ranks[:_NAMED]]
    if len(ranks) > _NAMED:
        named.append(f"{len(ranks) - _NAMED} more")
    text = ", ".join(named[:-1])
    return f"rank{'s' * (len(ranks) > 1)} " + (f"{text} and {named[-1]}" if text else named[-1])


def refold(findings: Iterable[Finding], rules: Mapping[str, RuleSpec]) -> list[Finding]:
    """Symptoms of single ranks that a cause of the job explains, folded into it. A cause with a
    rank but no device is about that rank's part in the job, so it explains what others show."""
    listed_ = list(findings)
    explained: dict[int, list[Symptom]] = {}
    folded: set[int] = set()
    for i, symptom in enumerate(listed_):
        if symptom.kind != "symptom":
            continue
        for j, cause in enumerate(listed_):
            if symptom.cause not in rules[cause.code].then.explains or i == j:
                continue
            about_job = cause.scope.device is None
            if about_job or cause.scope.rank in (None, symptom.scope.rank):
                folded.add(i)
                explained.setdefault(j, []).append(
                    Symptom(
                        code=symptom.code, cause=symptom.cause, scope=symptom.scope, message=symptom.message
                    )
                )
    out = []
    for i, finding in enumerate(listed_):
        if i in folded:
            continue
        new = [s for s in explained.get(i, ()) if s not in finding.explains]
        out.append(finding.model_copy(update={"explains": (*finding.explains, *new)}))
    return out


def merge_overruled(stated: Iterable[tuple[tuple[int, ...], Overruled]], total: int) -> list[Overruled]:
    return _alike(stated, lambda o: (o.code, o.by, o.scope.phase, o.scope.operation), total)


def merge_not_evaluated(
    stated: Iterable[tuple[tuple[int, ...], NotEvaluated]], total: int
) -> list[NotEvaluated]:
    return _alike(
        stated, lambda n: (n.code, n.missing, n.stopped_by, n.scope.phase, n.scope.operation), total
    )


def merge_healthy(
    stated: Iterable[tuple[tuple[int, ...], Healthy]], unhealthy: Iterable[str], total: int, world: int
) -> list[Healthy]:
    """What is in order on all `total` ranks that were read, in the words of the first one;
    `unhealthy` are codes of which some rank says otherwise."""
    bad = set(unhealthy)
    grouped: dict[Hashable, list[tuple[tuple[int, ...], Healthy]]] = {}
    for ranks, what in stated:
        key = (what.code, what.scope.phase or "", what.scope.operation or "")
        grouped.setdefault(key, []).append((ranks, what))
    out = []
    for name in sorted(grouped, key=str):
        group = sorted(grouped[name], key=lambda g: (g[0], _order(g[1].scope)))
        on = {r for held, _ in group for r in held}
        first, what = group[0]
        if what.code in bad or len(on) < total:
            continue
        on_all = f"{total} of {world} ranks{unread(total, world)}"
        on_all = on_all if world > total else f"all {total} ranks"
        text = what.text if world == 1 else f"On {on_all}; on rank {first[0]}: {what.text}"
        devices = {w.scope.device for _, w in group}
        scope = replace(what.scope, device=what.scope.device if len(devices) == 1 else None, process=None)
        close = any(w.close for _, w in group)
        out.append(what.model_copy(update={"text": text, "scope": scope, "close": close}))
    return out


def _alike(
    stated: Iterable[tuple[tuple[int, ...], Item]], key_of: Callable[[Item], Hashable], total: int
) -> list[Item]:
    """One entry for all that say the same: about no rank where they are most, else about the only
    one, else about each."""
    grouped: dict[Hashable, list[tuple[tuple[int, ...], Item]]] = {}
    for ranks, what in stated:
        grouped.setdefault(key_of(what), []).append((ranks, what))
    out = []
    for key in sorted(grouped, key=str):
        group = sorted(grouped[key], key=lambda g: (g[0], _order(g[1].scope)))
        on = {r for held, _ in group for r in held}
        first = group[0][1]
        devices = {w.scope.device for _, w in group}
        wide = {"device": first.scope.device if len(devices) == 1 else None, "process": None}
        if 2 * len(on) > total:
            out.append(_about(first, {**wide, "rank": None}))
        else:
            out += [_about(what, {"rank": held[0]}) for held, what in group]
    return out


def _about(what: Item, scope: Mapping[str, Any]) -> Item:
    return what.model_copy(update={"scope": replace(what.scope, **scope)})
