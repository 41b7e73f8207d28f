"""`--select` and `--ignore`: what is shown of a diagnosis, never what is inferred."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from typing import Protocol, TypeVar

from advisor.errors import InputError
from advisor.model.findings import Diagnosis


class _Coded(Protocol):
    @property
    def code(self) -> str: ...


T = TypeVar("T", bound=_Coded)


def select(diagnosis: Diagnosis, selected: Sequence[str], ignored: Sequence[str]) -> Diagnosis:
    """The diagnosis with only the selected codes, without the ignored ones.

    A code is exact (``SYN101``) or a prefix (``SYN``). Ranks, verdict and facts stay as inferred.
    """
    wanted, unwanted = codes(selected), codes(ignored)
    if not wanted and not unwanted:
        return diagnosis

    def keep(items: Iterable[T]) -> tuple[T, ...]:
        return tuple(
            i for i in items if (not wanted or i.code.startswith(wanted)) and not i.code.startswith(unwanted)
        )

    baseline = diagnosis.baseline
    if baseline is not None:
        kept = keep(diagnosis.findings)
        new = sum(f.baseline == "new" for f in kept)
        baseline = baseline.model_copy(
            update={"gone": keep(baseline.gone), "new": new, "known": len(kept) - new}
        )
    return diagnosis.model_copy(
        update={
            "baseline": baseline,
            "findings": keep(diagnosis.findings),
            "overruled": keep(diagnosis.overruled),
            "healthy": keep(diagnosis.healthy),
            "not_evaluated": keep(diagnosis.not_evaluated),
        }
    )


def codes(given: Sequence[str]) -> tuple[str, ...]:
    """Codes or prefixes from ``A,B C`` lists, in capitals."""
    return tuple(c.upper() for text in given for c in text.replace(",", " ").split())


def check_codes(given: Sequence[str], known: Collection[str], option: str) -> None:
    """Raise for a code or prefix that no known rule has."""
    for code in codes(given):
        if not any(k.startswith(code) for k in known):
            near = get_close_matches(code, sorted(known), 3, 0.5)
            hint = f"did you mean {', '.join(near)}?" if near else "see 'advisor rules list'"
            raise InputError(f"{option}: no rule has the code {code}; {hint}")
