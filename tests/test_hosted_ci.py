"""The hosted workflow runs `.ci/run` on every supported Python, with a lock that fits pyproject.toml."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.docs.scripts import script

ROOT = Path(__file__).resolve().parents[1]


def loaded(name: str) -> Any:
    return yaml.load((ROOT / ".github" / name).read_text(encoding="utf-8"), yaml.BaseLoader)


def test_the_site_is_built_and_published() -> None:
    flow = loaded("workflows/pages.yml")
    job = flow["jobs"]["site"]
    assert flow["permissions"] == {"contents": "read"}
    assert job["permissions"] == {"contents": "read", "pages": "write", "id-token": "write"}
    assert "python docs/website.py site" in [step.get("run") for step in job["steps"]]
    kept = next(s for s in job["steps"] if "upload-pages" in s.get("uses", ""))
    assert kept["with"]["path"] == "site"


def pyproject(table: str) -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[table]


def project() -> Any:
    return pyproject("project")


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


WORKFLOWS = sorted(
    [*(ROOT / ".github" / "workflows").glob("*.yml"), *(ROOT / "examples" / "ci").glob("*.yml")]
)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_of_others_are_named_by_commit(path: Path) -> None:
    """A tag can be moved to other code. The release stands behind it, where dependabot updates both; one
    action has one commit everywhere."""
    lines = re.findall(r"^ *(?:- )?uses: (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert lines or path.name == "action.yml"
    for line in lines:
        assert line.startswith("./") or re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)


def test_one_action_has_one_commit() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    found = set(re.findall(r"uses: ([\w-]+/[\w-]+)\S*@(.*)", texts))
    assert len(found) == len({name for name, _ in found})


def test_known_vulnerabilities_are_looked_up_for_what_is_locked() -> None:
    *_, last = loaded("workflows/ci.yml")["jobs"]["audit"]["steps"]
    assert last["run"] == "python .ci/audit.py"
    assert re.search(
        r"^audit\(\).* \.ci/audit\.py .*^start audit$.*^finish audit$", (ROOT / ".ci/run").read_text(), FLAGS
    )


def test_the_knowledge_is_held_against_new_releases_once_a_month() -> None:
    flow = loaded("workflows/knowledge.yml")
    ((minute, hour, day, month, weekday),) = [s["cron"].split() for s in flow["on"]["schedule"]]
    assert all(part.isdigit() for part in (minute, hour, day))
    assert (month, weekday) == ("*", "*")
    assert flow["permissions"] == {"contents": "read", "issues": "write"}
    steps = flow["jobs"]["newest"]["steps"]
    (check,) = [s for s in steps if s.get("id") == "check"]
    assert (ROOT / "benchmarks" / "newest.py").is_file()
    assert check["run"].startswith("python benchmarks/newest.py ")
    assert check["continue-on-error"] == "true"
    last = steps[-1]
    assert last["if"] == "steps.check.outcome == 'failure'"
    report = re.search(r'-o ("\S+")', check["run"])
    assert report
    assert f"--body-file {report[1]}" in last["run"]


FLAGS = re.MULTILINE | re.DOTALL
SOUND = {"name": "numpy", "version": "1", "vulns": []}
WEAK = {"name": "pip", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "zipp", "skip_reason": "zipp (4.1.2) was not found"}


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        ([SOUND, UNKNOWN], 0, "0 known vulnerabilities in 1 of 2 releases looked up"),
        ([SOUND, WEAK], 1, "pip 2: CVE-1, mended in 3\n1 known vulnerabilities"),
        ([UNKNOWN, UNKNOWN], 0, "not audited: zipp (4.1.2) was not found"),
    ],
)
def test_an_index_that_knows_nothing_is_no_clean_bill(found: list[Any], code: int, said: str) -> None:
    given, text = script(".ci/audit.py").verdict({"dependencies": found})
    assert given == code
    assert text.startswith(said)


@pytest.mark.parametrize(
    ("does", "why"), [("raise SystemExit(1)", "printed nothing"), ("1/0", "ZeroDivisionError")]
)
def test_without_an_index_the_reason_is_told(
    does: str, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    audit = script(".ci/audit.py")
    real = subprocess.run
    monkeypatch.setattr(
        audit.venv, "create", lambda folder, **_: (folder / "bin").mkdir() or (folder / "bin/python").touch()
    )
    monkeypatch.setattr(audit.subprocess, "run", lambda _, **how: real([sys.executable, "-c", does], **how))
    assert audit.main() == 0
    said = capsys.readouterr().out
    assert said.startswith("not audited: ")
    assert why in said


def test_updates_are_proposed_for_python_and_for_actions() -> None:
    updates = loaded("dependabot.yml")["updates"]
    assert {u["package-ecosystem"] for u in updates} == {"pip", "github-actions"}
    for update in updates:
        for folder in update.get("directories", [update.get("directory")]):
            assert (ROOT / folder.strip("/")).is_dir()


def entries(lock: str) -> list[tuple[Requirement, list[str]]]:
    """What a lock holds: each release with the hashes of its files."""
    text = (ROOT / ".ci" / lock).read_text(encoding="utf-8")
    logical = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", "").splitlines()
    split = (re.split(r"\s+--hash=", line.strip()) for line in logical)
    return [(Requirement(head), hashes) for head, *hashes in split]


@pytest.mark.parametrize("lock", ["lock.txt", "lock-no-compiler.txt", "lock-audit.txt"])
def test_each_release_of_a_lock_has_hashes(lock: str) -> None:
    for entry, hashes in entries(lock):
        assert hashes, entry
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", h) for h in hashes), entry


def test_both_locks_hold_the_same_releases() -> None:
    full = {(entry.name, entry.specifier) for entry, _ in entries("lock.txt")}
    assert {(entry.name, entry.specifier) for entry, _ in entries("lock-no-compiler.txt")} <= full


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_the_lock_fits_what_is_asked_for(python: str) -> None:
    here = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    locked: dict[str, str] = {}
    for entry, _ in entries("lock.txt"):
        if entry.marker is None or entry.marker.evaluate(here):
            assert canonicalize_name(entry.name) not in locked, entry
            (pin,) = entry.specifier
            assert pin.operator == "=="
            locked[canonicalize_name(entry.name)] = pin.version
    dev = project()["optional-dependencies"]["dev"]
    asked = [
        Requirement(r) for r in (*project()["dependencies"], *dev, *pyproject("build-system")["requires"])
    ]
    wanted = [r for r in asked if r.marker is None or r.marker.evaluate(here)]
    wrong = [str(r) for r in wanted if locked.get(canonicalize_name(r.name), "0") not in r.specifier]
    assert wrong == []
    assert ("durable-rules" in locked) == (python != "3.13")
