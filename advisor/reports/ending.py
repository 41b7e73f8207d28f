"""The last lines of a report: what was counted, what was not judged and why, and the next commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap

from advisor.model.capture import LOAD
from advisor.model.findings import Diagnosis
from advisor.model.numbers import amount, found_and_noted
from advisor.model.rules import judges_capture
from advisor.reports import blocks as b
from advisor.reports.layout import GLUE
from advisor.reports.output_file import clean
from advisor.reports.summary import headline, in_program, without_requests
from advisor.reports.sums_blocks import share_of

#: Columns of a page that nobody chose.
WIDTH = 80
#: Lines that the counts of the short form take at most, and kinds of missing things that they name.
LINES, KINDS = 2, 3
#: What the options of the command just typed are for.
OPTIONS = f"All: -v; share: --html{GLUE}FILE; gate: --fail-on{GLUE}high"
#: Engines whose profiler `advisor attach` starts.
_ATTACHED = ("vllm", "sglang")
#: When to compare.
FIXED = "Fixed?"


def end(diagnosis: Diagnosis, width: int, verbosity: int = 0, show: Sequence[str] = ()) -> Iterator[b.Block]:
    """Findings, counts of healthy and not judged rules, and the next commands; `show` as in `TextOptions`."""
    if verbosity > 0:
        yield b.Gap()
    yield b.Paragraph(counts(diagnosis) if verbosity > 0 else checked(diagnosis, width), dense=True)
    yield b.Next(next_ := _next(diagnosis, width - len("Next: "), show))
    if (server := _server_alone(diagnosis)) not in (None, next_) and headline(diagnosis) is not None:
        yield b.Next(str(server), "Then:")
    if verbosity <= 0 and _can_be_compared(diagnosis):
        yield fixed(diagnosis.inputs[0].path, width)


def fixed(path: str, width: int = WIDTH) -> b.Next:
    """The command that says what the fix won, and whether the numbers moved that its advice names."""
    return b.Next(b.command("advisor compare", path, " AFTER", width - len(f"{FIXED} ")), FIXED)


def _can_be_compared(d: Diagnosis) -> bool:
    """Whether one capture was read, with times of its own and a fault of the program to fix."""
    first = headline(d)
    if first is None or len(d.inputs) > 1 or share_of(d) is not None:
        return False
    return not judges_capture(in_program(d, first).code)


def counts(diagnosis: Diagnosis) -> str:
    """``3 findings (1 high, 2 low), 1 note · 26 in order · 9 do not apply · 10 not judged``"""
    faults = [f for f in diagnosis.findings if f.severity != "info" and not f.only_part]
    levels = Counter("limit" if f.kind == "limit" else f.severity for f in faults)
    split = ", ".join(f"{levels[s]} {s}" for s in ("high", "medium", "low", "limit") if levels[s])
    found, *notes = found_and_noted(diagnosis.findings)
    parts = [", ".join([found + (f" ({split})" if split else ""), *notes])]
    parts.append(f"{_rules(diagnosis.ticks)} in order")
    parts += [f"{_rules(diagnosis.close)} close"] * bool(diagnosis.close)
    parts += [f"{_rules(diagnosis.observed)} observed"] * bool(diagnosis.observed)
    if away := diagnosis.does_not_apply:
        parts.append(f"{away} {'does' if away == 1 else 'do'} not apply")
    parts.append(f"{diagnosis.not_judged} not judged")
    return " · ".join(parts)


def _server_alone(d: Diagnosis) -> str | None:
    """What to do after a log or metrics: profile the server as it serves, if a command can start that."""
    entry = next(iter(d.inputs), None)
    if entry is None or entry.step_method != LOAD:
        return None
    if any(f.name == "load.on_cpu" and f.value for f in d.facts):
        return b.command("advisor compare", entry.path, " AFTER", WIDTH)
    if entry.serving_engine in _ATTACHED:
        return "advisor attach http://HOST:PORT"
    return "capture the server with nsys profile --trace=cuda,nvtx"


def checked(diagnosis: Diagnosis, width: int) -> str:
    """``2 findings; 26 checks in order, 13 not judged: no GPU metrics (9), no host trace (3) and 1 more``:
    what the recording lacks for most rules first, as many kinds as two lines of this width have room for."""
    rest = [f"{amount(_rules(diagnosis.ticks), 'check')} in order"] * bool(diagnosis.ticks)
    rest += [f"{_rules(diagnosis.close)} close"] * bool(diagnosis.close)
    rest.append(f"{diagnosis.not_judged} not judged")
    text = f"{', '.join(found_and_noted(diagnosis.findings))}; {', '.join(rest)}"
    kinds = kinds_missing(diagnosis)
    for most in range(min(KINDS, len(kinds)), 0, -1):
        named = kinds.most_common(most)
        more = _rules(diagnosis.not_evaluated) - sum(count for _, count in named)
        listed = ", ".join(f"{kind} ({count})" for kind, count in named) + f" and {more} more" * bool(more)
        whole = f"{text}: {listed}. {OPTIONS}"
        if most == 1 or len(wrap(whole, width)) <= LINES:
            return whole
    return f"{text}. {OPTIONS}"


def kinds_missing(diagnosis: Diagnosis) -> Counter[str]:
    """How many rules were not judged, by what the recording lacks or what stopped them: ``no GPU metrics``,
    ``stopped by launch-bound``. Rules that no other recording could judge are left out."""
    by_code: dict[str, str | None] = {}
    for entry in diagnosis.not_evaluated:
        by_code.setdefault(entry.code, f"stopped by {entry.stopped_by}" if entry.stopped_by else entry.lacks)
    return Counter(clean(kind) for kind in by_code.values() if kind)


def _rules(entries: Sequence[object]) -> int:
    return len({getattr(e, "code", "") for e in entries})


def _next(d: Diagnosis, room: int, show: Sequence[str] = ()) -> str:
    """The command that shows the finding in full, or the next measurement if there is none."""
    flags = [e.flag for e in d.not_evaluated if e.flag]
    if d.headline is not None and len(d.inputs) > 1 and not show:
        return f"advisor explain {d.headline.code}"
    if d.headline is not None and d.findings:  # some are left out by --select
        return _show(d, f" {(headline(d) or d.findings[0]).rank}", room, show)
    if (idle := without_requests(d)) is not None and (len(d.inputs) == 1 or show):
        return _show(d, f" {idle.code}", room, show)
    if d.next_target is not None:
        return f"the {d.next_target.command.partition(' ')[0].rstrip(';')} line above"
    if (server := _server_alone(d)) is not None:
        return server
    if not flags:
        return "advisor rules list"
    options = [flag for flag in flags if " --" in f" {flag}"]
    return f"capture again with {options[0]}" if options else f"record {flags[0]}"


def _show(d: Diagnosis, rest: str, room: int, show: Sequence[str]) -> str:
    """The first of the commands that fits; TRACE for the path if none does: a command is never cut."""
    if (fitting := next((lead for lead in show if b.fits(lead + rest, room)), None)) is not None:
        return f"{fitting}{rest}"
    return b.command("advisor show", d.inputs[0].path, rest, room)
