"""``advisor moe``: throughput with the learned router against the perfect one."""

from __future__ import annotations

from typing import Annotated, ClassVar

import typer

from advisor.cli import flags
from advisor.cli.deliver import formats
from advisor.cli.flags import Texts
from advisor.cli.greedy import GreedyCommand
from advisor.cli.lazy import HELP
from advisor.cli.settings import takes
from advisor.config import Settings
from advisor.errors import InputError


class _Moe(GreedyCommand):
    greedy: ClassVar[frozenset[str]] = frozenset(("--learned", "--perfect"))


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("moe", cls=_Moe, context_settings=HELP)
@takes(
    "runs learned perfect unit metric traces param format output html xlsx force quiet verbose",
    files=("folder",),
    format=formats("Kind of report."),
    quiet="The verdict alone.",
    verbose="Every row.",
)
def moe(
    settings: Settings,
    runs: Annotated[Texts, typer.Argument(metavar="[LEARNED PERFECT]", hidden=True)] = None,
    learned: Annotated[
        Texts, typer.Option(metavar="RUN...", help="Several runs with the learned router.")
    ] = None,
    perfect: Annotated[
        Texts, typer.Option(metavar="RUN...", help="Several runs with perfect routing.")
    ] = None,
    unit: Annotated[str | None, typer.Option(metavar="tok/s|req/s|ms", help="What bare numbers are.")] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="Compare this number of the reports.")
    ] = None,
    traces: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="LEARNED PERFECT", help="Captures of both: expert kernels, balance."),
    ] = None,
    output: flags.Output = None,
    html: flags.Html = None,
    xlsx: flags.Xlsx = None,
    force: flags.Force = False,
) -> None:
    """Does uneven routing hold a mixture of experts back?

    LEARNED and PERFECT are reports of trtllm-bench (JSON or text), vllm bench, sglang, genai-perf
    or CSV, several of a side with commas between, or numbers with --unit. Without them it prints
    the two commands to run.
    """
    from advisor.cli import compare_options as chosen
    from advisor.cli.compare_output import Target, check, deliver
    from advisor.cli.progress import Progress
    from advisor.pipeline import compare as run

    if not runs and not learned and not perfect:
        if traces:
            raise InputError(
                "--traces shows the experts beside the throughput of both runs; give their reports "
                "as well: advisor moe LEARNED PERFECT --traces A B"
            )
        _how()
        return
    try:
        left, right = chosen.sides(runs, learned, perfect)
    except InputError:
        raise InputError(
            "give LEARNED and PERFECT, or --learned RUN... --perfect RUN...; without any of them "
            "the commands to run are printed"
        ) from None
    target = check(Target(settings.format, output, html, xlsx, force), [*left, *right])
    options = chosen.options(settings)
    with Progress("moe") as progress:
        document = run.router(left, right, unit, metric, traces, options, progress)
    deliver(document, target, settings.verbosity)


def _how() -> None:
    from advisor.cli.deliver import show
    from advisor.knowledge.compare import moe_router
    from advisor.reports.experiment_blocks import router_help

    known = moe_router()
    show(
        router_help(
            [(c.title, c.line) for c in known.commands],
            known.repeat,
            [f"{m.name} ({m.method})" for m in known.models],
            known.backends,
            f"{known.notice} {known.how}",
            known.variable,
        )
    )
