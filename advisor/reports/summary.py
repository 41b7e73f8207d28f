"""The short form of a diagnosis on one screen: what to do and its gain; several captures get a row each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from advisor.model.facts import Cell
from advisor.model.findings import NO_WORK, PACED, UNREADABLE, Advice, Diagnosis, Finding
from advisor.model.gain import WORTH, Gain, ToDo, perhaps_saved
from advisor.model.numbers import (
    amount,
    digits,
    milliseconds,
    percent,
    percent_range,
    perhaps_text,
    signed,
    value_text,
)
from advisor.model.rules import judges_capture
from advisor.reports import blocks as b
from advisor.reports import phrases, rank_blocks
from advisor.reports.finding_text import span_text, times_text
from advisor.reports.layout import GLUE
from advisor.reports.phrases import ranks_read, rates
from advisor.reports.sums_blocks import share_of, summed

#: A message is cut after the sentence that reaches this length.
MESSAGE = 200
WARNINGS = 2
#: Number of devices of a capture that are named.
DEVICES = 2
#: Number of ranks of a job that are listed: those that cause most waiting.
RANKS = 3
#: Columns for the names of what is noted: one line.
NOTED = 68
#: The finding that says that the times of single kernels are not reliable.
UNRELIABLE = "uneven-graph-nodes"
#: A busy share below this is printed as 0 %.
LEAST_BUSY = 0.00005
#: Advice to change this number requests the captures of the other ranks.
MISSING_RANKS = "ranks.missing_count"


def summary(diagnosis: Diagnosis, top: int, shown_ranks: int = RANKS) -> Iterator[b.Block]:
    """The short form without its footer; lists `top` rules and, for a job, `shown_ranks`."""
    d = diagnosis
    yield from head(d, WARNINGS)
    if whole := tuple(b for b in d.budget if b.phase is None):
        yield b.Bars(whole, ranks=rank_blocks.late_and_waiting(d))
    yield from b.labelled(("waiting", rank_blocks.waiting(d, shown_ranks)))
    yield from findings(d, top)
    if d.next_target is not None and d.headline is None and without_requests(d) is None:
        yield b.Command(d.next_target.command)
    yield from summed(d)


def head(d: Diagnosis, warnings: int | None = None) -> Iterator[b.Block]:
    """Capture, verdict and steps; at most this many `warnings`, and with all of them the whole verdict."""
    yield from _capture(d, warnings)
    yield b.Paragraph(verdict(d), strong=True)
    if text := phrases.baseline_text(d):
        yield b.Paragraph(text, dense=True)
    if text := why(d, whole=warnings is None):
        yield b.Paragraph(text, dense=True)
    yield b.Gap()
    yield from _steps(d)


def verdict(diagnosis: Diagnosis) -> str:
    """What to do and its gain: ``Use CUDA graphs: decode step 9.01 → 2.13 ms, 4.23 x (2.47 to 6.09)``;
    without a fix the document's verdict. Where perhaps no request came, that goes before."""
    first, idle = headline(diagnosis), without_requests(diagnosis)
    if first is None:
        return _under_load(idle) if idle is not None else diagnosis.verdict
    found = in_program(diagnosis, first)  # a better capture is not all there is to do
    steps = [what_to_do(diagnosis, f) for f in (first, found)]
    wins = (_win(diagnosis, f) for f in (first, found))
    text, behind = (": ".join(filter(None, pair)) for pair in zip(steps, wins, strict=True))
    if found is not first and steps[0] != steps[1]:
        text = f"{text}; in the program, {behind[:1].lower()}{behind[1:]}"
    if idle is None:
        return text
    return f"{_under_load(idle)}; in a pass, {text[:1].lower()}{text[1:]}"


def _under_load(idle: Finding) -> str:
    if idle.cause == PACED:
        return f"Input comes at a fixed rate: the GPU has no work for {phrases.share_text(idle)} of the time"
    return f"Record under load: perhaps no request came for {phrases.share_text(idle)} of the time"


def without_requests(d: Diagnosis) -> Finding | None:
    """The note that perhaps no request came, if there is one: another recording comes before all else."""
    return next((f for f in d.findings if f.cause in NO_WORK), None)


def in_program(diagnosis: Diagnosis, first: Finding) -> Finding:
    """The `first` finding, or if that is about the capture, the first one about the program behind it."""
    about = [f for f in diagnosis.findings if f.severity != "info" and not judges_capture(f.code)]
    return about[0] if about and first not in about else first


def headline(diagnosis: Diagnosis) -> Finding | None:
    """The finding behind the verdict."""
    code = diagnosis.headline.code if diagnosis.headline is not None else None
    return next((f for f in diagnosis.findings if f.code == code), None)


def fix(advice: Advice) -> str:
    """The action in a few words, with the condition that the capture does not show."""
    text = advice.title or advice.id.replace("-", " ")
    return f"{text}, if {advice.condition}" if advice.condition else text


def first_fix(finding: Finding) -> str:
    """What to do first: the action of the estimated gain, if there is an estimate."""
    known = finding.recommendations
    if finding.gain is not None and finding.gain.speedup is not None:
        known = tuple(a for a in known if a.verify and a.verify.fact != MISSING_RANKS) or known
    return fix(known[0]) if known else ""


def otherwise(finding: Finding) -> str:
    """The fix that the finding's gain is of, where another one leads: one without a number, or whose gain
    holds under a condition that the capture does not show."""
    first, *rest = _program_s(finding) or (None,)
    if first is None or finding.gain is None or finding.gain.speedup is None or _is_of(finding.gain, first):
        return ""
    own = next((a for a in rest if _is_of(finding.gain, a)), None)
    if own is None and first.condition and first.gain is not None:
        own = next((a for a in rest if a.condition is None), None)
    return fix(own) if own is not None else ""


def _program_s(finding: Finding) -> tuple[Advice, ...]:
    """Recommendations about the program, not about what to record."""
    return tuple(a for a in finding.recommendations if a.verify is None or a.verify.fact != MISSING_RANKS)


def _is_of(gain: Gain, advice: Advice) -> bool:
    own = advice.gain
    return own is not None and (own.what_if, own.params) == (gain.what_if, gain.params)


def sentence(finding: Finding) -> str:
    """The first fix with its object and reason; empty if it has none in one sentence."""
    title = first_fix(finding)
    advice = next((a for a in finding.recommendations if fix(a) == title), None)
    return advice.sentence if advice is not None and not advice.condition else ""


def saves(finding: Finding) -> str:
    """The share of the step that the fix saves, with what it perhaps saves where that is much more; empty
    without an estimate, and where it shortens no step."""
    gain = finding.gain
    if gain is None or gain.speedup is None or gain.measure == "throughput":
        return ""
    if gain.alone is None:
        return ""
    most = perhaps_saved(gain)
    if most is None:
        return value_text(gain.alone, "ratio")
    return f"{gain.alone * 100:.0f} to {most * 100:.0f} %"


def _capture(d: Diagnosis, warnings: int | None) -> Iterator[b.Block]:
    read = [i for i in d.inputs if i.format != UNREADABLE]
    if not d.inputs:
        return
    yield b.Title(d.inputs[0].path)
    about: list[str | None] = []
    if read:
        steps = ", ".join(amount(s.count, f"{_phase(s.phase)}step") for s in d.main_steps)
        entry = read[0]
        unsure = f"{amount(entry.steps, 'step')}, not certain" if entry.steps else entry.step_method
        found = steps or unsure or "no steps found"
        about += [entry.device, phrases.recorder(entry), entry.serving_engine, entry.workload, found]
    about += [f"{ranks_read(d)} ranks"] * (len(d.inputs) > 1)
    if about:
        yield b.Paragraph(" · ".join(filter(None, about)), dense=True)
    if len(d.inputs) == 1 and read and (numbers := phrases.devices(read[0], most=DEVICES)):
        yield b.Labelled("devices", numbers)
    yield from (b.Labelled("missing", text) for text in phrases.missing(d))
    texts = Counter(f"rank {i.rank}: {w}" if len(d.inputs) > 1 else w for i in read for w in i.warnings)
    for text, count in list(texts.items())[:warnings]:
        yield b.Labelled("warning", text + (f" ({count} times)" if count > 1 else ""))
    if warnings is not None and len(texts) > warnings:
        yield b.Labelled("", f"and {amount(len(texts) - warnings, 'more warning')} (-v)")


def _rough(d: Diagnosis, share: float) -> str:
    """``about 90 %``: a share of kernels whose times are not reliable; empty where they are."""
    return f"about {10 * round(10 * share)} %" if any(f.cause == UNRELIABLE for f in d.findings) else ""


def _busy(shares: Sequence[float]) -> str:
    """``39.1 %``; a GPU that did run something is never busy for 0 %."""
    return "below 0.01 %" if 0 < max(shares) < LEAST_BUSY else percent_range(shares)


def _phase(phase: str) -> str:
    return "" if phase == "unknown" else f"{phase} "


def _steps(d: Diagnosis) -> Iterator[b.Block]:
    """Step time as captured and without the profiler, and the load."""
    entry = d.inputs[0] if len(d.inputs) == 1 else None
    load = []
    if entry is not None and entry.kernels_per_step is not None:
        count = digits(round(entry.kernels_per_step, 1))
        load.append(f"{count} kernel{'' if count == '1' else 's'} a step")
    busy = [i.busy_share for i in d.inputs if i.busy_share is not None]
    if busy:
        of = f" of {phrases.chosen(entry)}" if entry and entry.window_ms and not d.main_steps else ""
        in_pass = " in a pass" if without_requests(d) else ""
        load.append(f"GPU busy {_busy(busy)}{of}{in_pass}")
    text = ", ".join(load)
    if (target := d.next_target) is not None:
        most = f"{target.family} {_rough(d, target.share) or percent(target.share)}"
        if target.collectives_share > target.share:
            most = f"collectives {percent(target.collectives_share)}, {most}"
        text = "; ".join(filter(None, (text, f"{most} of kernel time")))
    several = d.main_steps if len(d.main_steps) > 1 else ()
    medians = (f"{_phase(s.phase)}{milliseconds(s.median_ms)} ms" for s in several)
    yield from b.labelled(
        ("step", phrases.step_time(d.inputs)),
        ("medians", ", ".join(medians)),
        ("programs", phrases.programs(d)),
        ("load", text),
        ("delivers", rates(entry, d.main_steps, phrases.alone(d)) if entry is not None else ""),
    )


def in_order(d: Diagnosis, finding: Finding, done: Collection[str] = ()) -> str:
    """The fix in a few words, after the fixes that it requires but those of the codes `done`: ``remove
    read-backs to the host, then use CUDA graphs``."""
    own = first_fix(finding)
    advice = {a.action: fix(a) for f in d.findings for a in f.recommendations}
    before = [advice[t.action] for t in _required(d, finding) if t.action in advice and t.code not in done]
    if finding.recommendations and (ranks := fix(finding.recommendations[0])) != own:
        before.append(ranks)
    return ", then ".join(part for part in (", ".join(before), own) if part)


def what_to_do(d: Diagnosis, first: Finding) -> str:
    """The fix, after the fixes that it requires."""
    own, text = first_fix(first), in_order(d, first)
    if (joint := first.joint) is not None:
        fixes = [first_fix(f) for f in d.findings if f.code in joint.codes and f.code != first.code]
        text = " and ".join(dict.fromkeys((text, *fixes)))
    if text and text == own and (whole := sentence(first)):
        text = whole
    text = text or first.cause.replace("-", " ").replace("gpu", "GPU")
    # It is named if the finding is not about every device.
    device, others = first.scope.device, {each.id for entry in d.inputs[:1] for each in entry.devices}
    others -= {f.scope.device for f in d.findings if f.code == first.code}
    if device is not None and others and len(d.inputs) == 1:
        text += f" on device {device}"
    return text[:1].upper() + text[1:]


def _required(d: Diagnosis, first: Finding) -> list[ToDo]:
    """What the fix of a finding requires to be done before it, in order."""
    at = next((i for i, t in enumerate(d.do) if t.code == first.code), 0)
    causes, found = {first.cause}, list[ToDo]()
    for one in reversed(d.do[:at]):
        if any(one.because.startswith(f"before {cause}:") for cause in causes):
            causes.add(one.cause)
            found.insert(0, one)
    return found


def _win(d: Diagnosis, first: Finding) -> str:
    gain = (d.headline.together if d.headline is not None else None) or first.gain
    waits = any(a.verify and a.verify.fact == MISSING_RANKS for a in first.recommendations)
    if gain is None or gain.speedup is None or waits:
        share = "" if judges_capture(first.code) else phrases.share_text(first)
        of = first.impact.of(bool(d.steps)) if first.impact is not None else ""
        if share and (whole := share_of(d)):
            return f"the problem takes {share}, {whole}"
        # What one rank waits for the others no fix of its own saves.
        perhaps = ", part of it perhaps waiting for other ranks" if waits else ""
        return f"the problem takes {share} of the {of}{perhaps}" if share else ""
    if gain.measure == "throughput":
        return f"more {gain.per}s/s; no step gets shorter"
    at = first.scope.device
    phases = {s.phase for s in (d.main_steps if at is None else d.steps) if at in (None, s.device)}
    step = f"{_phase(phases.pop())}step" if len(phases) == 1 else gain.of
    if gain.step_before_ms is None or gain.step_after_ms is None:
        return times_text(gain.speedup)
    before, after = milliseconds(gain.step_before_ms.mid), milliseconds(gain.step_after_ms.mid)
    text = f"{step} {before} → {after} ms, {times_text(gain.speedup)}"
    if own := otherwise(first):
        text = f"else {own}, {text}"
    return "; ".join(filter(None, (text, perhaps_text(gain))))


def why(d: Diagnosis, whole: bool = False) -> str:
    """The problem: shortened to the first numbers, or `whole` as in the document."""
    first, idle = headline(d), without_requests(d)
    if whole or (first is None and idle is None):
        return d.verdict if first is not None or idle is not None else ""
    first = idle or first
    assert first is not None
    where = f" (rank {first.scope.rank})" if first.scope.rank is not None else ""
    known = f" The fix saves {perhaps_text(first.gain)}."  # as the line above has it
    kept, *sentences = first.message.replace(known, "").split(". ")
    kept = f"{first.title}{where}. {kept}"
    for sentence in sentences:
        if len(kept) + len(sentence) > MESSAGE:
            break
        kept += f". {sentence}"
    return kept.rstrip(".") + "."


def findings(d: Diagnosis, top: int | None = None) -> Iterator[b.Block]:
    """One table of what to fix; limits, the capture and the rest apart."""
    quality = [f for f in d.findings if judges_capture(f.code) and not f.invalidates]
    rest = [f for f in d.findings if f.kind != "limit" and f not in quality]
    faults = [f for f in rest if f.severity != "info" or f.invalidates]
    yield b.Gap()
    if faults:
        yield _table(d, faults, top)
    # Findings whose fix gains nothing alone, but behind the fixes of others.
    won = {s.code: s.marginal_share for s in (d.combined.steps if d.combined is not None else ())}
    unlocked = [f for f in d.findings if f.severity == "info" and won.get(f.code, 0.0) >= WORTH]
    yield from b.labelled(("together", _together(d)))
    for i, f in enumerate(unlocked):
        saved = value_text(won[f.code], "ratio")
        text = f"#{f.rank} {f.code} {f.cause}: {first_fix(f)} (saves {saved} after those above)"
        yield b.Labelled("" if i else "then", text)
    limits = [f for f in d.findings if f.kind == "limit" and f.severity != "info"]
    yield from b.listed("limit", [_line(f) for f in limits])
    yield from b.listed("capture", [_line(f) for f in quality if f.severity != "info"])
    noted = [f for f in d.findings if f.severity == "info" and not f.invalidates and f not in unlocked]
    if names := dict.fromkeys(f"{f.code} {f.cause}" for f in noted):
        yield b.Labelled("noted", phrases.first_of([n.replace(" ", GLUE) for n in names], NOTED))
    if d.baseline is not None:
        gone = [f"{phrases.name(g)}: {phrases.STATUS[g.status]}" for g in d.baseline.gone]
        yield from b.listed("baseline", gone)


def _together(d: Diagnosis) -> str:
    """What all fixes win; where those of several findings leave but one estimate, that one's."""
    if (c := d.combined) is not None and len(c.steps) > 1:
        before, after = milliseconds(c.step_before_ms.mid), span_text(c.step_after_ms)
        codes = {s.code for s in c.steps}
        limits = [f"#{f.rank}" for f in d.findings if f.kind == "limit" and f.code in codes]
        with_limits = f", with the limit {' and '.join(limits)}" if limits else ""
        return f"{c.of} {before} → {after} ms, {times_text(c.speedup)}{with_limits}"
    main = [f for f in d.findings if f.severity != "info" and not f.only_part]
    known = [(f, f.gain) for f in main if f.gain is not None and f.gain.alone is not None]
    if len(main) < 2 or not known:
        return ""
    first, gain = max(known, key=lambda pair: pair[1].alone or 0.0)
    assert gain.speedup is not None
    rest = "the other fixes win the same time" if len(known) > 1 else "no other has an estimate"
    if gain.step_before_ms is None or gain.step_after_ms is None:
        return f"{times_text(gain.speedup)}, by #{first.rank} alone: {rest}"
    before, after = milliseconds(gain.step_before_ms.mid), span_text(gain.step_after_ms)
    return f"{gain.of} {before} → {after} ms, {times_text(gain.speedup)}, by #{first.rank} alone: {rest}"


def _line(f: Finding) -> str:
    """``1 high UTL102 memory-bandwidth-bound 48.6 %: store weights in FP8 (saves 20.4 %)``"""
    parts = [f"#{f.rank} {f.severity} {f.code} {f.cause}", phrases.share_text(f)]
    won = f" (saves {saves(f)})" if saves(f) and first_fix(f) else ""
    return " ".join(p for p in parts if p) + (f": {first_fix(f)}{won}" if first_fix(f) else "")


def _behind(f: Finding, numbers: Mapping[str, int]) -> str:
    """Which row's time the fix saves as well, or with which it saves more than alone."""
    gain = f.gain
    if gain is None:
        return ""
    if gain.part_of is not None and gain.part_of in numbers:
        return f"part of #{numbers[gain.part_of]}: "
    if gain.after_first is None:
        return ""
    others = [f"#{numbers[c]}" for c in (gain.joint.codes if gain.joint else ()) if c != f.code]
    return f"with {', '.join(others)} {percent(gain.after_first)}: " if others else ""


def _table(d: Diagnosis, findings: Sequence[Finding], top: int | None) -> b.Grid:
    """One row per rule; a rule that fired in several places shows the first. Its fix comes behind
    those that it requires and no row above has."""
    marked = d.baseline is not None
    times = Counter(f.code for f in findings)
    numbers = {f.code: f.rank for f in reversed(findings)}
    rows: list[tuple[Cell, ...]] = []
    shown = list(times)[:top]
    for i, code in enumerate(shown):
        f = next(f for f in findings if f.code == code)
        name = f"{f.code} {f.cause}" + (f" ({times[code]} places)" if times[code] > 1 else "")
        state = (phrases.state(f),) if marked else ()
        share, saved = phrases.share_text(f) or "-", saves(f) or "-"
        on = f"rank {f.scope.rank}: " if f.scope.rank is not None and times[code] == 1 else ""
        behind = _behind(f, numbers)
        fixes = ", else ".join(filter(None, (in_order(d, f, shown[:i]), otherwise(f))))
        do = behind + on + fixes if fixes else ""
        rows.append((str(f.rank), f.severity, *state, name, share, saved, do))
    heads = ("#", "severity", *(("state",) if marked else ()), "finding", "share", "saves", "do first")
    return b.Grid(heads, tuple(rows), len(times) - len(rows), wrapped=True)


def table(diagnoses: Sequence[Diagnosis], against: bool = False) -> Iterator[b.Block]:
    """A row a capture: what to fix first, and the totals; `against`: with changes from the first."""
    base = diagnoses[0].inputs[0].step_ms if against else None
    rows: list[tuple[Cell, ...]] = []
    levels: Counter[str] = Counter()
    for i, d in enumerate(diagnoses):
        first, entry = headline(d), d.inputs[0]
        name = phrases.capture_name(entry)
        steps = ["-" if entry.step_ms is None else milliseconds(entry.step_ms)]
        if base:
            steps.append(f"{signed(entry.step_ms / base - 1)} %" if i and entry.step_ms is not None else "-")
        busy = "-" if entry.busy_share is None else value_text(entry.busy_share, "ratio")
        for end in (".gz", ".xz", ".sqlite", ".json", ".pt.trace"):
            name = name.removesuffix(end)
        found = None if first is None else in_program(d, first)
        levels["" if found is None else found.severity] += 1
        about = ("info", "-", "-", "nothing to fix")
        if found is not None:
            about = (found.severity, found.code, saves(found) or "-", in_order(d, found))
        rows.append((name, *steps, busy, *about))
    change = ("against the first",) if base else ()
    heads = ("capture", "step ms", *change, "busy", "level", "finding", "saves", "do first")
    yield b.Grid(heads, tuple(rows), wrapped=True)
    total = [f"{levels[s]} {s}" for s in ("high", "medium", "low", "info") if levels[s]]
    total += [f"{levels['']} with nothing to fix"] if levels[""] else []
    yield b.Paragraph(f"{amount(len(rows), 'capture')}: {', '.join(total)}; -v prints each in full")
    if len(diagnoses) == 2 and not against and all(d.inputs[0].step_ms for d in diagnoses):
        before, after = (d.inputs[0].path for d in diagnoses)
        yield b.Next(b.comparison(before, after, 73))
    else:
        worst = next((d for d in diagnoses if d.headline is not None), diagnoses[0])
        yield b.Next(b.command("advisor", worst.inputs[0].path, "", 73))
