"""The two errors that reach a user as one line; everything else is a bug."""

from __future__ import annotations

from collections.abc import Iterable


class AdvisorError(Exception):
    """Something the user can fix: what happened, to which object, what to do (exit code 2)."""

    exit_code = 2


class InputError(AdvisorError):
    """The capture, or the question about it, cannot be used as it is."""


class RuleError(AdvisorError):
    """One or more rule files are wrong; the message holds one line a problem."""


def near(name: str, known: Iterable[str]) -> str:
    """The known name that is most like an unknown one, else all of them, for the end of a message."""
    from difflib import get_close_matches  # few runs need it

    names = list(known)
    found = get_close_matches(name, names, 1)
    return f"did you mean '{found[0]}'?" if found else f"expected one of {', '.join(names)}"


def invalid_choice(where: str, value: object, choices: Iterable[str]) -> InputError:
    """The error for a value that is not among its choices."""
    return InputError(f"{where}: invalid value '{value}'; expected one of {', '.join(choices)}")
