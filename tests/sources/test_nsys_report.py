"""Reports are exported by the user's own nsys, into a folder that goes; here a script plays it."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.pipeline.diagnose import diagnose
from advisor.pipeline.inputs import expand
from advisor.sources.open import open_trace
from tests.builder import Export

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the fake nsys is a shell script")

EXPORTS = """#!{python}
import pathlib, shutil, sys
arguments = sys.argv[1:]
pathlib.Path({log!r}).write_text("\\n".join(arguments))
target = next(a for a in arguments if a.startswith("--output=")).partition("=")[2]
print("Processing [100%]", file=sys.stderr)
shutil.copyfile({export!r}, target)
"""
FAILS = """#!/bin/sh
echo "Generating..."
echo "Importer error status: the report was created by a newer version" >&2
exit 1
"""
ENDLESS = """#!/bin/sh
touch {mark}
exec sleep 60
"""
DOES_NOTHING = """#!/bin/sh
exit 0
"""


class Nsys:
    """A folder on PATH, and what the nsys in it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"

    def installed(self, script: str) -> None:
        path = self.folder / "nsys"
        path.write_text(script)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def exports(self, export: Path) -> None:
        self.installed(EXPORTS.format(python=sys.executable, log=str(self.log), export=str(export)))


@pytest.fixture
def nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nsys:
    folder = tmp_path / "bin"
    folder.mkdir()
    tools = tmp_path / "tools"  # what the scripts call, without an nsys of this machine
    tools.mkdir()
    for tool in ("sh", "sleep", "touch"):
        (tools / tool).symlink_to(shutil.which(tool) or "/bin/false")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{tools}")
    return Nsys(folder)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def export(tmp_path: Path) -> Path:
    made = Export().gpu().process(100).launch(at=0, kernel="gemm").sync(at=6_000)
    return made.write(tmp_path / "made.sqlite")


@pytest.fixture
def report(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    path = folder / "a run.nsys-rep"
    path.write_bytes(b"\x10\x00NVIDIA Nsight Systems 2025.1")
    return path


def test_a_report_is_read_through_nsys(nsys: Nsys, report: Path, export: Path, scratch: Path) -> None:
    nsys.exports(export)
    with open_trace(report) as trace:
        assert trace.rows("kernels") == 1
        assert trace.capture.path == str(report)
        assert trace.capture.size_bytes == report.stat().st_size
        assert trace.capture.format == "nsys-sqlite"
        assert list(scratch.iterdir())
    assert not list(scratch.iterdir())
    assert [p.name for p in report.parent.iterdir()] == [report.name]
    asked = nsys.log.read_text().splitlines()
    assert asked[:2] == ["export", "--type=sqlite"]
    assert asked[-1] == str(report)


def test_a_report_under_another_name_or_compressed(
    nsys: Nsys, report: Path, export: Path, scratch: Path
) -> None:
    nsys.exports(export)
    renamed = report.with_name("report")
    renamed.write_bytes(report.read_bytes())
    packed = report.with_name("r.nsys-rep.gz")
    packed.write_bytes(gzip.compress(report.read_bytes()))
    for path in (renamed, packed):
        with open_trace(path) as trace:
            assert trace.rows("kernels") == 1
            assert trace.capture.path == str(path)
        assert nsys.log.read_text().splitlines()[-1].endswith(".nsys-rep")
        assert not list(scratch.iterdir())


@pytest.mark.parametrize(
    ("script", "why"), [(FAILS, "created by a newer version"), (DOES_NOTHING, "exit code 0")]
)
def test_an_export_that_fails(nsys: Nsys, report: Path, scratch: Path, script: str, why: str) -> None:
    nsys.installed(script)
    with pytest.raises(InputError) as raised:
        open_trace(report)
    message = str(raised.value)
    assert message.startswith(f"{report}: nsys could not export it")
    assert why in message
    assert "\n" not in message
    assert not list(scratch.iterdir())


def test_an_nsys_that_cannot_be_run(nsys: Nsys, report: Path) -> None:
    nsys.installed("#!/no/such/interpreter\n")
    with pytest.raises(InputError, match="cannot be run"):
        open_trace(report)


@pytest.mark.usefixtures("nsys")  # the folder on PATH, empty
def test_without_nsys_the_command_is_told(report: Path) -> None:
    with pytest.raises(InputError) as raised:
        open_trace(report)
    assert f"nsys export --type=sqlite -o 'a run.sqlite' '{report}'" in str(raised.value)


def test_a_folder_holds_reports_that_nobody_exported_yet(nsys: Nsys, report: Path, export: Path) -> None:
    twin = export.rename(report.with_name("b.sqlite"))
    report.with_name("b.nsys-rep").write_bytes(report.read_bytes())
    assert expand([report.parent]) == [twin]  # no nsys that could read them
    nsys.exports(twin)
    assert expand([report.parent]) == [twin, report]


@pytest.mark.parametrize(
    ("number", "said", "code"),
    [
        (signal.SIGINT, b"interrupted", 130),
        (signal.SIGTERM, b"terminated", 143),
        (signal.SIGHUP, b"terminated", 129),
    ],
)
def test_an_export_that_is_interrupted_leaves_nothing(
    nsys: Nsys, report: Path, scratch: Path, number: int, said: bytes, code: int
) -> None:
    mark = nsys.folder / "exporting"
    nsys.installed(ENDLESS.format(mark=mark))
    with subprocess.Popen(
        [sys.executable, "-m", "advisor", str(report)],
        env=os.environ | {"TMPDIR": str(scratch)},
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # nohup has it ignored
    ) as process:
        while not mark.exists():
            assert process.poll() is None
            time.sleep(0.02)
        assert list(scratch.iterdir())
        process.send_signal(number)
        assert process.stderr is not None
        assert process.stderr.read() == b"advisor: " + said + b"\n"
        assert process.wait() == code
    assert not list(scratch.iterdir())


def test_the_export_is_told_as_progress(nsys: Nsys, report: Path, export: Path) -> None:
    nsys.exports(export)
    told: list[str] = []
    diagnose(report, progress=told.append)
    assert told[:2] == ["exporting with nsys", "reading"]
