"""Entry point: one command line, its errors in one line each, exit codes."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NoReturn

import click

from advisor import process
from advisor.cli import completion, messages
from advisor.cli.app import app
from advisor.cli.messages import message
from advisor.errors import INTERRUPTED, AdvisorError, InputError
from advisor.reading import READING


def main(args: Sequence[str]) -> int:
    """Run one command line; returns the exit code, prints every error as one line."""
    # Removed here, so that it works at any place of any verb.
    own = list(args)[: args.index("--")] if "--" in args else list(args)
    messages.debug = debug = "--debug" in own
    words = [*(a for a in own if a != "--debug"), *args[len(own) :]]
    try:
        return _run(words)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.ctx.get_help(), file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        message("interrupted")
        return INTERRUPTED
    except Exception as error:
        if debug:
            raise
        return _failed(error)


def _run(words: Sequence[str]) -> int:
    if (code := completion.answer(app)) is not None:
        return code
    own = words[: [*words, "--"].index("--")]  # the rest is another program's command line
    if any(not word and before[:1] != "-" for before, word in pairwise(["", *own])):
        # Not the value of an option; as a path it would mean the current folder.
        raise InputError("an empty argument; is a variable of the shell unset?")
    with app.make_context("advisor", list(words)) as ctx:
        result = app.invoke(ctx)
    sys.stdout.flush()
    return result if isinstance(result, int) else 0


def _usage(error: click.UsageError) -> str:
    """A wrong command line in our words."""
    match error:
        case click.NoSuchOption():
            near = f"; did you mean {', '.join(error.possibilities)}?" if error.possibilities else ""
            return f"unknown option {error.option_name}{near}"
        case click.BadOptionUsage():
            known = error.ctx.command.params if error.ctx is not None else []
            option = next((p for p in known if error.option_name in p.opts), None)
            if not isinstance(option, click.Option) or option.is_flag:
                return f"{error.option_name} takes no value"
            values = "a value" if option.nargs == 1 else f"{option.nargs} values"
            return f"{error.option_name}: expected {values}"
        case click.MissingParameter():
            return f"{_name(error)} is missing"
        case click.BadParameter():
            return f"{_name(error)}: {error.message}"
    return error.message


def _name(error: click.BadParameter) -> str:
    """The option or argument, as it is typed."""
    param = error.param
    assert param is not None
    return param.opts[0] if isinstance(param, click.Option) else param.human_readable_name


#: The system refused memory, or a limit of it is reached (ulimit -v, a container).
_NO_MEMORY = (
    "not enough memory for {what}; give a shorter capture, raise the limit of memory, "
    "or use a machine that has more"
)
#: Messages are cut in their middle beyond this length: arguments and names may have 100 KB.
_LONGEST = 2_000
#: A bug of ours (EX_SOFTWARE of sysexits.h), so that it is not mistaken for bad input.
INTERNAL = 70


def _failed(error: Exception) -> int:
    """One line on what happened; exit code 2, or 70 for a bug."""
    if isinstance(error, AdvisorError) and not isinstance(error, InputError):
        # Rule files: one line a problem, each starting with its file and line, as editors like it.
        lines = [*map(_short, str(error).splitlines())] or [""]
        head = lines.pop(0) if len(lines) == 1 else f"{len(lines)} problems"
        message("\n".join([f"error: {head}", *lines]))
        return 2
    if isinstance(error, MemoryError):
        text = _NO_MEMORY.format(what=READING.path or "what was read")
    elif isinstance(error, InputError):
        text = str(error)
    elif isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx is not None else "advisor"
        text = f"{_usage(error)} (see '{path} --help')"
    elif isinstance(error, PermissionError) and error.filename:
        text = f"{error.filename}: {error.strerror}; look at its rights: ls -ld {error.filename}"
    elif isinstance(error, OSError) and error.strerror:
        # Without a name it comes from getcwd.
        name = error.filename or ("current folder" if isinstance(error, FileNotFoundError) else "")
        text = f"{name}: {error.strerror}" if name else error.strerror
    else:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        message(f"error: internal error: {text}; please report it; rerun with --debug")
        return INTERNAL
    message(f"error: {_short('?'.join(text.splitlines()))}")  # names of files may hold line breaks
    return error.exit_code if isinstance(error, AdvisorError) else 2


def _short(text: str) -> str:
    cut = len(text) - _LONGEST
    return text if cut <= 0 else f"{text[: _LONGEST // 2]} [{cut:,} characters] {text[-_LONGEST // 2 :]}"


class _Terminated(BaseException):
    """A process sent SIGTERM, or the terminal went away; the argument is the number of the signal."""


def _terminate(number: int, _frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # once is enough: the rest is cleaning up
    raise _Terminated(number)


def run() -> None:
    """Console script."""
    process.set_up()
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
