"""Twelve processes that change one kept file at once: nothing is lost, and where only one can succeed the
others say so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from advisor.comparison import baseline
from advisor.errors import InputError
from advisor.knowledge.verb_files import checklist_items
from advisor.recording import store
from advisor.reports import json_report
from tests.at_once import at_once
from tests.reports.fixture import DIAGNOSIS

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forked")

WRITERS = range(12)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a saved diagnosis."""
    (tmp_path / "saved.json").write_bytes(json_report.render([DIAGNOSIS]))
    return tmp_path


def left(folder: Path) -> list[str]:
    """Files of locks and temporary ones that are still there."""
    return [p.name for p in folder.rglob(".*") if p.name not in (".advisor", ".gitignore")]


def test_every_review_is_recorded(folder: Path) -> None:
    done = at_once(folder, [("review", "record", "saved.json", "--names", f"P{i}") for i in WRITERS])
    assert [d.code for d in done] == [0] * 12, done
    history = baseline.read_history(folder / ".advisor")
    assert {m.names for m in history.meetings} == {(f"P{i}",) for i in WRITERS}
    assert len(history.meetings) == 12
    assert left(folder) == []


def test_every_suppression_is_kept_among_reviews(folder: Path) -> None:
    history = baseline.recorded(baseline.History(), DIAGNOSIS, "2026-11-22", ("First",))
    one = history.findings[0]
    codes = [f"XYZ{100 + i}" for i in WRITERS]
    many = tuple(one.replaced(finding=f"{code}@device=0", code=code) for code in codes)
    path = baseline.path_of(folder / ".advisor")
    path.parent.mkdir(parents=True)
    path.write_bytes(json_report.document_bytes(history.replaced(findings=many)))
    suppress = [
        ("review", "suppress", f"{code}@device=0", "--reason", f"of {code}", "--until", "2099-01-01")
        for code in codes
    ]
    records = [("review", "record", "saved.json", "--names", f"P{i}") for i in range(4)]
    done = at_once(folder, [*suppress, *records])
    assert {d.code for d in done} == {0}, done
    found = baseline.read_history(folder / ".advisor")
    reasons = {t.code: t.suppressed.reason for t in found.findings if t.suppressed is not None}
    assert reasons == {code: f"of {code}" for code in codes}
    assert len(found.meetings) == 5


def test_every_baseline_is_saved_in_a_folder_that_none_has_made(folder: Path) -> None:
    done = at_once(folder, [("baseline", "save", f"b{i}", "saved.json") for i in WRITERS])
    assert [d.code for d in done] == [0] * 12, done
    assert {p.name for p in (folder / ".advisor").iterdir()} == {f"b{i}.json" for i in WRITERS}


def test_of_baselines_of_one_name_one_is_saved_and_the_others_are_told(folder: Path) -> None:
    done = at_once(folder, [("baseline", "save", "one", "saved.json")] * 12)
    assert sorted(d.code for d in done) == [0] + [2] * 11, done
    assert all("one.json exists; add --force to replace it" in d.err for d in done if d.code)
    assert left(folder) == []


def test_every_answer_of_a_session_is_kept(folder: Path) -> None:
    ids = [item.id for item in checklist_items().items][:12]
    for name in ids:
        (folder / f"{name}.yaml").write_text(f"{name}: {{answer: no, note: by {name}}}\n")
    begin = [("checklist", "--session", "s", "--no-input")] * 12
    done = at_once(folder, begin)
    assert sorted(d.code for d in done) == [0] + [2] * 11, done
    assert all("add --resume to go on" in d.err for d in done if d.code)
    resume = ("checklist", "--resume", "--session", "s", "--no-input", "--answers")
    done = at_once(folder, [(*resume, f"{name}.yaml") for name in ids])
    assert [d.code for d in done] == [0] * 12, done
    saved = yaml.safe_load((folder / "s.checklist.yaml").read_text())["answers"]
    assert saved == {name: {"answer": "no", "note": f"by {name}"} for name in ids}
    assert left(folder) == []


#: Records a run with a capture, and drops captures of all but one while all twelve record.
RECORD = """
import os, time
from pathlib import Path
from advisor.model.run import Run
from advisor.pipeline.record import now
from advisor.recording import store

def all_are(what):
    Path(f"{what}-{os.getpid()}").touch()
    until = time.monotonic() + 300
    while len([*Path().glob(f"{what}-*")]) < 12:
        assert time.monotonic() < until
        time.sleep(0.01)

folder = Path(".advisor")
with store.new(folder, None) as made:
    store.save(made, Run(name=made.name, begun=now(), command=("serve",), goal="tail", recorder="nsys",
                         serving_engine="any", versions={}))
    (made / "capture.sqlite").write_bytes(b"x" * 100)
    all_are("recording")
    assert [*store.drop_captures(folder, 1)] == []
    all_are("dropped")
"""


def test_every_run_is_kept_and_none_that_records_loses_its_capture(folder: Path) -> None:
    done = at_once(folder, [("-c", RECORD)] * 12)
    assert [d.code for d in done] == [0] * 12, done
    kept = store.records(folder / ".advisor")
    assert {p.name for p in kept} == {f"run-{i + 1}" for i in WRITERS}
    assert None not in kept.values()
    assert all((p / "capture.sqlite").exists() for p in kept)
    assert len([*store.drop_captures(folder / ".advisor", 1)]) == 11
    assert left(folder) == []


def test_a_run_that_records_is_not_removed_and_a_killed_one_can_be(folder: Path) -> None:
    code = RECORD.replace('all_are("recording")', "print('begun', flush=True); time.sleep(600)")
    runs = folder / ".advisor"
    with subprocess.Popen([sys.executable, "-c", code], cwd=folder, stdout=subprocess.PIPE) as recording:
        assert recording.stdout is not None
        assert recording.stdout.readline() == b"begun\n"
        with pytest.raises(InputError, match="run-1: still being recorded or diagnosed; end that first"):
            store.remove(runs / "runs" / "run-1")
        recording.kill()
    with store.new(runs, None) as made:
        store.save(made, store.read(runs / "runs" / "run-1").replaced(begun="2999"))
    assert [(p.name, freed) for p, freed in store.drop_captures(runs, 1)] == [("run-1", 100)]
    store.remove(runs / "runs" / "run-1")
    assert [p.name for p in (runs / "runs").iterdir()] == ["run-2"]


def test_runs_of_one_name_are_told(folder: Path) -> None:
    code = (
        "from pathlib import Path; from advisor.recording import store\nwith store.new(Path('.'), 'a'): pass"
    )
    done = at_once(folder, [("-c", code)] * 12)
    assert sorted(d.code for d in done) == [0] + [99] * 11, done
    assert all("a run 'a' exists" in d.err for d in done if d.code)


def test_all_first_runs_share_one_key(folder: Path) -> None:
    code = (
        f"import os; os.environ['XDG_STATE_HOME'] = {str(folder / 'state')!r}\n"
        "from advisor.recording import seal; from pathlib import Path\n"
        "Path(f'key-{os.getpid()}').write_bytes(seal._made())"
    )
    done = at_once(folder, [("-c", code)] * 12)
    assert [d.code for d in done] == [0] * 12, done
    assert len({p.read_bytes() for p in folder.glob("key-*")}) == 1
    key = folder / "state" / "advisor" / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in key.parent.iterdir()] == ["key"]


def test_of_reports_in_one_file_one_is_written(folder: Path) -> None:
    done = at_once(folder, [("saved.json", "--format", "json", "-o", "report.json")] * 12)
    assert sorted(d.code for d in done) == [0] + [2] * 11, done
    assert all("report.json exists; add --force to replace it" in d.err for d in done if d.code)
    assert json.loads((folder / "report.json").read_text())["findings"]
