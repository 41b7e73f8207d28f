"""docs/security.md: what is read, written and executed, as the interpreter's audit hooks see it."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import pytest

from advisor.engine.durable import MAX_CPU_S
from advisor.engine.load import MOST_RULES_BYTES
from advisor.reading import MOST_BYTES
from advisor.sources import packed
from tests.builder import Export
from tests.docs.scripts import ROOT

#: The command line, with what it opens, starts and connects to written to the file that is named first.
AUDITED = """
import json, os, sys

done, seen = sys.argv.pop(1), []
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "pty.spawn",
          "webbrowser.open", "ctypes.dlopen", "socket.connect", "socket.bind",
          "urllib.Request", "http.client.connect")

def hook(event, given):
    if event == "open" and isinstance(given[0], (str, bytes, os.PathLike)):
        written = (given[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        seen.append(("write" if written else "read", os.path.realpath(os.fsdecode(given[0]))))
    elif event in ("os.rename", "os.link"):
        seen.append(("write", os.path.realpath(os.fsdecode(given[1]))))
    elif event == "sqlite3.connect":
        seen.append(("database", os.fsdecode(given[0])))
    elif event.startswith(STARTS):
        seen.append((event, repr(given[1:] if event.startswith("socket") else given)))

sys.addaudithook(hook)
from advisor.cli.main import main

if __name__ == "__main__":
    code = main(sys.argv[1:])
    with open(done, "w") as file:
        json.dump(seen, file)
    sys.exit(code)
"""


class Seen(NamedTuple):
    """What a run did, by kind; files outside of the interpreter and the checkout alone."""

    read: set[str]
    written: set[str]
    databases: list[str]
    others: set[tuple[str, str]]


def audited(folder: Path, words: str) -> Seen:
    """A run in `folder/here`, with the temporary folder beside it."""
    (folder / "tmp").mkdir(exist_ok=True)
    env = {**os.environ, "TMPDIR": str(folder / "tmp")}
    env |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    script, log = folder / "audited.py", folder / "seen.json"
    script.write_text(AUDITED)
    command = [sys.executable, str(script), str(log), *words.split()]
    done = subprocess.run(
        command, cwd=folder / "here", env=env, capture_output=True, text=True, check=False, input=""
    )
    assert done.returncode == 0, done.stderr
    seen = [tuple(entry) for entry in json.loads(log.read_text())]
    own = {os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, ROOT, *sysconfig.get_paths().values())}
    own |= {"/dev", "/proc", "/etc", "/usr", str(script), str(log)}
    files = {
        kind: {
            path.removeprefix(f"{os.path.realpath(folder)}/")
            for what, path in seen
            if what == kind and not any(Path(path).is_relative_to(p) for p in own)
        }
        for kind in ("read", "write")
    }
    kinds = ("read", "write", "database")
    others = {entry for entry in seen if entry[0] not in kinds}
    return Seen(files["read"], files["write"], [path for what, path in seen if what == "database"], others)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a capture whose texts are commands, plain and compressed, and files of others'."""
    here = tmp_path / "here"
    here.mkdir()
    e = Export("3.17").gpu().process(100)
    for i in range(60):
        text = "$(touch owned) `touch owned`; __import__('os').system('touch owned')"
        e.range(text, i * 20_000, (i + 1) * 20_000)
        e.launch(i * 20_000, 3_000, f"{{{{7*7}}}} {text} {i % 3}", i * 20_000 + 5_000, 9_000)
    path = (
        e.environment("LD_PRELOAD", "/tmp/owned.so")
        .command("sh", "-c", "touch owned")
        .write(here / "a.sqlite")
    )
    (here / "b.sqlite.gz").write_bytes(gzip.compress(path.read_bytes()))
    (here / "other.txt").write_text("untouched")
    return tmp_path


#: What each verb is given, and the files that it reads and writes.
VERBS: list[tuple[str, set[str], set[str]]] = [
    ("a.sqlite -o o.txt --html o.html --xlsx o.xlsx", {"a.sqlite"}, {"o.txt", "o.html", "o.xlsx"}),
    ("b.sqlite.gz --format json", {"b.sqlite.gz"}, set()),
    ("stats a.sqlite", {"a.sqlite"}, set()),
    ("doctor a.sqlite", {"a.sqlite"}, set()),
    ("show a.sqlite 1", {"a.sqlite"}, set()),
    ("compare a.sqlite b.sqlite.gz", {"a.sqlite", "b.sqlite.gz"}, set()),
    ("baseline save one a.sqlite", {"a.sqlite"}, {".advisor/one.json"}),
    ("checklist a.sqlite --no-input --session s", {"a.sqlite"}, {"s.checklist.yaml"}),
    ("export perfetto a.sqlite -o o.bin", {"a.sqlite"}, {"o.bin"}),
    ("redact a.sqlite o.sqlite", {"a.sqlite"}, {"o.sqlite"}),
    ("rules check", set(), set()),
]


@pytest.mark.parametrize(
    ("words", "read", "written"), [VERBS[0], *(pytest.param(*v, marks=pytest.mark.slow) for v in VERBS[1:])]
)
def test_nothing_else_is_read_or_written_and_nothing_executed(
    words: str, read: set[str], written: set[str], place: Path
) -> None:
    here = place / "here"
    before = {p.name: p.read_bytes() for p in here.iterdir()}
    seen = audited(place, words)
    # What is made besides is gone at the end, as the files below say.
    passing = re.compile(
        r"tmp(/|$)|here(?:/\.advisor-redact-.*|(?:/\.advisor)?/\.[\w.]+\.(?:\w{8}|lock)|/\.advisor)?$"
    )
    assert {p for p in seen.read if not passing.match(p)} == {f"here/{name}" for name in read}
    assert {p for p in seen.written if not passing.match(p)} == {f"here/{name}" for name in written}
    assert {p.relative_to(here).as_posix() for p in here.rglob("*") if p.is_file()} == {*before, *written}
    assert {name: (here / name).read_bytes() for name in before} == before
    assert list((place / "tmp").iterdir()) == []
    assert seen.others <= {("ctypes.dlopen", "(None,)")}, "nothing is started or connected to"
    ours = f"{os.path.realpath(here)}/a.sqlite"
    assert all("immutable=1" in uri or "mode=ro" in uri for uri in seen.databases if ours in uri)


@pytest.mark.slow
def test_a_local_cluster_listens_to_this_machine_alone(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "here").mkdir()
    ranks = ROOT / "examples" / "captures" / "dlrm_8_ranks"
    seen = audited(tmp_path, f"{ranks} --dask local --jobs 2 -q")
    bound = [given for event, given in seen.others if event == "socket.bind"]
    assert bound
    assert [given for given in bound if "127.0.0.1" not in given and "::1" not in given] == []


def test_the_limits_are_those_of_the_program() -> None:
    page = " ".join((ROOT / "docs" / "security.md").read_text(encoding="utf-8").split())
    times, unsuspected, spare = packed._MOST_TIMES, packed._UNSUSPECTED_BYTES >> 20, packed._SPARE_BYTES >> 20
    assert f"to {times} times their size or {unsuspected} MB, whichever is more" in page
    assert f"leave {spare} MB of the disk free" in page
    assert f"regular files of at most {MOST_BYTES >> 20} MB" in page
    assert f"A folder of rules holds at most {MOST_RULES_BYTES >> 20} MB" in page
    assert f"more than {MAX_CPU_S:g} s of processor time" in page
    assert "docs/security.md" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
