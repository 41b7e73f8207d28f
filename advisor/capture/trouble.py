"""The troubleshooting tree as a document, whole or below one symptom."""

from __future__ import annotations

from difflib import get_close_matches

from advisor import __version__
from advisor.errors import InputError
from advisor.knowledge.capture import troubleshooting
from advisor.model.capture_plan import TroubleAnswer, TroubleNode, Troubles
from advisor.model.findings import Tool


def troubles(symptom: str | None = None) -> Troubles:
    """The tree; raises InputError for an unknown symptom."""
    data = troubleshooting()
    known = {n.id: n for n in data.nodes}
    symptoms = tuple(n.id for n in data.nodes if n.symptom is not None)
    if symptom is not None and symptom not in known:
        near = get_close_matches(symptom, symptoms, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(symptoms)}"
        raise InputError(f"no symptom '{symptom}'; {hint}")
    first = (symptom,) if symptom is not None else tuple(data.start.symptoms)
    wanted: list[str] = []
    left = list(first)
    while left:
        name = left.pop(0)
        if name not in wanted:
            wanted.append(name)
            left = [*(a.then for a in known[name].answers), *left]
    return Troubles(
        tool=Tool(version=__version__, engine="planner"),
        ask=data.start.ask,
        symptoms=first,
        nodes=tuple(
            TroubleNode(
                id=n.id,
                symptom=n.symptom,
                ask=n.ask,
                say=n.say,
                commands=tuple(n.commands),
                answers=tuple(TroubleAnswer(text=a.text, then=a.then) for a in n.answers),
            )
            for n in (known[name] for name in wanted)
        ),
    )
