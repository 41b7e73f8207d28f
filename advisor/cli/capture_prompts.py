"""The questions of `advisor capture` at a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, cast

from advisor.checklist.prompts import BACK, choose, need_terminal, write
from advisor.cli.deliver import show
from advisor.knowledge.capture import Phase, capture_goals
from advisor.knowledge.files import engines
from advisor.model.capture_plan import TroubleNode, Troubles
from advisor.model.options import PlanRequest
from advisor.reports.checkup import node

#: The request with the answer in it, "back", or None if there is nothing to ask.
Asked = PlanRequest | Literal["back"] | None
Question = Callable[[PlanRequest], Asked]


def ask_request(given: dict[str, Any], command: tuple[str, ...]) -> PlanRequest:
    """Ask for the goal and for everything else that was not given."""
    need_terminal(f"name a goal: {', '.join(g.id for g in capture_goals().goals)}")
    asked = PlanRequest(goal="", command=command, **given)
    before: list[tuple[int, PlanRequest]] = []
    at = 0
    while at < len(QUESTIONS):
        answer = QUESTIONS[at](asked)
        if isinstance(answer, str):
            at, asked = before.pop()
            continue
        if answer is not None:
            before.append((at, asked))
            asked = answer
        at += 1
    return asked


def _goal(asked: PlanRequest) -> Asked:
    goals = [(g.id, f"{g.title}: {g.question}", None) for g in capture_goals().goals]
    return replace(asked, goal=choose("What is to be found out?", goals, first=True))


def _engine(asked: PlanRequest) -> Asked:
    if asked.engine is not None:
        return None
    named = [(e, engines()[e].title, None) for e in capture_goals().engine_names()]
    engine = choose("Which serving engine?", [*named, ("any", "another one", None)])
    return BACK if engine == BACK else replace(asked, engine=None if engine == "any" else engine)


def _phase(asked: PlanRequest) -> Asked:
    data = capture_goals()
    if asked.phase is not None or not next(g for g in data.goals if g.id == asked.goal).phases:
        return None
    shapes = [(p, f"{p}: {s.prompt} prompt tokens, {s.output} output", None) for p, s in data.shapes.items()]
    phase = choose("Which phase?", [("both", "both, one capture each", None), *shapes])
    if phase == BACK:
        return BACK
    return replace(asked, phase=None if phase == "both" else cast(Phase, phase))


def _place(asked: PlanRequest) -> Asked:
    if asked.place != "bare":
        return None
    place = choose("Where does it run?", [(p.id, p.title, None) for p in capture_goals().places])
    return BACK if place == BACK else replace(asked, place=place)


def _ranks(asked: PlanRequest) -> Asked:
    if not next(p for p in capture_goals().places if p.id == asked.place).ranks:
        return None
    answer = write("How many ranks?", str(asked.ranks), valid=_whole)
    return BACK if answer == BACK else replace(asked, ranks=int(answer))


def _command(asked: PlanRequest) -> Asked:
    if asked.command:
        return None
    answer = write("Your command", empty="an example", valid=_words)
    return BACK if answer == BACK else replace(asked, command=tuple(shlex.split(answer)))


QUESTIONS: tuple[Question, ...] = (_goal, _engine, _phase, _place, _ranks, _command)


def _whole(text: str) -> bool | str:
    return (text.isdigit() and int(text) > 0) or "a whole number, 1 or more"


def _words(text: str) -> bool | str:
    try:
        shlex.split(text)
    except ValueError as fault:
        return f"cannot be read: {fault}"
    return True


def walk(tree: Troubles) -> None:
    """From the symptom to the remedy, one question at a time."""
    nodes = {n.id: n for n in tree.nodes}
    symptoms = [(s, nodes[s].symptom or s, None) for s in tree.symptoms]
    path: list[TroubleNode] = []
    while True:
        if not path:
            path = [nodes[choose(tree.ask, symptoms, first=True)]]
        at = path[-1]
        show(node(at))
        if not at.answers:
            return
        picked = choose(at.ask or "", [(str(i), a.text, None) for i, a in enumerate(at.answers)])
        if picked == BACK:
            path.pop()
        else:
            path.append(nodes[at.answers[int(picked)].then])
