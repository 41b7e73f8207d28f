"""``advisor compare``: before against after, short against long context, engines side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from advisor.cli import flags
from advisor.cli.flags import Texts
from advisor.cli.greedy import GreedyCommand
from advisor.cli.lazy import HELP
from advisor.cli.settings import takes
from advisor.config import Settings
from advisor.errors import InputError
from advisor.model.options import one_of

if TYPE_CHECKING:
    from advisor.model.comparison import Comparison, ContextScaling, FrameworkTable


class _Compare(GreedyCommand):
    greedy: ClassVar[frozenset[str]] = frozenset(("--before", "--after"))


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("compare", cls=_Compare, context_settings=HELP)
@takes(
    "sources before after context tokens frameworks throughput batch gate noise_floor fail_on folder "
    "window nvtx phase rules param engine redact format output html xlsx force quiet verbose",
    files=("folder",),
    fail_on=one_of("Exit 1 for it, and for not-comparable.", "regression"),
    quiet="The verdict alone.",
    verbose="Every row.",
)
def compare(
    settings: Settings,
    sources: Annotated[Texts, typer.Argument(metavar="BEFORE AFTER", hidden=True)] = None,
    before: Annotated[
        Texts, typer.Option(metavar="TRACE...", help="Several captures of the one side.")
    ] = None,
    after: Annotated[
        Texts, typer.Option(metavar="TRACE...", help="Several captures of the other side.")
    ] = None,
    context: Annotated[
        bool, typer.Option("--context", help="SHORT LONG: which operations grow with the context.")
    ] = False,
    tokens: Annotated[
        str | None, typer.Option(metavar="SHORT,LONG", help="Context lengths, for --context.")
    ] = None,
    frameworks: Annotated[
        bool, typer.Option("--frameworks", help="[NAME=]TRACE...: serving engines side by side.")
    ] = False,
    throughput: Annotated[
        Texts, typer.Option(metavar="NAME=TOK_S", help="Measured throughput, for --frameworks.")
    ] = None,
    batch: Annotated[
        Texts, typer.Option(metavar="NAME=N", help="Sequences a step, for --frameworks.")
    ] = None,
    gate: Annotated[
        str | None, typer.Option(metavar="PCT", help="Slow-down that is a regression (5 %).")
    ] = None,
    noise_floor: Annotated[
        str | None, typer.Option(metavar="PCT", help="What must be certain of it (2 %).")
    ] = None,
    output: flags.Output = None,
    html: flags.Html = None,
    xlsx: flags.Xlsx = None,
    force: flags.Force = False,
) -> None:
    """Compare two sides: what changed, by how much, and is it more than noise?

    Each source is a capture (any format that advisor reads), a diagnosis saved with --format json,
    or the name of a baseline. Several captures a side show the real noise:
    --before A1 A2 --after B1 B2.
    """
    from advisor.cli import compare_options as chosen
    from advisor.cli.compare_output import Target, check, deliver
    from advisor.cli.compare_output import gate as exit_code
    from advisor.cli.progress import Progress
    from advisor.pipeline import compare as run

    if context and frameworks:
        raise InputError("--context and --frameworks answer different questions; give one")
    if settings.fail_on and (context or frameworks):
        raise InputError("--fail-on regression judges before against after; nothing else")
    plain = not (context or frameworks)
    named = [*(sources or ()), *(before or ()), *(after or ())]
    target = Target(settings.format, output, html, xlsx, force)
    target = check(target, named, "findings" if plain else "document")
    drawn = html is not None or settings.format == "html"
    options = replace(chosen.options(settings, gate=gate, noise_floor=noise_floor), drawn=drawn and plain)
    document: Comparison | ContextScaling | FrameworkTable
    with Progress("compare") as progress:
        if frameworks:
            document = run.frameworks(
                chosen.engines(sources, before, after),
                chosen.numbers(throughput, "--throughput"),
                chosen.numbers(batch, "--batch"),
                settings.phase,
                options,
                progress,
            )
        elif context:
            sides = chosen.sides(sources, before, after, "SHORT LONG")
            document = run.context(*sides, chosen.lengths(tokens), options, progress)
        else:
            document = run.compare(*chosen.sides(sources, before, after), options, progress)
    deliver(document, target, settings.verbosity)
    if document.kind == "comparison":
        raise typer.Exit(exit_code(document, settings.fail_on))
