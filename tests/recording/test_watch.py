"""``advisor.watch`` and ``advisor.diagnose`` of a profile, with a stand-in for torch, and with the real one
where it is."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import advisor
from tests.kineto_builder import decode
from tests.recording import fake_torch


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in, imported in this process for one test."""
    before = {n: m for n, m in sys.modules.items() if n.partition(".")[0] == "torch"}
    for name in before:
        del sys.modules[name]
    monkeypatch.syspath_prepend(str(fake_torch.write(tmp_path / "lib")))
    monkeypatch.setenv("FAKE_TRACE", str(decode().write(tmp_path / "fake.json")))
    monkeypatch.chdir(tmp_path)
    import torch
    import torch.profiler

    yield torch
    for name in [n for n in sys.modules if n.partition(".")[0] == "torch"]:
        del sys.modules[name]
    sys.modules.update(before)


def loop(watched: Any, most: int = 1000, lasted: list[float] | None = None) -> int:
    """Steps of at least 2 ms until the recording is done; how many were made. `lasted` is given what each
    took in ms, which on a busy machine may be any time."""
    ended = time.perf_counter()
    for count in range(1, most + 1):
        time.sleep(0.002)
        watched.step()
        begun, ended = ended, time.perf_counter()
        if lasted is not None:
            lasted.append((ended - begun) * 1e3)
        if watched.done:
            return count
    return most


@pytest.mark.usefixtures("torch")
def test_a_loop_is_timed_profiled_and_diagnosed() -> None:
    lasted: list[float] = []
    with advisor.watch(steps=5, timed=8, warm=3) as w:
        assert loop(w, lasted=lasted) == 3 + 8 + 2 + 5
    assert json.loads(Path("profiled.json").read_text())["steps"] == 5
    assert w.unprofiled_ms is not None
    assert 1.5 < w.unprofiled_ms < 2 * max(lasted)
    found = w.diagnosis
    assert isinstance(found, advisor.Diagnosis)
    assert found is w.diagnosis
    assert "launch-bound" in {f.cause for f in found.findings}
    page = found._repr_html_()
    assert "<table>" in page
    assert "<script" not in page


@pytest.mark.usefixtures("torch")
def test_steps_become_steady_by_themselves() -> None:
    with advisor.watch(steps=3, timed=4) as w:
        w.step()
        time.sleep(0.2)  # compiles
        made = loop(w)
    assert 5 + 4 + 2 + 3 <= made + 1 <= 60 + 4 + 2 + 3


@pytest.mark.usefixtures("torch")
def test_a_loop_that_ends_early() -> None:
    with advisor.watch(steps=50, timed=0, warm=0) as w:
        loop(w, 9)
    assert json.loads(Path("profiled.json").read_text())["steps"] in (7, 8)
    assert w.diagnosis.findings
    with advisor.watch() as w:
        loop(w, 3)
    with pytest.raises(advisor.InputError, match="nothing was profiled in 3 steps"):
        w.diagnosis  # noqa: B018


@pytest.mark.usefixtures("torch")
def test_a_trace_that_is_kept(tmp_path: Path) -> None:
    with advisor.watch(steps=2, timed=2, warm=1, folder=tmp_path / "kept") as w:
        loop(w)
    assert w.trace == tmp_path / "kept" / "trace.json"
    assert w.trace.is_file()
    with advisor.watch(steps=2, timed=2, warm=1) as w:
        loop(w)
    trace = w.trace
    assert trace.is_file()
    del w
    assert not trace.exists()


def test_options_of_a_diagnosis(torch: Any) -> None:  # noqa: ARG001
    with advisor.watch(steps=2, timed=2, warm=1) as w:
        loop(w)
    found = w.diagnose(advisor.Options(unprofiled_step="0.9"))
    assert found is not w.diagnosis


def test_a_profile_is_diagnosed(torch: Any) -> None:
    with torch.profiler.profile() as profile:
        pass
    found = advisor.diagnose(profile)
    assert "launch-bound" in {f.cause for f in found.findings}
    assert not Path(found.inputs[0].path).exists()


def test_what_is_no_profile(torch: Any) -> None:
    with pytest.raises(advisor.InputError, match="int: expected a path"):
        advisor.diagnose(3)  # type: ignore[arg-type]

    class Unfinished(torch.profiler.profile):  # type: ignore[misc,name-defined]
        def export_chrome_trace(self, path: str) -> None:  # noqa: ARG002
            raise AssertionError("Profiler must be initialized before exporting chrome trace")

    with pytest.raises(advisor.InputError, match="diagnose it after its end"):
        advisor.diagnose(Unfinished())


def test_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None\nimport advisor\ntry: advisor.watch()\n"
    code += "except advisor.InputError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("advisor.watch needs torch")


# --- the real torch, where it is; on a CPU it records no GPU work --------------------------------------

REAL = """
import json, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from advisor.recording.launcher import Steps
import torch
model, x = torch.nn.Linear(8, 8), torch.zeros(2, 8)
steps = Steps(torch, Path("trace.json"), steps=4, timed=5, warm=2)
while not steps.done:
    model(x)
    steps.step()
print(json.dumps(steps.result))
"""


def real_pythons() -> list[str]:
    """Pythons here that have torch."""
    found = []
    for python in dict.fromkeys((sys.executable, "/usr/bin/python3")):
        if Path(python).exists():
            done = subprocess.run([python, "-c", "import torch.profiler"], capture_output=True, check=False)
            found += [python] * (done.returncode == 0)
    return found


@pytest.mark.slow
def test_steps_with_the_real_torch(tmp_path: Path) -> None:
    pythons = real_pythons()
    if not pythons:
        pytest.skip("no Python here has torch (Debian: python3-torch)")
    launcher = Path(advisor.__file__).parent / "recording" / "launcher.py"
    code = REAL.replace("from advisor.recording.launcher", "from launcher").format(root=str(launcher.parent))
    done = subprocess.run([pythons[0], "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert (result["profiled"], result["timed"]) == (4, 5)
    assert result["unprofiled_ms"] > 0
    events = json.loads((tmp_path / "trace.json").read_text())
    events = events if isinstance(events, list) else events["traceEvents"]
    assert {"aten::linear"} <= {e.get("name") for e in events}


@pytest.mark.slow
def test_a_program_with_the_real_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor.recording.torch_profiler import Torch, parse
    from advisor.recording.watch import Limits

    if not (pythons := real_pythons()):
        pytest.skip("no Python here has torch (Debian: python3-torch)")
    monkeypatch.chdir(tmp_path)
    lines = [
        "import torch",
        "m, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), torch.ones(2, 8)",
    ]
    lines += ["for _ in range(500): m(x)"]
    program = parse([pythons[0], "-c", "\n".join(lines)])
    assert program is not None
    done = Torch(program).record(Limits(), tmp_path, lambda *_: None, None, lambda _: True)
    assert done.notes == ("steps are calls of Sequential",)
    assert done.unprofiled_ms is not None
    assert "aten::linear" in done.captures[0].read_text()
