"""What the machine does to a run: no room, no home, files that change, many runs at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from advisor.cli.main import main
from advisor.errors import AdvisorError
from advisor.pipeline import diagnose as pipeline
from tests.builder import Export
from tests.captures import committed

#: The command line, in a process that may write no file of more than so many bytes.
BOUNDED = """
import resource, signal, sys
sys.dont_write_bytecode = True  # cut short, it would break the imports of later runs
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
size = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
from advisor.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    export = Export("3.17").gpu().process(100)
    for i in range(60):
        export.launch(i * 20_000, 3_000, f"k{i % 3}", i * 20_000 + 5_000, 9_000)
    return export.write(tmp_path / "a.sqlite")


def tree(folder: Path) -> dict[str, bytes | None]:
    """What each file holds, and the folders."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


@pytest.mark.parametrize(
    ("size", "words", "said"),
    [
        (4_000, "packed.sqlite.xz", "no room to unpack it in"),
        (4_000, "-", "-: cannot be kept in"),
        (4_000, "baseline save first - --folder new", "save it to disk, or set TMPDIR"),
        (4_000, "redact packed.sqlite.xz out.sqlite", "no room to unpack it in"),
        (9_000, "redact a.sqlite out.sqlite", "make room beside OUT"),
        (1_000, "a.sqlite -q --html out.html", "cannot write out.html: File too large"),
        (1_000, "baseline save first a.sqlite --folder new/kept", "cannot write new/kept/first.json"),
        (10, "review record a.sqlite --folder new", "cannot write new/history/findings.json"),
    ],
)
@pytest.mark.usefixtures("capture")
def test_without_room_one_line_and_nothing_left(
    size: int,
    words: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    resource = pytest.importorskip("resource")
    (tmp_path / "packed.sqlite.xz").write_bytes(committed("no_gpu_work").read_bytes())
    (tmp_path / "tmp").mkdir()
    before = tree(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # cut short, it would break later imports
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with (tmp_path / "a.sqlite").open() as given:
        monkeypatch.setattr(sys, "stdin", given)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            code = main(words.split())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    told = capsys.readouterr().err
    assert (code, told.count("\n")) == (2, 1)
    assert said in told
    assert tree(tmp_path) == before


def test_without_room_for_a_workbook(capture: Path, tmp_path: Path) -> None:
    """openpyxl removes its own files when the process ends."""
    pytest.importorskip("resource")
    (tmp_path / "tmp").mkdir()
    before = tree(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED, "1000", capture.name, "-q", "--xlsx", "out.xlsx"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "cannot be written (File too large); make room in" in done.stderr
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("format", "unbuffered"),
    [
        ("text", "1"),
        ("json", ""),
        pytest.param("text", "", marks=pytest.mark.slow),
        pytest.param("json", "1", marks=pytest.mark.slow),
    ],
)
def test_standard_output_that_takes_only_a_part(
    format: str, unbuffered: str, capture: Path, tmp_path: Path
) -> None:
    """Without a buffer Python does not say how much of a text was written."""
    pytest.importorskip("resource")
    words = ["500", str(capture), "--format", format]
    program = BOUNDED.replace("import main", "import run").replace(
        "sys.exit(main(sys.argv[2:]))",
        """
sys.argv[1:] = sys.argv[2:]
run()""",
    )
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(
            [sys.executable, "-c", program, *words],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "standard output: cannot be written (File too large)" in done.stderr


@pytest.mark.skipif(not Path("/proc/fs").is_dir(), reason="needs /proc, where root cannot write either")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("a.sqlite -q -o /proc/fs/out.txt", "cannot write /proc/fs/out.txt"),
        ("a.sqlite -q --html /proc/fs/out.html", "cannot write /proc/fs/out.html"),
        ("a.sqlite -q --xlsx /proc/fs/out.xlsx", "cannot write /proc/fs/out.xlsx"),
        ("export perfetto a.sqlite -o /proc/fs/out.bin", "cannot write /proc/fs/out.bin"),
        ("redact a.sqlite /proc/fs/out.sqlite", "cannot write in /proc/fs"),
    ],
)
def test_a_folder_that_takes_no_files(
    words: str, said: str, capture: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(capture.parent)
    monkeypatch.chdir(capture.parent)
    assert main(words.split()) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert said in told.err
    assert tree(capture.parent) == before


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_file_that_shrinks_while_it_is_read(
    share: float, capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = pipeline.opened

    def shrunk(*given: object) -> object:
        trace = opened(*given)  # type: ignore[arg-type]
        os.truncate(capture, int(share * capture.stat().st_size))
        return trace

    monkeypatch.setattr(pipeline, "opened", shrunk)
    with pytest.raises(AdvisorError, match="changed while it was read"):
        pipeline.diagnose(capture)
    assert [p.name for p in capture.parent.iterdir()] == ["a.sqlite"]


def test_a_file_that_is_deleted_while_it_is_read(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = pipeline.opened

    def deleted(*given: object) -> object:
        trace = opened(*given)  # type: ignore[arg-type]
        capture.unlink()
        return trace

    monkeypatch.setattr(pipeline, "opened", deleted)
    with pytest.raises(AdvisorError, match="it was deleted while it was read"):
        pipeline.diagnose(capture)
    assert list(capture.parent.iterdir()) == []


@pytest.mark.slow
def test_twenty_runs_on_one_file_say_the_same(capture: Path) -> None:
    before = tree(capture.parent)
    found: list[str] = []

    def run() -> None:
        found.append(pipeline.diagnose(capture).model_dump_json())

    threads = [threading.Thread(target=run) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    assert len(set(found)) == 1
    assert tree(capture.parent) == before


def test_without_home(capture: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k not in ("HOME", "USER", "LOGNAME")}
    command = [sys.executable, "-m", "advisor", str(capture), "--format", "json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["steps"] is not None
