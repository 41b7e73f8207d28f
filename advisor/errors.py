"""The two errors that reach a user as one line; everything else is a bug."""

from __future__ import annotations


class AdvisorError(Exception):
    """Something the user can mend: what happened, to which object, what to do (exit code 2)."""

    exit_code = 2


class InputError(AdvisorError):
    """The capture, or the question asked of it, cannot be used as it is."""


class RuleError(AdvisorError):
    """One or more rule files are wrong; the message holds one line a problem."""
