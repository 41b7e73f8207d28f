"""Texts name what their shares are of: of the step where there are steps, else of the window."""

from __future__ import annotations

import re

import pytest

from advisor.engine.lint_names import templates
from advisor.engine.values import Placeholder, Shown, render
from advisor.facts.catalog import CATALOGUE
from advisor.knowledge.verb_files import checklist_items
from tests.shipped import shipped_rules

_OF_A_WHOLE = re.compile(r"\{([a-z0-9_.]+)\|pct\}\s+of\s+(?:the|its)\s+(?:window|step)\b")
_SHARE = re.compile(r"\{([a-z0-9_.]+)\|share\}")
#: Facts that exist only with steps.
_OF_STEPS = {"graph.replaying_step_ratio", "host.preparation_ratio", "host.data_loading_ratio"}


def _texts() -> list[tuple[str, str]]:
    rules = [(rule.code, text) for rule in shipped_rules().active for _, text in templates(rule)]
    return rules + [(item.id, text) for item in checklist_items().items for text in item.say]


def _of_the_window(name: str) -> bool:
    """Whether a fact is of the whole window, the profiler's time in it."""
    return "the window" in CATALOGUE[name].meaning.replace("the window less the profiler", "")


def test_a_share_of_the_window_less_the_profiler_says_so() -> None:
    for where, text in _texts():
        for name in _OF_A_WHOLE.findall(text):
            assert _of_the_window(name) or name in _OF_STEPS, f"{where}: write {{{name}|share}}"
        for name in _SHARE.findall(text):
            assert not _of_the_window(name), f"{where}: {name} is of the window"
            assert CATALOGUE[name].unit == "ratio", f"{where}: {name} is no ratio"


@pytest.mark.parametrize(("steps", "whole"), [(12.0, "step"), (0.0, "window"), (None, "window")])
def test_a_share_names_its_whole(steps: float | None, whole: str) -> None:
    def shown(_: Placeholder) -> Shown:
        return Shown(0.25, "ratio")

    assert (
        render("The device waits {launch.idle_ratio|share}.", shown, steps)
        == f"The device waits 25 % of the {whole}."
    )
    assert render("[[{launch.idle_ratio|share}]]", lambda _: Shown(0.0, "ratio"), steps) == ""
