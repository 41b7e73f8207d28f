"""Who traced CUDA: the GPU itself, which makes no graph launch longer, or CUPTI in software."""

from __future__ import annotations

from typing import Literal

from advisor.knowledge.files import capture_knowledge
from advisor.knowledge.kernel_names import pattern
from advisor.knowledge.shapes import release
from advisor.sources.trace import Trace

TraceMethod = Literal["hardware", "software", "not-told"]


def trace_method(trace: Trace) -> TraceMethod | None:
    """As the diagnostics say; software where the options, the release or the GPU leave nothing else,
    not-told where both are possible, and None where another tool than nsys recorded the capture."""
    capture, known = trace.capture, capture_knowledge().hardware_trace
    if not capture.recorder.nsys_options:
        return None
    diagnostics = trace.texts(trace.columns("diagnostics", ("text_id",))["text_id"].tolist())
    if any(pattern(known.announced).found(text) for text in diagnostics):
        return "hardware"
    majors = [d.compute_capability[0] for d in trace.devices if d.compute_capability]
    recorded, first = release(capture.producer_version), release(known.since)
    older = recorded is not None and first is not None and recorded < first
    forbidden = known.forbidden_by in {source.lower() for source in capture.trace_sources}
    if older or forbidden or (majors and max(majors) < known.compute_capability):
        return "software"
    return "not-told"
