"""Conclusions about each rank -> conclusions about the job: one for what holds on most ranks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from msgspec import structs

from advisor.engine.compile import CompiledRule
from advisor.engine.findings import Conclusions
from advisor.model.facts import Scope, Table
from advisor.model.findings import Finding, Healthy, NotEvaluated, Overruled

#: Ranks that are named one by one.
_NAMED = 8
_SHARES = 16

Item = TypeVar("Item", Finding, Healthy, NotEvaluated, Overruled)


def over_ranks(
    found: Conclusions, rules: Mapping[str, CompiledRule], total: int, world: int | None = None
) -> Conclusions:
    """The conclusions of one inference over `total` ranks, of `world` in the job, with one entry for
    those of several ranks that say the same; not yet ranked.

    A finding about most ranks is about no rank, with the numbers of the one where it weighs most;
    else it is about that one and names the others. Findings of rules about the job stay. In order is
    what is so on all ranks and no finding or its symptom on any.
    """
    world = world or total
    of_job = {code for code, rule in rules.items() if rule.level in ("trace", "rank")}
    findings = [f for f in found.findings if f.code in of_job]
    for group in _grouped((f for f in found.findings if f.code not in of_job), _about):
        findings.append(_merged(group, total, world))
    bad = {f.code for f in found.findings} | {s.code for f in found.findings for s in f.explains}
    healthy = [_on_all(g, total, world) for g in _grouped(found.healthy, _about) if g[0].code not in bad]
    return structs.replace(
        found,
        findings=tuple(findings),
        overruled=_alike(found.overruled, lambda o: (o.by, *_about(o)), total),
        healthy=tuple(h for h in healthy if h is not None),
        not_evaluated=_alike(found.not_evaluated, lambda n: (n.missing, n.stopped_by, *_about(n)), total),
    )


def _about(what: Item) -> tuple[str, str, str]:
    """What the conclusions of several ranks share."""
    return what.code, what.scope.phase or "", what.scope.operation or ""


def _grouped(found: Iterable[Item], key_of: Callable[[Item], Hashable]) -> list[list[Item]]:
    """By key, in order; in each group in order of scope."""
    grouped: dict[Hashable, list[Item]] = {}
    for what in found:
        grouped.setdefault((what.code, key_of(what)), []).append(what)
    return [sorted(grouped[key], key=lambda w: w.scope.sort_key()) for key in sorted(grouped, key=str)]


def _ranks(group: Iterable[Item]) -> list[int]:
    return sorted({w.scope.rank for w in group if w.scope.rank is not None})


def _widened(group: Sequence[Item]) -> Scope:
    """The scope of the first of a group, without the rank, device or process in which others differ."""
    first = group[0].scope
    same_device = all(w.scope.device == first.device for w in group)
    return replace(
        first,
        rank=None,
        device=first.device if same_device else None,
        process=first.process if len(group) == 1 else None,
    )


def _merged(group: Sequence[Finding], total: int, world: int) -> Finding:
    group = sorted(group, key=lambda f: -(f.share or 0.0) * f.confidence)
    worst, ranks = group[0], _ranks(group)
    shown = worst.scope.rank
    most = 2 * len(ranks) > total
    scope = replace(worst.scope, process=worst.scope.process if len(group) == 1 else None)
    shares = [(f.scope.rank, f.share) for f in group if f.share is not None]
    extent = _extent(ranks, total, world, shown, [share for _, share in shares])
    changes: dict[str, object] = {
        "scope": _widened(group) if most else scope,
        "message": f"{worst.message} {extent}".strip(),
        "time_ranges": tuple(replace(t, label=f"rank {shown}: {t.label}") for t in worst.time_ranges),
    }
    if len(shares) > 1:
        by_rank = Table(title="Share by rank", columns=("rank", "share:ratio"), rows=tuple(shares[:_SHARES]))
        changes["evidence"] = (*worst.evidence, by_rank)
    return worst.replaced(**changes)


def _extent(ranks: Sequence[int], total: int, world: int, shown: int | None, shares: Sequence[float]) -> str:
    """Where else it holds, and how much there."""
    if world == 1:
        return ""
    if 2 * len(ranks) > total:
        between = f", a share of {percent(shares)}" if " to " in percent(shares) else ""
        numbers = f"; the numbers are those of rank {shown}"
        return f"On {len(ranks)} of {world} ranks{unread(total, world)}{between}{numbers}."
    others = [r for r in ranks if r != shown]
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


def _on_all(group: Sequence[Healthy], total: int, world: int) -> Healthy | None:
    """What is in order on all ranks that were read, in the words of the first one; None where it is
    not said of all."""
    first, ranks = group[0], _ranks(group)
    if first.scope.rank is None or world == 1:
        return first
    if len(ranks) < total:
        return None
    on = f"{total} of {world} ranks{unread(total, world)}" if world > total else f"all {total} ranks"
    changes = {
        "text": f"On {on}; on rank {ranks[0]}: {first.text}",
        "scope": _widened(group),
        "close": any(h.close for h in group),
    }
    return first.replaced(**changes)


def _alike(found: Iterable[Item], key_of: Callable[[Item], Hashable], total: int) -> tuple[Item, ...]:
    """One entry for all that say the same: about no rank where they are most or of the job, else
    about each."""
    out: list[Item] = []
    for group in _grouped(found, key_of):
        if 2 * len(_ranks(group)) > total:
            out.append(group[0].replaced(scope=_widened(group)))
        else:
            out += group
    return tuple(out)
