"""The hosted workflow runs `.ci/run` on every supported Python, with a lock that fits pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def loaded(name: str) -> Any:
    return yaml.load((ROOT / ".github" / name).read_text(encoding="utf-8"), yaml.BaseLoader)


def project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_workflow_runs_everything_on_every_python() -> None:
    flow = loaded("workflows/ci.yml")
    assert {"push", "pull_request", "schedule"} <= set(flow["on"])
    assert flow["permissions"] == {"contents": "read"}
    job = flow["jobs"]["check"]
    named = [c.rpartition(" :: ")[2] for c in project()["classifiers"] if "Python :: 3." in c]
    assert job["strategy"]["matrix"]["python"] == named == ["3.11", "3.12", "3.13"]
    assert job["strategy"]["fail-fast"] == "false"
    assert int(job["timeout-minutes"]) <= 30
    runs = [step["run"] for step in job["steps"] if "run" in step]
    assert ".ci/run" in runs
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100
    for step in (step for job in flow["jobs"].values() for step in job["steps"]):
        assert ("uses" in step) != ("run" in step)
        assert re.fullmatch(r"actions/[a-z-]+@v\d+", step.get("uses", "actions/x@v1"))


def test_known_vulnerabilities_are_looked_up_for_what_is_locked() -> None:
    *_, last = loaded("workflows/ci.yml")["jobs"]["audit"]["steps"]
    assert last["run"].startswith("pipx run pip-audit")
    assert last["run"].endswith("-r .ci/constraints.txt")


def test_updates_are_proposed_for_python_and_for_actions() -> None:
    updates = loaded("dependabot.yml")["updates"]
    assert {u["package-ecosystem"] for u in updates} == {"pip", "github-actions"}
    for update in updates:
        for folder in update.get("directories", [update.get("directory")]):
            assert (ROOT / folder.strip("/")).is_dir()


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_the_lock_fits_what_is_asked_for(python: str) -> None:
    here = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    lines = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    locked: dict[str, str] = {}
    for line in (x for x in lines if x and not x.startswith("#")):
        entry = Requirement(line)
        if entry.marker is None or entry.marker.evaluate(here):
            assert canonicalize_name(entry.name) not in locked, line
            (pin,) = entry.specifier
            assert pin.operator == "=="
            locked[canonicalize_name(entry.name)] = pin.version
    asked = [Requirement(d) for d in (*project()["dependencies"], *project()["optional-dependencies"]["dev"])]
    wanted = [r for r in asked if r.marker is None or r.marker.evaluate(here)]
    wrong = [str(r) for r in wanted if locked.get(canonicalize_name(r.name), "0") not in r.specifier]
    assert wrong == []
    assert ("durable-rules" in locked) == (python != "3.13")
