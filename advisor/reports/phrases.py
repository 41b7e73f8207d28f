"""Texts that several formats share: what a finding costs, where it is, what was read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import fsum

from advisor.model.findings import UNREADABLE, Diagnosis, Finding, Gone, Input, NotEvaluated
from advisor.model.gain import over_all
from advisor.model.numbers import amount, milliseconds, session_time, value_text
from advisor.reports.characters import clean

#: An estimate whose ends differ by this factor should be measured.
WIDE = 1.5
#: Captures of a job that cannot be read and are listed one by one.
_MOST_MISSING = 10
#: In headers: not recorded in the capture.
UNKNOWN = "unknown"
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
    names = [capture_name(i) for i in diagnosis.inputs]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


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
    parts = [
        entry.device or f"device {UNKNOWN}",
        recorder(entry) or f"recorder {UNKNOWN}",
        f"driver {entry.driver or UNKNOWN}",
        f"CUDA {entry.cuda}" if entry.cuda else None,
        serving_text(entry) or f"engine {UNKNOWN}",
        f"{entry.ranks} ranks" if entry.ranks > 1 else None,
    ]
    return [clean(p) for p in parts if p]


def workload(entry: Input) -> str:
    """``LLM decode (confidence 80.0 %)``."""
    if not entry.workload or entry.workload_confidence is None:
        return entry.workload or UNKNOWN
    return f"{entry.workload} (confidence {value_text(entry.workload_confidence, 'ratio')})"


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
    """Mean step time as captured and, if known, without the profiler, with what would narrow a wide
    estimate; the mean over ranks, empty without steps."""
    traced = [e.step_ms for e in entries if e.step_ms is not None]
    step = over_all([e.untraced_step_ms for e in entries if e.step_ms is not None])
    if not traced:
        return ""
    text = f"{milliseconds(fsum(traced) / len(traced))} ms traced"
    if step is None:
        return text
    low, mid, high = (milliseconds(x) for x in (step.low, step.mid, step.high))
    if step.low == step.high:
        return f"{text}, {mid} ms untraced, as given"
    text += f", about {mid} ms ({low} to {high}) untraced"
    if step.high <= WIDE * step.low:
        return text
    return f"{text}; time one run without the profiler and give its step: --unprofiled-step MS"


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
    """The share of the step that the cause holds; empty if it has none."""
    return "" if finding.share is None else value_text(finding.share, "ratio")


def scope(finding: Finding | Gone) -> str:
    return clean(finding.scope.label())


def name(finding: Finding | Gone) -> str:
    """``LCH101 launch-bound (device 0)``"""
    return clean(f"{finding.code} {finding.cause}{finding.scope.aside()}")


def state(finding: Finding) -> str:
    """``new``, ``known``, ``worse`` or ``better`` if there is a baseline."""
    return finding.changed or finding.baseline or ""


def baseline_text(diagnosis: Diagnosis) -> str:
    """One line on the comparison; empty without a baseline."""
    b = diagnosis.baseline
    if b is None:
        return ""
    gone = sum(g.status == "gone" for g in b.gone)
    rest = f", {len(b.gone) - gone} that cannot be told" if gone < len(b.gone) else ""
    counts = f"{b.new} new, {b.known} known, {gone} gone{rest}"
    return f"Against {clean(b.path)} ({clean(b.capture)}): {counts}"


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


def why_not_judged(entry: NotEvaluated) -> str:
    """What stopped the rule, or what it lacks."""
    if entry.stopped_by is not None:
        return f"stopped by {entry.stopped_by}" + (f": {entry.why}" if entry.why else "")
    return entry.why or f"needs {', '.join(entry.missing)}"


#: The evidence of an engine that was named, not detected.
NAMED = "named by --serving-engine"
_OPTION = re.compile(r"\A(?:--?[a-z]|[A-Z][A-Z0-9_]*=)")


def remedy_lead(flag: str) -> str:
    """The words before what supplies missing facts: an option of nsys, one of ours, a better run."""
    if flag.startswith("--weight-bytes"):
        return "give advisor"
    return "capture with" if _OPTION.match(flag) else "needs"


def remedy_text(flag: str) -> str:
    """``capture with --trace=cuda,nvtx,osrt``, ``needs a longer capture (10 to 50 steps)``."""
    return f"{remedy_lead(flag)} {flag}"


def serving_text(entry: Input) -> str | None:
    """``vllm (0.92)``: the serving engine with the confidence of its detection."""
    if entry.serving_engine is None or entry.serving_confidence is None:
        return entry.serving_engine
    if NAMED in entry.serving_evidence:
        return f"{entry.serving_engine} (as named)"
    return f"{entry.serving_engine} ({entry.serving_confidence:.2f})"
