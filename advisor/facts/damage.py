"""Facts about what a capture lost: launches without work, stretches without events, and what the
tool that recorded it says of both."""

from __future__ import annotations

import re

from advisor.facts.writer import FactWriter
from advisor.knowledge.files import capture_knowledge
from advisor.metrics.analysis import Analysis
from advisor.metrics.damage import Losses, find_losses
from advisor.model.facts import TRACE

_LOST = re.compile(r"(?i)\blost\b|\bdropp(?:ed|ing)\b|buffer.*(?:full|overflow)|overflowed")
#: Notices that hedge ("might have been") and losses of CPU samples say nothing about CUDA events.
_NOT_LOSS = re.compile(r"(?i)\bmight\b|cpu (?:ip|sampling|context)|backtrace|perf event")
#: How many, where a message of loss says so.
_COUNT = re.compile(r"\d[\d,]*")

Sign = tuple[str, float]


def damage_facts(a: Analysis, out: FactWriter, rows: int) -> None:
    """What was lost of a capture with so many `rows` of events, and what shows it."""
    texts = a.trace.texts(a.trace.columns("diagnostics", ("text_id",))["text_id"].tolist())
    signs = [*_stretches(a, out), *_launches(a, out), *_told(out, texts, rows)]
    invalid = str(out.base.value("capture.invalid_rows"))
    signs += [(text, 1.0) for text in invalid.split("; ") if text != "none"]
    shares = ("capture.damaged_ratio", "capture.lost_row_ratio", "capture.invalid_row_ratio")
    out.put("capture.lost_ratio", max(out.value(name) or 0.0 for name in shares))
    out.put("capture.damage_signs", "; ".join(text for text, _ in signs) or "none")
    out.table("capture.damage", TRACE, "Signs of lost events", ("sign", "value"),
              [list(sign) for sign in signs])  # fmt: skip
    _refused(out, texts)


def _stretches(a: Analysis, out: FactWriter) -> list[Sign]:
    """Jumps of the correlation ids, and step ranges that lost their calls."""
    damage, signs = a.damage, list[Sign]()
    span = a.span[1] - a.span[0]
    if span > 0:
        out.put("capture.damaged_ratio", min(damage.holes.total / span, 1.0))
    if a.trace.has("api_calls"):
        out.put("capture.correlation_jump", damage.jump)
        if damage.step_ranges:
            out.put("capture.empty_step_ratio", damage.empty_steps / damage.step_ranges)
    if damage.jump:
        signs.append((f"correlation ids jump by {damage.jump:,}", float(damage.jump)))
    if damage.empty_steps:
        text = f"{damage.empty_steps} of {damage.step_ranges} step ranges hold no CUDA call"
        signs.append((text, float(damage.empty_steps)))
    return signs


def _launches(a: Analysis, out: FactWriter) -> list[Sign]:
    """Launches without the work that they must have left."""
    kernels, runs = a.trace.rows("kernels"), a.trace.rows("graph_runs")
    if not a.trace.has("api_calls"):
        out.put("capture.opaque_graph_ratio", 1.0 if runs else None)
        out.put("capture.hidden_graph_ratio", 0.0 if runs else None)
        return []
    losses = find_losses(a.trace, a.ops)
    share = losses.lost_launches / max(losses.launches, 1)
    out.put("capture.launch_without_kernel_ratio", share)
    share = losses.lost_kernels / max(kernels + runs + losses.lost_kernels, 1)
    out.put("capture.lost_kernel_ratio", share)
    opaque = losses.opaque_graphs / max(losses.graph_launches, 1)
    out.put("capture.opaque_graph_ratio", 1.0 if runs else opaque)
    hidden = losses.rowless_graphs / max(losses.graph_launches, 1)
    out.put("capture.hidden_graph_ratio", hidden)
    return _signs(losses, kernels + runs)


def _signs(losses: Losses, recorded: int) -> list[Sign]:
    """In numbers, never as a share that rounds to nothing."""
    signs = []
    if losses.lost_launches:
        of = f"{losses.lost_launches:,} of {losses.launches:,} kernel launches left no kernel"
        none = " and none is recorded" if not recorded else ""
        signs.append((of + none, float(losses.lost_launches)))
    if losses.lost_graphs:
        of = f"{losses.lost_graphs:,} of {losses.graph_launches:,} graph launches left no row"
        signs.append((of, float(losses.lost_graphs)))
    return signs


def _told(out: FactWriter, texts: list[str], rows: int) -> list[Sign]:
    """Losses that the tool reports."""
    losses = [t for t in texts if _LOST.search(t) and not _NOT_LOSS.search(t)]
    counts = [int(found[0].replace(",", "")) for t in losses if (found := _COUNT.search(t))]
    out.put("capture.lost_event_count", len(losses))
    out.put("capture.uncounted_loss_count", len(losses) - len(counts))
    told = sum(counts) / max(sum(counts) + rows, 1)
    out.put("capture.lost_row_ratio", max(out.value("capture.lost_kernel_ratio") or 0.0, told))
    return [(f"the tool says: {t[:100]}", 1.0) for t in losses[:5]]


def _refused(out: FactWriter, texts: list[str]) -> None:
    """Why CUDA events are missing, as far as the tool says so."""
    found = [r for r in capture_knowledge().refusals if any(re.search(r.pattern, t) for t in texts)]
    out.put("capture.refusal", found[0].id if found else "none")
    if found:
        out.put("capture.refusal_text", "; ".join(r.says for r in found))
