"""The verbs as one click group, which imports the module of a verb when it is used: importing all of them
would cost more than everything else that `advisor --help` does."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from advisor import __version__
from advisor.cli import completion
from advisor.cli.messages import say
from advisor.cli.options import Decorator, Verbs
from advisor.errors import InputError, near

#: Where the command of a verb is, and what it does.
VERBS = {
    "diagnose": ("advisor.cli.finding_verbs", "diagnose", "Find causes in captures (the default)."),
    "demo": ("advisor.cli.finding_verbs", "demo", "Diagnose the capture that ships with advisor."),
    "show": ("advisor.cli.finding_verbs", "show", "Show one finding in full."),
    "explain": ("advisor.cli.finding_verbs", "explain", "Explain a rule, or why it fired or not."),
    "run": ("advisor.cli.run_verbs", "run", "Record a command, and diagnose what was recorded."),
    "attach": ("advisor.cli.attach_verbs", "attach", "Profile a running server, and diagnose it."),
    "runs": ("advisor.cli.run_verbs", "runs", "List, show, compare and remove recorded runs."),
    "doctor": ("advisor.cli.capture_verbs", "doctor", "Check a capture, and how to record it better."),
    "stats": ("advisor.cli.extract_verbs", "stats", "Print tables of a capture, as nsys stats does."),
    "whatif": ("advisor.cli.extract_verbs", "whatif", "Predict what a change would win."),
    "capture": ("advisor.cli.capture_verbs", "capture", "Plan a capture: nsys command for a goal."),
    "checklist": ("advisor.cli.review_verbs", "checklist", "Go through the checklist of an analysis."),
    "review": ("advisor.cli.review_verbs", "review", "Decisions of reviews, and what became of findings."),
    "compare": ("advisor.cli.compare_verbs", "compare", "Compare captures: before and after, engines."),
    "moe": ("advisor.cli.compare_verbs", "moe", "Judge the perfect-router experiment of an MoE model."),
    "baseline": ("advisor.cli.compare_verbs", "baseline", "Keep diagnoses by name, to compare with."),
    "export": ("advisor.cli.extract_verbs", "export", "Write an overlay for Perfetto."),
    "mcp": ("advisor.cli.extract_verbs", "mcp", "Serve the verbs to agents (Model Context Protocol)."),
    "redact": ("advisor.cli.extract_verbs", "redact", "Copy a capture without private data."),
    "facts": ("advisor.cli.extract_verbs", "facts", "List the facts, or their values in a capture."),
    "rules": ("advisor.cli.finding_verbs", "rules", "List, check, test and document rules."),
}


class Advisor(Verbs):
    """The verbs of `VERBS`; other words are arguments of `diagnose`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        module, attribute, _ = VERBS[cmd_name]
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Verbs"):
            formatter.write_dl([(name, text) for name, (_, _, text) in VERBS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        if incomplete.startswith("-"):
            return click.Command.shell_complete(self, ctx, incomplete)
        file = CompletionItem(incomplete, type="file")  # for the default verb
        verbs = VERBS.items()
        return [file, *(CompletionItem(n, help=t) for n, (_, _, t) in verbs if n.startswith(incomplete))]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default verb in front of anything that is neither a verb nor our own option."""
        own = {name for p in self.get_params(ctx) for name in p.opts}
        if "--version" in args and set(args) <= {"--version", *_VERBOSE}:
            ctx.meta["advisor.verbose"], args = len(args) > 1, ["--version"]
        if args and args[0] not in VERBS and args[0] not in own:
            if not ctx.resilient_parsing:
                _refuse_mistyped(args[0])
            args = ["diagnose", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        from advisor.cli.deliver import notes_printed  # `advisor --help` needs no logging

        with notes_printed():
            return super().invoke(ctx)


#: With --version.
_VERBOSE = ("-v", "-vv", "--verbose")


def _refuse_mistyped(word: str) -> None:
    """Raise InputError for a misspelled verb, such as `advisor explian`."""
    if "." in word or os.sep in word or os.path.exists(word):
        return
    if hint := near(word, VERBS, "", cutoff=0.7):
        raise InputError(f"'{word}' is neither a file nor a verb; {hint}")


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        say(f"advisor {__version__}")
        if ctx.meta.get("advisor.verbose"):
            from advisor.knowledge.checked import listing  # no knowledge for the number alone

            say("\n".join(listing()))
        ctx.exit()


def _switch(name: str, callback: Any, help: str) -> Decorator:
    """An option that prints something instead of running a verb."""
    return click.option(name, is_flag=True, is_eager=True, expose_value=False, callback=callback, help=help)


@click.command(
    cls=Advisor,
    subcommand_metavar="[VERB] TRACE...",
    epilog="Exit codes: 0 done, 1 a finding at or above --fail-on, 2 cannot run, 70 a bug in advisor, "
    "130 interrupted.",
)
@_switch("--version", _version, "Print the version; with -v also the engine releases it knows.")
# Read in `main`, so that it works at any place of any verb.
@click.option("--debug", is_flag=True, expose_value=False, help="Show a traceback when something fails.")
@_switch("--install-completion", completion.install, "Install completion for the shell in use.")
@_switch("--show-completion", completion.show, "Print that completion, to copy it or change it.")
def app() -> None:
    """Find out why GPU inference is slow.

    advisor reads an Nsight Systems export or a PyTorch profiler trace and says what holds the GPU back,
    with the numbers that prove it and what to change. `advisor TRACE` is `advisor diagnose TRACE`.
    """
