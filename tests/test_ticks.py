"""A tick means: the rule looked at something, and it is small. Over every capture that is at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.errors import AdvisorError
from advisor.model.findings import Diagnosis, Healthy
from advisor.reports.ending import counts
from tests.captures import diagnosed, each
from tests.shipped import shipped_rules

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (ROOT / "examples" / "captures", ROOT / "tests" / "data" / "captures")
#: Captures that are too large for the repository, where a checkout has them beside it.
MORE = ROOT.parent / "shared" / "traces"
#: Larger ones would take minutes.
MOST_BYTES = 4_000_000
RULES = {rule.code: rule for rule in shipped_rules().active}

#: What the capture must hold for a tick of a rule, by the beginning of its code: one of these facts, above 0.
#: It says the same as `looks_at` from the other side, so that a rule that names a wrong fact is noticed.
SUBJECTS = {
    "ALC": ("alloc.time_ratio", "memory.peak_bytes"),
    "COM109": ("ranks.stage_wait_ratio",),
    "COM": ("comm.time_ratio", "ranks.matched_count", "kv.transfer_count", "kv.waiting_ratio"),
    "HST102": ("host.gc_max_ns",),
    "HST103": ("host.gil_wait_ratio",),
    "KRN": ("capture.kernel_count",),
    "LCH104": ("capture.graph_launch_count",),
    "LCH106": ("capture.graph_launch_count",),
    "LCH107": ("capture.graph_launch_count",),
    "LCH109": ("capture.graph_launch_count",),
    "LCH": ("capture.kernel_count", "capture.graph_launch_count"),
    "MOE": ("ranks.matched_count",),
    "SYN": (
        "sync.span_ratio",
        "sync.calls_per_step",
        "sync.calls_per_100_kernels",
        "copy.exposed_ratio",
        "sync.memset_time_ratio",
        "sync.implicit_calls_per_step",
        "sync.implicit_calls_per_100_kernels",
        "sync.readbacks_per_step",
        "sync.readbacks_per_100_kernels",
    ),
    "UTL101": ("capture.sample_count",),
    "UTL106": ("capture.sample_count",),
    "UTL109": ("serving.mixed_step_count",),
    "UTL112": ("gpus.computing_count",),
    "XFR107": ("copy.peer_exposed_ratio",),
    "XFR108": ("memset.exposed_ratio",),
    "XFR": (
        "copy.exposed_ratio",
        "copy.tiny_time_ratio",
        "copy.pageable_ratio",
        "copy.link_time_ratio",
        "copy.dtod_busy_ratio",
        "copy.tiny_per_step",
        "copy.tiny_per_100_kernels",
        "copy.peer_exposed_ratio",
    ),
}


def captures() -> list[Path]:
    found = [p for folder in FOLDERS for p in sorted(folder.iterdir()) if p.is_file()]
    more = sorted(p for end in ("*.sqlite.xz", "*.json.gz") for p in MORE.rglob(end))
    return found + [p for p in more if p.stat().st_size <= MOST_BYTES]


def values(d: Diagnosis, name: str, of: Healthy) -> list[object]:
    return [f.value for f in d.facts if f.name == name and f.scope.encloses(of.scope)]


def is_there(d: Diagnosis, tick: Healthy) -> bool:
    """By the longest beginning of its code that the table knows, and by what the rule says itself."""
    codes = (code for code in sorted(SUBJECTS, key=len, reverse=True) if tick.code.startswith(code))
    names = SUBJECTS.get(next(codes, ""), ())
    found = [v for name in names for v in values(d, name, tick)]
    own = [v for c in RULES[tick.code].looks_at for v in values(d, c.fact, tick)]
    return (not names or any(isinstance(v, int | float) and v > 0 for v in found)) and any(own)


def is_small(d: Diagnosis, tick: Healthy) -> bool:
    """What the rule is about holds less than 3 % of the step, as far as that is a share of it."""
    impact = RULES[tick.code].impact
    facts = [
        f for f in d.facts if impact is not None and f.name == impact.fact and f.scope.encloses(tick.scope)
    ]
    shares = [f.value for f in facts if f.unit == "ratio" and isinstance(f.value, int | float)]
    return impact is None or impact.part == "capture" or all(v < 0.03 for v in shares)


@pytest.mark.parametrize("path", each(captures()))
def test_no_tick_without_a_subject(path: Path) -> None:
    try:
        d = diagnosed(path)
    except AdvisorError as error:
        pytest.skip(f"not a capture of one trace: {error}")
    for tick in d.ticks:
        assert is_there(d, tick), f"{tick.code} {tick.cause}: {tick.text}"
        assert is_small(d, tick), f"{tick.code} {tick.cause}: {tick.text}"
        assert RULES[tick.code].kind != "note" or not tick.conditions[0].holds, tick.code
    listed = [{h.code for h in part} for part in (d.healthy, d.observed, d.not_applicable)]
    assert d.does_not_apply == len(listed[2] - listed[1] - listed[0])
    assert not d.does_not_apply or f"{d.does_not_apply} do" in counts(d)


@pytest.mark.skipif(not MORE.is_dir(), reason="the larger captures are not beside this checkout")
def test_the_larger_captures_are_looked_at() -> None:
    assert len(captures()) > len([p for folder in FOLDERS for p in folder.iterdir()])


def test_every_rule_that_can_be_in_order_says_what_it_looks_at() -> None:
    lacking = [
        c for c, rule in RULES.items() if rule.subject == "trace" and rule.healthy and not rule.looks_at
    ]
    assert not lacking
