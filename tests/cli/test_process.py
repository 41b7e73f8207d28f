"""What only a process of its own can show: pipes, terminals, signals, imports, start-up."""

from __future__ import annotations

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.cells import cell_len

from advisor.knowledge.package_data import is_built
from tests.cli.conftest import Run

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, str(ROOT / "tests" / "cli" / "driver.py")]
RULES = ROOT / "tests" / "cli" / "rules"
COMMITTED = ROOT / "examples" / "captures" / "decode_eager_bs1.sqlite.xz"
FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")


def environment(**more: str) -> dict[str, str]:
    dropped = ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    kept = {k: v for k, v in os.environ.items() if k not in dropped}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **more}


def piped(folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *args], cwd=folder, env=environment(**env), capture_output=True, check=False
    )


def on_terminal(folder: Path, *args: str, **env: str) -> str:
    """Everything that a terminal of 80 columns gets, stdout and stderr together."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *args],
        cwd=folder,
        env=environment(**{"COLUMNS": "80", **env}),
        stdin=follower,
        stdout=follower,
        stderr=follower,
    ) as process:
        os.close(follower)
        chunks = []
        while True:
            try:
                chunk = os.read(leader, 65536)
            except OSError:
                break
            if not chunk:
                break
            chunks.append(chunk)
        assert process.wait() == 0
    os.close(leader)
    return b"".join(chunks).decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.sqlite", "slow.sqlite"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[bytes]:
    """What every other run is compared with."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "a.sqlite").touch()
    return piped(folder, "a.sqlite", PYTHONHASHSEED="1")


@pytest.fixture(scope="module")
def coloured(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a terminal gets."""
    folder = tmp_path_factory.mktemp("coloured")
    (folder / "a.sqlite").touch()
    return on_terminal(folder, "a.sqlite")


@pytest.mark.parametrize("args", [(), ("-v",)])
def test_piped_output_has_80_columns_and_no_escape_codes(
    folder: Path, args: tuple[str], plain: subprocess.CompletedProcess[bytes]
) -> None:
    done = piped(folder, "a.sqlite", *args) if args else plain
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\x1b" not in done.stdout
    assert max(cell_len(line) for line in done.stdout.decode().splitlines()) <= 80


def test_a_terminal_gets_colour_and_NO_COLOR_takes_it_away(folder: Path, coloured: str) -> None:
    assert re.search(r"\x1b\[[0-9;]*3[1-6]m", coloured)
    bare = on_terminal(folder, "a.sqlite", NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*[34][0-9]m", bare)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == re.sub(r"\x1b\[[0-9;]*m", "", bare)
    assert "▲ HIGH" in bare


def test_a_stream_that_knows_ascii_only(folder: Path) -> None:
    done = piped(folder, "a.sqlite", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"!! HIGH" in done.stdout
    assert b"9.92 -> 2.31 ms" in done.stdout


def test_progress_only_on_a_terminal(folder: Path, coloured: str) -> None:
    assert piped(folder, "slow.sqlite").stderr == b""
    shown = on_terminal(folder, "slow.sqlite")
    assert re.search(r"slow\.sqlite: reading kernels, \d s", shown)
    assert "\r\x1b[K" in shown
    assert "reading kernels" not in coloured


def test_a_closed_pipe_is_quiet(folder: Path) -> None:
    for args, code, told in (
        (("a.sqlite", "-v"), 0, b""),
        (("a.sqlite", "--fail-on", "high"), 1, b"advisor: gate failed: LCH101 "),
    ):
        with subprocess.Popen(
            [*COMMAND, *args], cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            said = process.stderr.read()
            assert said.startswith(told)
            assert said.count(b"\n") == code
            assert process.wait() == code


@pytest.mark.parametrize("columns", ["0", "-1", "wide"])
def test_a_width_that_is_none_is_80(
    run: Run,
    columns: str,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
    plain: subprocess.CompletedProcess[bytes],
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert run("a.sqlite") == 0
    assert capsysbinary.readouterr().out == plain.stdout
    assert len(plain.stdout.splitlines()) > 3


def closed(folder: Path, redirection: str, *args: str) -> subprocess.CompletedProcess[bytes]:
    """Run with a stream closed or redirected by the shell, as launchers do."""
    command = shlex.join([*COMMAND, *args])
    return subprocess.run(
        ["sh", "-c", f"{command} {redirection}"],
        cwd=folder,
        env=environment(),
        check=False,
        capture_output=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "redirection"),
    [
        (("a.sqlite",), ">&-"),
        pytest.param(("a.sqlite",), ">/dev/full", marks=FULL),
        pytest.param(("a.sqlite", "--format", "json"), ">/dev/full", marks=FULL),
        (("--version",), ">&-"),
        pytest.param(("--help",), ">/dev/full", marks=FULL),
    ],
)
def test_output_that_cannot_be_written(folder: Path, args: tuple[str, ...], redirection: str) -> None:
    """Exit code 1 would mean a finding."""
    done = closed(folder, redirection, *args)
    assert done.returncode == 2
    assert done.stderr.startswith(b"advisor: error: standard output: cannot be written (")
    assert done.stderr.count(b"\n") == 1


def test_streams_that_are_not_needed_may_be_closed(folder: Path) -> None:
    done = closed(folder, ">&- 2>&- <&-", "a.sqlite", "-o", "report.txt")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert "launch-bound" in (folder / "report.txt").read_text()
    assert closed(folder, "2>&-", "nowhere.sqlite").returncode == 2


@FULL
def test_messages_that_cannot_be_written_change_no_exit_code(folder: Path) -> None:
    assert closed(folder, "2>/dev/full", "nowhere.sqlite").returncode == 2


@pytest.mark.slow
def test_ctrl_c(folder: Path) -> None:
    (folder / "endless.sqlite").touch()
    with subprocess.Popen(
        [*COMMAND, "endless.sqlite"], cwd=folder, env=environment(), stderr=subprocess.PIPE
    ) as process:
        while not (folder / "reading").exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.read() == b"advisor: interrupted\n"
        assert process.wait() == 130


def test_same_bytes_twice(
    run: Run,
    folder: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    plain: subprocess.CompletedProcess[bytes],
) -> None:
    """In this process and others, each with a seed of hashes of its own."""
    run("a.sqlite")
    assert capsysbinary.readouterr().out == plain.stdout
    run("a.sqlite", "--format", "json")
    other = piped(folder, "a.sqlite", "--format", "json", PYTHONHASHSEED="2")
    assert capsysbinary.readouterr().out == other.stdout


THIRD_PARTY = (
    "pydantic numpy rich yaml msgspec jinja2 pandas openpyxl durable questionary prompt_toolkit logging"
)
QUICK = "logging"
MODELS = f"{QUICK} msgspec"
ANALYSIS = f"{MODELS} numpy rich durable yaml"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "may_import"),
    [
        (("--help",), ""),
        (("--version",), ""),
        (("diagnose", "--help"), QUICK),
        (("rules", "list", "--help"), QUICK),
        (("review", "--help"), QUICK),
        (("checklist", "--list"), f"{MODELS} yaml rich durable"),
        (("explain", "TST901", "--rules", RULES), f"{MODELS} pydantic yaml rich"),
        (("capture", "tail"), f"{MODELS} rich yaml"),
        (("demo", "-q"), ANALYSIS),
        (("explain", "SYN101", "--trace", COMMITTED), ANALYSIS),  # only `stats` takes pandas
        (("stats", "--help"), QUICK),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(map(str, value[:2])),
)
def test_a_verb_imports_what_it_needs(args: tuple[object, ...], may_import: str) -> None:
    script = (
        "import sys\n"
        "from advisor.cli.main import main\n"
        f"assert main({[str(a) for a in args]!r}) == 0\n"
        "print(*sorted(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, check=True, text=True
    )
    imported = set(done.stderr.splitlines()[-1].split())
    checked = set() if is_built() else {"pydantic", "yaml"}  # rules that were edited since the build
    assert imported & set(THIRD_PARTY.split()) <= set(may_import.split()) | checked
    if args[0] in ("--help", "--version"):
        assert not any(
            name.startswith(("advisor.pipeline", "advisor.reports")) or name.endswith("_verbs")
            for name in imported
        )


def test_python_dash_m() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "advisor", "--version"], env=environment(), capture_output=True, check=True
    )
    assert done.stdout.startswith(b"advisor ")


def test_completion_lists_verbs_and_leaves_files_to_the_shell() -> None:
    # A shell asks by environment variable and passes what was typed.
    def offered(words: str) -> list[str]:
        script = "from advisor.cli.main import run; run()"
        env = environment(
            _ADVISOR_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(words.count(" "))
        )
        done = subprocess.run(
            [sys.executable, "-c", script], env=env, capture_output=True, check=False, text=True
        )
        return done.stdout.split()

    assert set(offered("advisor ex")) == {"file,ex", "plain,explain", "plain,export"}
    assert "plain,json" in offered("advisor diagnose --format ")
    assert offered("advisor /tm") == ["file,/tm"]
