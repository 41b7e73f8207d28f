"""The questions of `advisor capture` at a terminal."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

from advisor.capture.request import PlanRequest
from advisor.checklist.prompts import need_terminal
from advisor.cli.deliver import show
from advisor.errors import InputError
from advisor.knowledge.capture import capture_goals
from advisor.knowledge.files import engines
from advisor.model.capture_plan import Troubles
from advisor.reports.plan import node


def ask_request(given: dict[str, Any], command: tuple[str, ...]) -> PlanRequest:
    """Ask for the goal and for whatever else was not given."""
    data = capture_goals()
    names = ", ".join(g.id for g in data.goals)
    need_terminal(f"name a goal: {names}")
    goal = _select("What is to be found out?", [(g.id, g.title, g.question) for g in data.goals])
    chosen = next(g for g in data.goals if g.id == goal)
    asked = PlanRequest(goal=goal, command=command, **given)
    if asked.engine is None:
        named = [(e, engines()[e].title, "") for e in data.engine_names()]
        engine = _select("Which serving engine?", [*named, ("any", "another one", "")])
        asked = replace(asked, engine=None if engine == "any" else engine)
    if asked.phase is None and chosen.phases:
        phase = _select(
            "Which phase?",
            [
                ("both", "both, one capture each", ""),
                *((p, p, f"{s.prompt} prompt tokens, {s.output} output") for p, s in data.shapes.items()),
            ],
        )
        asked = replace(asked, phase=None if phase == "both" else phase)  # type: ignore[arg-type]
    if asked.place == "bare":
        places = [(p.id, p.title, "") for p in data.places]
        asked = replace(asked, place=_select("Where does it run?", places))
    if next(p for p in data.places if p.id == asked.place).ranks:
        asked = replace(asked, ranks=_number("How many ranks?", asked.ranks))
    if not asked.command:
        asked = replace(asked, command=_command())
    return asked


def walk(tree: Troubles) -> None:
    """From the symptom to the remedy, one question at a time."""
    nodes = {n.id: n for n in tree.nodes}
    choices = [(s, nodes[s].symptom or s, "") for s in tree.symptoms]
    at = nodes[_select(tree.ask, choices)]
    while True:
        show(node(at))
        if not at.answers:
            return
        then = _select(at.ask or "", [(str(i), a.text, "") for i, a in enumerate(at.answers)])
        at = nodes[at.answers[int(then)].then]


def _select(question: str, choices: list[tuple[str, str, str]]) -> str:
    """The key of the choice that is picked; each has a key, a title and a word about it."""
    import questionary

    shown = [
        questionary.Choice(f"{title}: {about}" if about else title, value=key)
        for key, title, about in choices
    ]
    return str(questionary.select(question, choices=shown, use_shortcuts=True).unsafe_ask())


def _number(question: str, default: int) -> int:
    import questionary

    said = questionary.text(
        question,
        default=str(default),
        validate=lambda text: (text.isdigit() and int(text) > 0) or "a whole number, 1 or more",
    ).unsafe_ask()
    return int(said)


def _command() -> tuple[str, ...]:
    import questionary

    said = questionary.text("Your command", instruction="(Enter: an example) ").unsafe_ask()
    try:
        return tuple(shlex.split(str(said)))
    except ValueError as fault:
        raise InputError(f"the command cannot be read: {fault}") from fault
