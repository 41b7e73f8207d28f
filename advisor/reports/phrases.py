"""Texts that several formats share: what was read, what a finding costs, where it is; and the head of a
report as blocks: captures, machine, window, steps, the ranks of a job."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import fsum

from advisor.model.findings import UNREADABLE, Diagnosis, Finding, Gone, Input, NotEvaluated, StepSummary
from advisor.model.gain import over_all
from advisor.model.numbers import (
    amount,
    certainty,
    digits,
    first_few,
    milliseconds,
    percent_range,
    session_time,
    value_text,
)
from advisor.model.options import own_option
from advisor.reports.blocks import Block, Labelled, Title, labelled
from advisor.reports.layout import GLUE
from advisor.reports.output_file import clean

#: An estimate whose ends differ by this factor should be measured.
WIDE = 1.5
#: Captures of a job that cannot be read and are listed one by one.
_MOST_MISSING = 10
#: In headers: not recorded in the capture.
UNKNOWN = "unknown"
#: The evidence of an engine that was named, not detected.
NAMED = "named by --serving-engine"
STATUS = {
    "gone": "gone",
    "not_evaluated": "cannot tell: not evaluated here",
    "overruled": "overruled by another cause",
}


def capture_name(entry: Input) -> str:
    """The file name of a capture, without its folders."""
    return clean(entry.path.replace("\\", "/").rstrip("/").rpartition("/")[2] or entry.path)


def title(diagnosis: Diagnosis) -> str:
    """The subject of the diagnosis: the names of its captures."""
    return first_few([capture_name(i) for i in diagnosis.inputs], 3)


def missing(diagnosis: Diagnosis) -> list[str]:
    """The first captures of a job that could not be read, with why, and how many more there are."""
    texts = [f"rank {i.rank}: {'; '.join(i.warnings)}" for i in diagnosis.inputs if i.format == UNREADABLE]
    if (more := len(texts) - _MOST_MISSING) > 0:
        texts[_MOST_MISSING:] = [f"and {amount(more, 'more rank')}"]
    return texts


def recorder(entry: Input) -> str:
    """``nsys 2024.6.1``: the tool with its version, empty if the capture does not name it."""
    return (entry.producer or "").replace("NVIDIA Nsight Systems", "nsys")


def machine(entry: Input) -> list[str]:
    """Device and software of a capture; unnamed ones are unknown."""
    if entry.format == UNREADABLE:
        return []
    engine, sure = entry.serving_engine, entry.serving_confidence
    if engine is not None and sure is not None:
        engine += " (as named)" if NAMED in entry.serving_evidence else f", {certainty(sure)}"
    parts = [
        entry.device or f"device {UNKNOWN}",
        recorder(entry) or f"recorder {UNKNOWN}",
        f"driver {entry.driver or UNKNOWN}",
        f"CUDA {entry.cuda}" if entry.cuda else None,
        engine or f"engine {UNKNOWN}",
        f"{entry.ranks} ranks" if entry.ranks > 1 else None,
    ]
    return [clean(p) for p in parts if p]


def workload(entry: Input) -> str:
    """``LLM decode, 80 % sure``."""
    if not entry.workload or entry.workload_confidence is None:
        return entry.workload or UNKNOWN
    return f"{entry.workload}, {certainty(entry.workload_confidence)}"


def devices(entry: Input, always: bool = False, most: int | None = None) -> str:
    """The first `most` GPUs by device number; empty if there is one with one number, unless `always`."""
    plain = len(entry.devices) == 1 and set(entry.devices[0].cuda_ordinals) <= {entry.devices[0].id}
    if not entry.devices or (plain and not always):
        return ""
    shown = []
    for d in entry.devices[:most]:
        cuda = f"CUDA {', '.join(map(str, d.cuda_ordinals))}" if d.cuda_ordinals else None
        known = (d.name, d.bus_id and f"bus {d.bus_id}", cuda)
        shown.append(f"{d.id} ({', '.join(clean(k) for k in known if k)})".replace(" ()", ""))
    if len(entry.devices) > len(shown):
        shown.append(f"{len(entry.devices) - len(shown)} more")
    whose = f"; numbers are {entry.device_numbers}" if entry.device_numbers else ""
    return ", ".join(shown) + whose


def step_time(entries: Sequence[Input]) -> str:
    """Mean step time as captured and, if known, without the profiler, with what would narrow a wide estimate;
    the mean over ranks, empty without steps."""
    traced = [e.step_ms for e in entries if e.step_ms is not None]
    step = over_all([e.untraced_step_ms for e in entries if e.step_ms is not None])
    if not traced:
        return ""
    text = f"{milliseconds(fsum(traced) / len(traced))} ms traced"
    if step is None:
        return text
    low, mid, high = (milliseconds(x) for x in (step.low, step.mid, step.high))
    if low == high == milliseconds(fsum(traced) / len(traced)):
        return f"{text}, the same untraced"
    if step.low == step.high:
        known = {e.untraced_step_from for e in entries} - {None}
        return f"{text}, {mid} ms untraced, {' or '.join(sorted(map(str, known))) or 'as given'}"
    text += f", about {mid} ms ({low} to {high}) untraced"
    if step.high <= WIDE * step.low:
        return text
    return f"{text}; narrow it with --unprofiled-step MS"


def window(entry: Input) -> str:
    """The analysed window in session time, with its length and how it was chosen."""
    if entry.window_ns is None or entry.window_ns[1] <= entry.window_ns[0]:
        return value_text(entry.window_ms, "ms") if entry.window_ms else ""
    low, high = entry.window_ns
    return f"{session_time(low)} to {session_time(high)} ({chosen(entry)})"


def chosen(entry: Input) -> str:
    """Length of the analysed window and how it was chosen."""
    length = value_text((entry.window_ms or 0) * 1e6, "ns")
    return f"{length}, {clean(entry.window_method)}" if entry.window_method else length


def share_text(finding: Finding) -> str:
    """The share of the step that the cause holds; empty if it holds none."""
    return value_text(finding.share, "ratio") if finding.share else ""


def scope(finding: Finding | Gone) -> str:
    return clean(finding.scope.label())


def name(finding: Finding | Gone) -> str:
    """``LCH101 launch-bound (device 0)``"""
    return clean(f"{finding.code} {finding.cause}{finding.scope.aside()}")


def state(finding: Finding) -> str:
    """``new``, ``known``, ``worse`` or ``better`` if there is a baseline."""
    return finding.changed or finding.baseline or ""


def baseline_text(diagnosis: Diagnosis) -> str:
    """How the step changed, and how many findings are new, known and gone; empty without a baseline."""
    b = diagnosis.baseline
    if b is None:
        return ""
    gone = sum(g.status == "gone" for g in b.gone)
    rest = f", {len(b.gone) - gone} unknown" if gone < len(b.gone) else ""
    counts = f"{b.new} new, {b.known} known, {gone} gone{rest}"
    step = "" if b.step is None else f"{clean(b.step.summary)} Findings: "
    return f"Against {clean(b.path)} ({clean(b.capture)}): {step}{counts}"


def clock(*captures: Input) -> str:
    """What the times of places count from, and which tool shows them alike."""
    clocks = dict.fromkeys(clean(i.clock) for i in captures if i.clock)
    return "; ".join(clocks) or "times from the start of the capture"


def by_reason(diagnosis: Diagnosis) -> list[tuple[str, str, list[NotEvaluated]]]:
    """Rules that could not be judged, by what stopped them and what would supply their facts: first those
    that an option supplies, most first, then those that nothing helps, then stopped ones."""
    groups: dict[tuple[str, str], list[NotEvaluated]] = {}
    for entry in diagnosis.not_evaluated:
        key = clean(entry.stopped_by or ""), clean(entry.flag or "")
        groups.setdefault(key, []).append(entry)
    order = sorted(groups, key=lambda g: (bool(g[0]), not g[1], -len(groups[g]), g))
    return [(*key, groups[key]) for key in order]


def why_not_judged(entry: NotEvaluated, remedy: bool = False) -> str:
    """What stopped the rule, or what it lacks; with the `remedy`, if there is one."""
    why = entry.why or f"needs {', '.join(entry.missing)}"
    if entry.stopped_by is not None:
        why = f"stopped by {entry.stopped_by}" + (f": {entry.why}" if entry.why else "")
    return f"{why}; {remedy_text(entry.flag)}" if remedy and entry.flag else why


_OPTION = re.compile(r"\A(?:--?[a-z]|[A-Z][A-Z0-9_]*=)")


def remedy_lead(flag: str) -> str:
    """The words before what supplies missing facts: an option of nsys, one of ours, a better run."""
    if own_option(flag):
        return "give advisor"
    return "capture with" if _OPTION.match(flag) else "needs"


def remedy_text(flag: str) -> str:
    """``capture with --trace=cuda,nvtx,osrt``, ``needs a longer capture (10 to 50 steps)``."""
    return f"{remedy_lead(flag)} {flag}"


def first_of(texts: Sequence[str], room: int) -> str:
    """As many of the texts as fit into `room` columns, at least one, and how many more there are."""
    kept = list(texts)
    while len(kept) > 1 and len(_listed(kept, len(texts))) > room:
        kept.pop()
    return _listed(kept, len(texts))


def _listed(kept: Sequence[str], count: int) -> str:
    return ", ".join(kept) + (f" and {count - len(kept)} more (-v)" if count > len(kept) else "")


# --- the head of a report ------------------------------------------------------------------------

#: Number of captures described one by one, unless all are requested.
INPUTS = 4


def header(d: Diagnosis, limit: int | None = None) -> Iterator[Block]:
    """A block an input, at most `limit`; before them what the ranks of one job have in common."""
    ranks = len(d.inputs) > 1 and all(i.rank is not None for i in d.inputs)
    if ranks:
        yield from job(d)
        yield from _steps(d.main_steps, None)
    for entry in d.inputs[:limit] if limit is None or not ranks else ():
        yield from header_input(entry, d.main_steps if len(d.inputs) == 1 else None, alone(d))
        yield from labelled(("programs", programs(d)))
    if limit is not None and not ranks and len(d.inputs) > limit:
        yield Labelled("", f"and {len(d.inputs) - limit} more captures")
    if not ranks and len(d.inputs) != 1:
        yield from _steps(d.main_steps, None)
    yield Labelled("analysed", f"by {d.tool.name} {d.tool.version}, engine {d.tool.engine}")


def header_input(
    entry: Input, steps: tuple[StepSummary, ...] | None = None, device: int | None = None
) -> Iterator[Block]:
    """One capture, with its steps unless they are those of a whole job (None); of the program of one
    `device`, where several run their own."""
    yield Title(entry.path)
    if entry.format != UNREADABLE:
        evidence, startup = "; ".join(entry.serving_evidence), entry.startup_ms
        yield from labelled(
            ("captured", f"{GLUE}· ".join(machine(entry))),
            ("devices", devices(entry, always=True)),
            ("engine", evidence and f"evidence: {evidence}"),
            ("workload", workload(entry)),
        )
        yield from _steps(steps, entry, device)
        yield from labelled(
            ("window", window(entry)),
            ("start-up", f"{value_text(startup, 'ms')} set aside" if startup else ""),
            ("together", entry.together and f"with {entry.together}"),
        )
    for text, times in Counter(entry.warnings).items():
        yield Labelled("warning", f"{text} ({times} times)" if times > 1 else text)
    rows = (r for r in entry.ledger if str(r) not in entry.warnings)
    yield from (Labelled("import", f"{row.severity}: {row}") for row in rows)


def _steps(
    steps: tuple[StepSummary, ...] | None, entry: Input | None, device: int | None = None
) -> Iterator[Block]:
    if steps:
        yield Labelled("steps", ", ".join(f"{s.count} {s.phase}" for s in steps) + _method(entry))
        times = "; ".join(
            f"{s.phase} {milliseconds(s.median_ms)} ms median, {milliseconds(s.mean_ms)} ms mean"
            for s in steps
        )
        yield Labelled("step time", f"{times} (profiled)")
        if entry is not None and entry.untraced_step_ms is not None:
            yield Labelled("mean step", step_time([entry]))
    if entry is None:
        return
    if not steps and entry.steps:
        layers = f"not found; {entry.steps} parts that repeat may be layers"
        yield Labelled("steps", (str(entry.steps) if steps is None else layers) + _method(entry))
    elif not steps and entry.busy_share is not None:
        yield Labelled("steps", "none found")
    load = [f"{count} {what}" for what, count in entry.step_levels.items()]
    if entry.kernels_per_step is not None:
        load.insert(0, f"{digits(round(entry.kernels_per_step, 1))} kernels per step")
    if entry.busy_share is not None:
        load.append(f"GPU busy {value_text(entry.busy_share, 'ratio')} of the window")
    yield from labelled(("load", ", ".join(load)), ("delivers", rates(entry, steps or (), device)))


#: Steps of two GPUs whose medians differ by this factor are not those of one program.
_UNLIKE = 1.1


def programs(diagnosis: Diagnosis) -> str:
    """``device 0: 29 decode steps of 1.32 ms (process 100); device 1: ...``: the steps of each GPU where they
    are those of several programs; empty where all GPUs run the same one, as processes do whose steps take as
    long and which exchange data."""
    if len(diagnosis.inputs) != 1:
        return ""
    by_device: dict[int, list[StepSummary]] = {}
    for step in diagnosis.steps:
        by_device.setdefault(-1 if step.device is None else step.device, []).append(step)
    firsts = [steps[0] for steps in by_device.values()]
    medians = [s.median_ms for s in firsts]
    exchange = any(p.part == "communication" and p.share > 0 for one in diagnosis.budget for p in one.parts)
    alike = max(medians, default=0.0) <= _UNLIKE * min(medians, default=0.0)
    if len(firsts) < 2 or (alike and (exchange or len({s.process for s in firsts}) < 2)):
        return ""
    return "; ".join(
        f"device {device}: {', '.join(map(_counted, steps))}"
        + (f" (process {steps[0].process})" if steps[0].process is not None else "")
        for device, steps in sorted(by_device.items())
    )


def _counted(steps: StepSummary) -> str:
    name = "step" if steps.phase == "unknown" else f"{steps.phase} step"
    return f"{amount(steps.count, name)} of {milliseconds(steps.median_ms)} ms"


def alone(diagnosis: Diagnosis) -> int | None:
    """The device whose steps stand for the capture, if the others run programs of their own."""
    return diagnosis.main_steps[0].device if programs(diagnosis) else None


def rates(entry: Input, steps: Iterable[StepSummary], device: int | None = None) -> str:
    """Tokens a second and how much of the device's peaks that takes, as far as known; of the program of one
    `device`, where several run their own. Steps that read prompts work on tokens that nobody is sent."""
    reads = any(s.phase in ("prefill", "mixed") for s in steps)
    parts = []
    read, written = entry.prompt_tokens_per_s, entry.written_tokens_per_s
    if read is not None and written is not None:
        counts = [f"reads {digits(round(read))} prompt tokens/s"] * bool(read)
        counts += [f"writes {digits(round(written))} tokens/s"] * bool(written)
        parts.append(f"{', '.join(counts)}, over the window (profiled)" if counts else "")
    elif entry.tokens_per_s is not None:
        prompts = ", those of prompts included" if reads else ""
        parts.append(f"{digits(round(entry.tokens_per_s))} tokens/s{prompts} (profiled)")
    used = (("bandwidth", entry.model_bandwidth_ratio), ("FLOP", entry.model_flop_ratio))
    known = ((what, value_text(ratio, "ratio")) for what, ratio in used if ratio is not None)
    text = ", ".join((*filter(None, parts), *(f"model-{what} utilisation {text}" for what, text in known)))
    return f"device {device}: {text}" if text and device is not None else text


def _method(entry: Input | None) -> str:
    """How steps were found, and how certain they are."""
    if entry is None or not entry.step_method:
        return ""
    sure = entry.step_confidence
    confidence = "" if sure is None else f", {certainty(sure)}"
    return f" (from {entry.step_method}{confidence})"


def job(diagnosis: Diagnosis) -> Iterator[Block]:
    """The captures of one job in a few lines: what they have in common, then the warnings of each."""
    read = [i for i in diagnosis.inputs if i.format != UNREADABLE]
    yield Title(diagnosis.inputs[0].path)
    if diagnosis.inputs[0].path != diagnosis.inputs[-1].path:
        yield Title(f"to {diagnosis.inputs[-1].path}")
    yield Labelled("ranks", f"{ranks_read(diagnosis)} read")
    if read:
        same = {}  # what all have, or the most frequent one "and others"
        for name in ("device", "producer", "driver"):
            known = Counter(filter(None, (getattr(i, name) for i in read)))
            text = min(known, key=lambda text: (-known[text], text), default=None)
            same[name] = f"{text} and others" if len(known) > 1 else text
        shared = read[0].replaced(**same)
        yield Labelled("captured", f"{GLUE}· ".join(machine(shared)))
        yield Labelled("workload", workload(read[0]))
        if busy := [i.busy_share for i in read if i.busy_share is not None]:
            yield Labelled("load", f"GPUs busy {percent_range(busy)} of their windows")
    yield from (Labelled("missing", text) for text in missing(diagnosis))
    yield from (Labelled("warning", f"rank {i.rank}: {text}") for i in read for text in i.warnings)


def ranks_read(diagnosis: Diagnosis) -> str:
    """``2 of 3`` were read: of the ranks of the job, if its captures state their number."""
    read = sum(i.format != UNREADABLE for i in diagnosis.inputs)
    sizes = (f.value for f in diagnosis.facts if f.name == "ranks.world_size")
    world = max([len(diagnosis.inputs), *(v for v in sizes if isinstance(v, int))])
    return f"{read} of {world}" if world > read else str(read)


def path_of(diagnosis: Diagnosis, rank: int | None) -> str:
    """The file of this rank, else the first one."""
    own = next((i.path for i in diagnosis.inputs if rank is not None and i.rank == rank), None)
    return own or (diagnosis.inputs[0].path if diagnosis.inputs else "")
