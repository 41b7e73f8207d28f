"""The ready GitHub Action and its script: well formed, and they do what their page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from advisor.pipeline.diagnose import diagnose
from advisor.reports import json_report
from tests.captures import committed

CI = Path(__file__).resolve().parents[1] / "examples" / "ci"
REPORTS = {"advisor.md", "advisor.html", "advisor.json", "advisor.sarif", "advisor.xml"}
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")


def loaded(name: str) -> Any:
    return yaml.safe_load((CI / name).read_text(encoding="utf-8"))


#: What stands for `advisor`: this checkout's, or a note of how it was called.
REAL = f'exec "{sys.executable}" -m advisor "$@"'
NOTED = 'echo "$*" >> calls; touch advisor-report/advisor.md'


def run(folder: Path, command: str = REAL, **variables: str) -> subprocess.CompletedProcess[str]:
    """diagnose.sh with a command that stands for `advisor`."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "advisor").write_text(f"#!/bin/sh\n{command}\n")
    (tools / "advisor").chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GITHUB_")}
    return subprocess.run(
        ["bash", str(CI / "diagnose.sh")],
        cwd=folder,
        env={**kept, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(CI.parents[1]), **variables},
        capture_output=True,
        check=False,
        text=True,
    )


def test_the_action_is_well_formed() -> None:
    action = loaded("action.yml")
    assert action["runs"]["using"] == "composite"
    steps = action["runs"]["steps"]
    assert all(step["shell"] == "bash" for step in steps if "run" in step)
    # Inputs reach commands as variables only.
    assert not any("${{" in step.get("run", "") for step in steps)
    used = set(re.findall(r"inputs\.([\w-]+)", (CI / "action.yml").read_text(encoding="utf-8")))
    assert used == set(action["inputs"])
    script = (CI / "diagnose.sh").read_text(encoding="utf-8")
    for name in steps[-1]["env"]:
        assert name in script
    for output in action["outputs"].values():
        assert Path(output["value"]).name in REPORTS


def test_the_workflow_uses_what_the_action_has() -> None:
    workflow, action = loaded("pre-merge.yml"), loaded("action.yml")
    steps = [s for job in workflow["jobs"].values() for s in job["steps"]]
    mine = next(s for s in steps if str(s.get("uses", "")).endswith("/advisor"))
    assert set(mine["with"]) <= set(action["inputs"])
    text = (CI / "pre-merge.yml").read_text(encoding="utf-8")
    outputs = set(re.findall(r"steps\.advisor\.outputs\.(\w+)", text))
    assert outputs <= set(action["outputs"])


@needs_bash
@pytest.mark.parametrize(
    ("place", "given", "asked"),
    [
        ("repository/examples/ci", "", "ACTION/../.."),
        ("repository/examples/ci", "git+https://host/advisor", "git+https://host/advisor"),
        ("copy/.github/actions/advisor", "../advisor", "../advisor"),
        ("copy/.github/actions/advisor", "", None),
    ],
)
def test_what_the_action_installs(place: str, given: str, asked: str | None, tmp_path: Path) -> None:
    """The repository that the action is used from, or what the user names; never a project of the
    package index."""
    action = tmp_path / place
    action.mkdir(parents=True)
    (tmp_path / "repository").mkdir(exist_ok=True)
    shutil.copy(CI.parents[1] / "pyproject.toml", tmp_path / "repository")
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(
        ["bash", "-e", "-c", loaded("action.yml")["runs"]["steps"][0]["run"]],
        env={"PATH": f"{python.parent}:/usr/bin:/bin", "PACKAGE": given, "GITHUB_ACTION_PATH": str(action)},
        capture_output=True,
        check=False,
        text=True,
    )
    if asked is None:
        assert (done.returncode, done.stdout[:9]) == (2, "::error::")
    else:
        package = asked.replace("ACTION", str(action))
        assert done.stdout == f"-m pip install --quiet {package}\n"


@needs_bash
@pytest.mark.parametrize(
    ("variables", "compared", "gate"),
    [
        ({"BASELINE": "base.json"}, "--baseline=base.json", ""),
        ({"BASELINE": "main"}, "--baseline=main", ""),  # a name that `advisor baseline save` gave
        ({"BASELINE": "absent"}, "", ""),
        ({"BASELINE": "main", "FAIL_ON": "high"}, "--baseline=main", "--fail-on=high --fail-on-new"),
        ({"BASELINE": "main", "FAIL_ON": "high", "ONLY_NEW": "false"}, "--baseline=main", "--fail-on=high"),
        ({"FAIL_ON": "low"}, "", "--fail-on=low"),
    ],
)
def test_what_is_compared_and_what_decides(
    variables: dict[str, str], compared: str, gate: str, tmp_path: Path
) -> None:
    (tmp_path / "base.json").touch()
    (tmp_path / ".advisor").mkdir()
    (tmp_path / ".advisor" / "main.json").touch()
    done = run(tmp_path, NOTED, CAPTURES="a.sqlite\nb.sqlite", **variables)
    assert done.returncode == 0
    assert ("no baseline at absent" in done.stderr) == (variables.get("BASELINE") == "absent")
    read, sarif, page, junit, last = (tmp_path / "calls").read_text().splitlines()
    assert read == "diagnose a.sqlite b.sqlite --format json -o advisor-report/advisor.json --force"
    shown = " ".join(filter(None, ("diagnose advisor-report/advisor.json", compared)))
    assert sarif.startswith("diagnose advisor-report/advisor.json --format sarif ")
    assert page.startswith(f"{shown} --format markdown ")
    assert junit.startswith(f"{shown} --format junit ")
    assert last == " ".join(filter(None, (shown, "--format text --quiet", gate)))


@pytest.mark.slow
@needs_bash
def test_on_github(tmp_path: Path) -> None:
    capture = committed("decode_gc")
    summary = tmp_path / "summary.md"
    baseline = tmp_path / "old.json"
    empty = diagnose(capture).replaced(findings=())
    baseline.write_bytes(json_report.render([empty]))
    done = run(
        tmp_path,
        CAPTURES=f"{capture}\n\n",
        BASELINE=str(baseline),
        FAIL_ON="medium",
        OPTIONS="--ignore=CAP\n--serving-engine=vllm\n",
        OUTPUT="out put",
        GITHUB_ACTIONS="true",
        GITHUB_STEP_SUMMARY=str(summary),
    )
    assert done.returncode == 1, done.stderr
    assert "::error title=new%3A HST102 python-gc" in done.stdout
    assert "CAP1" not in done.stdout
    assert summary.read_text(encoding="utf-8").startswith("## ")
    assert {p.name for p in (tmp_path / "out put").iterdir()} == REPORTS


@needs_bash
def test_what_cannot_run(tmp_path: Path) -> None:
    assert run(tmp_path, CAPTURES="absent.sqlite").returncode == 2
    assert run(tmp_path).returncode == 1
