"""Values that the shell completes: codes and causes, what-ifs, engines, goals, NVTX ranges."""

from __future__ import annotations

import typer

from advisor.errors import AdvisorError


def rules() -> list[str]:
    """Codes and causes of the built-in rules."""
    from advisor.engine.load import builtin_dir, load_rules

    known = load_rules(builtin_dir()).active
    return [r.code for r in known] + [r.cause for r in known]


def codes(incomplete: str) -> list[str]:
    """Rule codes for the last entry of a comma-separated list."""
    done = incomplete[: incomplete.rfind(",") + 1]
    return [f"{done}{name}" for name in rules() if name.isupper()]


def fixes() -> list[str]:
    """What-ifs, and the codes and causes that stand for one."""
    from advisor.gain.catalog import catalogue

    return [*catalogue().whatifs, *rules()]


def engines() -> list[str]:
    """Serving engines."""
    from advisor.knowledge.capture import capture_goals

    return capture_goals().engine_names()


def goals() -> list[str]:
    """Goals of a capture."""
    from advisor.knowledge.capture import capture_goals

    return [goal.id for goal in capture_goals().goals]


def ranges(ctx: typer.Context) -> list[str]:
    """Names of the NVTX ranges of the captures on the line, as far as these can be read."""
    from advisor.metrics.host import Ranges
    from advisor.sources.open import open_trace

    names: dict[str, None] = {}
    for word in [*ctx.args, ctx.params.get("trace")]:  # words are not parsed yet while one is completed
        try:
            with open_trace(word or "") as trace:
                names.update(dict.fromkeys(Ranges(trace).texts))
        except AdvisorError:
            continue  # no capture; the verb itself says what is wrong with it
    return list(names)
