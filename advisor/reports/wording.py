"""Wordings that every format shares: what supplies missing facts, which engine served."""

from __future__ import annotations

import re

from advisor.model.findings import Input

#: The evidence of an engine that was not detected but named.
NAMED = "named by --serving-engine"
_OPTION = re.compile(r"--?[a-z]|[A-Z][A-Z0-9_]*=")


def remedy_lead(flag: str) -> str:
    """The words before what supplies missing facts: an option of nsys, one of ours, a better
    run."""
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
