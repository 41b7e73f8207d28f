"""``advisor.whatif``: what changes that the user names would win in a capture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from advisor import __version__
from advisor.engine.infer import default_engine
from advisor.engine.load import builtin_dir, load_rules
from advisor.gain.question import answer, parse_fixes
from advisor.model.findings import Tool
from advisor.model.whatif import WhatIfReport
from advisor.pipeline import document
from advisor.pipeline.diagnose import Options, Progress, analysis_of
from advisor.pipeline.given import given_step_ns, given_weights


def whatif(
    path: str | Path,
    fixes: str | Sequence[str],
    options: Options | None = None,
    progress: Progress | None = None,
) -> WhatIfReport:
    """What a change would win, or several, applied in order: ``whatif("t.sqlite", "batch:n=8")``.

    Raises InputError for an unknown fix, and for a capture that allows no estimate.
    """
    chosen = options or Options()
    say = progress or (lambda _: None)
    fixes = [fixes] if isinstance(fixes, str) else fixes
    parsed = parse_fixes(fixes, load_rules(builtin_dir(), *chosen.rules).by_code)
    weights = given_weights(chosen.weight_bytes)
    unprofiled = given_step_ns(chosen.unprofiled_step)
    say("reading")
    with analysis_of(path, chosen) as analysis:
        serving = document.serving_engine(analysis, chosen.serving_engine)
        source = document.input_of(analysis, serving)
        say("replaying")
        tool = Tool(version=__version__, engine=chosen.engine or default_engine())
        return answer(analysis, parsed, tool, source, weights, unprofiled)
