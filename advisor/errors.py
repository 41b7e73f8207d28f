"""The errors that reach a user as one line; everything else is a bug."""

from __future__ import annotations

from collections.abc import Iterable

#: The exit code after Ctrl-C, as shells report it.
INTERRUPTED = 130


class AdvisorError(Exception):
    """Something the user can fix: what happened, to which object, what to do (exit code 2)."""

    exit_code = 2


class InputError(AdvisorError):
    """The capture, or the question about it, cannot be used as it is."""


class OtherTimeError(InputError):
    """A log and samples, of which each can be used, but which are not of one time."""


class RuleError(AdvisorError):
    """One or more rule files are wrong; the message holds one line a problem."""


def one_line(text: str) -> str:
    """The text on one line: names of files may hold line breaks."""
    return "?".join(text.splitlines())


def near(
    name: str, known: Iterable[str], otherwise: str | None = None, *, most: int = 1, cutoff: float = 0.6
) -> str:
    """The known names that are most like an unknown one, for the end of a message; where none is,
    `otherwise`, or all of them if that is None. The cutoff of likeness is that of `difflib`."""
    from difflib import get_close_matches  # few runs need it

    names = list(known)
    found = [f"'{n}'" for n in get_close_matches(name, names, most, cutoff)]
    if found:
        return f"did you mean {' or '.join(found)}?"
    return f"expected one of {', '.join(names)}" if otherwise is None else otherwise


def invalid_choice(where: str, value: object, choices: Iterable[str]) -> InputError:
    """The error for a value that is not among its choices."""
    return InputError(f"{where}: invalid value '{value}'; expected one of {', '.join(choices)}")
