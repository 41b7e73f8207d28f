"""Entry point: verbs, errors in one line, exit codes. `--help` and `--version` import neither typer nor
the analysis."""

from __future__ import annotations

import atexit
import gc
import io
import os
import re
import signal
import sys
from contextlib import suppress
from itertools import pairwise

from advisor import __version__
from advisor.cli import messages
from advisor.cli.messages import message
from advisor.errors import AdvisorError, InputError

TYPE_CHECKING = False  # `typing` takes as long to import as all of this
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

# pydantic searches all installed packages for plugins, which takes longer than `--help` does.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
# Matrices here are tall and thin: the threads of OpenBLAS mostly wait for each other, busily. One takes
# an eighth of the processor time for the triangle of 130,000 samples, and starts sooner.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Huge pages are cleared whole for each array that lives a moment.
os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")

#: Where a verb lives (a function, or a `typer.Typer` with verbs of its own), and what it does.
VERBS = {
    "diagnose": ("advisor.cli.finding_verbs", "diagnose", "Find causes in captures (the default)."),
    "demo": ("advisor.cli.finding_verbs", "demo", "Diagnose the capture that ships with advisor."),
    "show": ("advisor.cli.finding_verbs", "show", "Show one finding in full."),
    "explain": ("advisor.cli.finding_verbs", "explain", "Explain a rule, or why it fired or not."),
    "doctor": ("advisor.cli.capture_verbs", "doctor", "Check a capture, and how to record it better."),
    "stats": ("advisor.cli.extract_verbs", "stats", "Print tables of a capture, as nsys stats does."),
    "whatif": ("advisor.cli.extract_verbs", "whatif", "Predict what a change would win."),
    "capture": ("advisor.cli.capture_verbs", "capture", "Plan a capture: nsys command for a goal."),
    "checklist": ("advisor.cli.review_verbs", "checklist", "Go through a sound analysis."),
    "review": ("advisor.cli.review_verbs", "app", "Decisions of reviews, and what became of findings."),
    "compare": ("advisor.cli.compare_verbs", "compare_app", "Compare captures: before and after, engines."),
    "moe": ("advisor.cli.compare_verbs", "moe_app", "Judge the perfect-router experiment of an MoE model."),
    "baseline": ("advisor.cli.compare_verbs", "baseline_app", "Keep diagnoses by name, to compare with."),
    "export": ("advisor.cli.extract_verbs", "app", "Write an overlay for Perfetto."),
    "mcp": ("advisor.cli.extract_verbs", "mcp", "Serve the verbs to agents (Model Context Protocol)."),
    "redact": ("advisor.cli.extract_verbs", "redact", "Copy a capture without private data."),
    "facts": ("advisor.cli.extract_verbs", "facts", "List the facts, or their values in a capture."),
    "rules": ("advisor.cli.finding_verbs", "app", "List, check, test and document rules."),
}

_TEXT = (
    "Find out why GPU inference is slow.",
    "advisor reads an Nsight Systems export or a PyTorch profiler trace and says what holds the GPU back, "
    "with the numbers that prove it and what to change. `advisor TRACE` is `advisor diagnose TRACE`.",
)
_OPTIONS = {
    "--version": "Print the version.",
    "--debug": "Show a traceback where something fails.",
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Show completion for the current shell, to copy it or customize the installation.",
    "-h, --help": "Show this message and exit.",
}
_EXIT_CODES = (
    "Exit codes: 0 done, 1 a finding at or above --fail-on, 2 cannot run, 70 a bug in advisor, "
    "130 interrupted."
)


def help_text() -> str:
    """What `advisor --help` prints: up to 78 columns, as typer prints the help of a verb."""
    from textwrap import fill

    columns = 80
    with suppress(OSError, ValueError):
        columns = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(1).columns
    width = max(min(columns, 80) - 2, 50)

    def table(title: str, rows: Mapping[str, str]) -> str:
        indent = max(map(len, rows)) + 4
        lines = [
            fill(text, width, initial_indent=f"  {name}".ljust(indent), subsequent_indent=" " * indent)
            for name, text in rows.items()
        ]
        return "\n".join([f"{title}:", *lines])

    def paragraph(text: str) -> str:
        return fill(text, width, initial_indent="  ", subsequent_indent="  ")

    return "\n\n".join(
        [
            "Usage: advisor [OPTIONS] [VERB] TRACE...",
            *map(paragraph, _TEXT),
            table("Options", _OPTIONS),
            table("Verbs", {name: text for name, (_, _, text) in VERBS.items()}),
            paragraph(_EXIT_CODES),
        ]
    )


def main(args: Sequence[str]) -> int:
    """Run one command line; returns the exit code, prints every error as one line."""
    # Removed here, so that it works at any place of any verb.
    messages.debug = debug = "--debug" in args
    words = [a for a in args if a != "--debug"]
    try:
        if words in (["--help"], ["-h"], ["--version"]):
            try:
                print(f"advisor {__version__}" if words == ["--version"] else help_text(), flush=True)
            except BrokenPipeError:
                raise
            except OSError as error:
                raise InputError(f"standard output: cannot be written ({error.strerror})") from error
            return 0
        if any(not word and before[:1] != "-" for before, word in pairwise(["", *words])):
            # Not the value of an option; as a path it would mean the current folder.
            raise InputError("an empty argument; is a variable of the shell unset?")
        from advisor.cli.diagnosis import run_plain

        if (code := run_plain(words)) is not None:
            return code
        from advisor.cli.app import run_verb

        return run_verb(words)
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        message("interrupted")
        return 130
    except Exception as error:
        if debug:
            raise
        return _failed(error)


#: Typer's messages about a command line, and ours for them; an empty suggestion is left out.
_PLAIN = {
    r"Invalid value for '(.+?)': Input should be a valid integer.*": r"\1: expected a whole number",
    r"Invalid value for '(.+?)': Input should be a valid number.*": r"\1: expected a number",
    r"Invalid value for '(.+?)': Input should be (greater|less) (.+)": r"\1: expected a number \2 \3",
    r"Invalid value for '.+?': path '(.+)' is not readable": r"\1: cannot be read (Permission denied)",
    r"No such option: (\S+)(?: \(Possible options: (.+)\))?": r"unknown option \1; did you mean \2?",
    r"No such command '(.+?)'(?:\. Did you mean '(.+)')?": r"'\1' is not a verb; did you mean '\2'?",
    r"Missing (?:argument|option) '(.+?)'": r"\1 is missing",
    r"Option '(.+?)' requires an argument": r"\1: expected a value",
    r"Got unexpected extra argument(?:s|\(s\))? \((.+)\)": r"too many arguments: \1",
}


def _plain(text: str) -> str:
    """The error of a command line in plain words."""
    for pattern, words in _PLAIN.items():
        if found := re.fullmatch(pattern, text, re.DOTALL):
            return re.sub("; did you mean '?'?[?]$", "", found.expand(words))
    return text


#: A bug of ours (EX_SOFTWARE of sysexits.h), so that it is not mistaken for bad input.
INTERNAL = 70


def _failed(error: Exception) -> int:
    """One line on what happened; exit code 2, or 70 for a bug."""
    if isinstance(error, AdvisorError) and not isinstance(error, InputError):
        # Rule files: one line a problem, each starting with its file and line, as editors like it.
        lines = str(error).splitlines() or [""]
        head = lines.pop(0) if len(lines) == 1 else f"{len(lines)} problems"
        message("\n".join([f"error: {head}", *lines]))
        return 2
    if isinstance(error, InputError):
        text = str(error)
    elif hasattr(error, "format_message"):
        # A wrong option or argument, as typer (or the click below it) reports it.
        ctx = getattr(error, "ctx", None)
        path = ctx.command_path if ctx is not None else "advisor"
        text = f"{_plain(error.format_message().rstrip('.?'))} (see '{path} --help')"
    elif isinstance(error, OSError) and error.strerror:
        # Without a name it comes from getcwd.
        name = error.filename or ("current folder" if isinstance(error, FileNotFoundError) else "")
        text = f"{name}: {error.strerror}" if name else error.strerror
    else:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        message(f"error: internal error: {text}; please report it; rerun with --debug")
        return INTERNAL
    message(f"error: {'?'.join(text.splitlines())}")  # names of files may hold line breaks
    return 2


class _Terminated(BaseException):
    """A process sent SIGTERM, or the terminal went away; the argument is the number of the signal."""


def _terminate(number: int, _frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # once is enough: the rest is cleaning up
    raise _Terminated(number)


def run() -> None:
    """Console script."""
    # A command leaves few reference cycles, and collecting them takes an eighth of a short one.
    gc.disable()
    from advisor import malloc

    malloc.keep()
    _open_streams()
    # A job that is cancelled must not leave unpacked captures and workers behind.
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, _terminate)
    for stream in (sys.stdout, sys.stderr):
        # A kernel name must not crash the report on a terminal that cannot show it.
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        code = main(sys.argv[1:])
    except _Terminated as sent:
        message("terminated")
        code = 128 + int(sent.args[0])
    finally:
        _close_streams()
    threads = sys.modules.get("threading")
    if threads is None or threads.active_count() == 1:
        # Python would collect garbage once more and tear down all modules, a fifth of the time of a short
        # command.
        atexit._run_exitfuncs()
        os._exit(code)
    gc.freeze()  # without the collection, at least
    sys.exit(code)


def _open_streams() -> None:
    """Replace streams that the shell closed (`>&-`), before a file is opened under their number: output
    cannot be written then, which is an error; messages are dropped."""
    for number, name, mode in ((1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, mode), number)
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        # PYTHONUNBUFFERED: output that a full disk rejects would be lost without an error.
        sys.stdout = open(1, "w", encoding=sys.stdout.encoding, closefd=False)  # noqa: SIM115


def _close_streams() -> None:
    """Flush now: a closed pipe or a full disk must not cause a message or another exit code at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
