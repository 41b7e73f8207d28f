"""Commands that start their program by another one: what a recorder in front of them would see, and the line
to use instead, before anything is recorded."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from advisor.cli.main import main
from advisor.knowledge.launchers import Split, launchers, split, unwrapped
from tests.recording.conftest import Made

Captured = pytest.CaptureFixture[str]


def programs(tmp_path: Path, *names: str) -> None:
    """Programs of these names, which leave a file if they are started."""
    for name in names:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\ntouch started\n")
        path.chmod(0o755)


CLIENTS = [
    (
        "docker run --rm -it --gpus all -v /a:/b -e A=1 image:tag python serve.py --port 1",
        "docker run --rm -it --gpus all -v /a:/b -e A=1 image:tag nsys profile",
        "-o /results/advisor_kernel_breakdown python serve.py --port 1 (",
    ),
    ("docker exec box vllm serve M", "docker exec box nsys profile", "vllm serve M ("),
    ("docker run image", "docker run image nsys profile", "-o /results/advisor_kernel_breakdown COMMAND ("),
    ("sudo docker run image python x.py", "sudo docker run image nsys profile", "python x.py ("),
    ("docker compose run --rm web python x.py", "docker compose run --rm web nsys profile", "python x.py ("),
    (
        "kubectl exec -n prod pod -c gpu -- python x.py",
        "kubectl exec -n prod pod -c gpu -- nsys profile",
        "-o /results/advisor_kernel_breakdown python x.py (",
    ),
    ("ssh -p22 -i key host python x.py", "ssh -p22 -i key host 'nsys profile", "python x.py' ("),
    ("systemctl start vllm.service", "advisor run -- COMMAND (", "systemctl cat"),
    (
        "srun -n 8 --gpus-per-node=8 -l python x.py",
        "srun -n 8 --gpus-per-node=8 -l nsys profile",
        "-o advisor_kernel_breakdown_%h_rank%q{SLURM_PROCID} python x.py (",
    ),
]


@pytest.mark.parametrize(("command", "before", "after"), CLIENTS)
def test_a_client_is_refused_with_the_line_to_use(
    nsys: Made, tmp_path: Path, command: str, before: str, after: str, capsys: Captured
) -> None:
    nsys()
    programs(tmp_path, "docker", "kubectl", "ssh", "systemctl", "srun", "sudo")
    assert main(["run", "--", *shlex.split(command)]) == 2
    err = capsys.readouterr().err
    assert "client alone" in err
    assert f"record it so: {before}" in err
    assert after in err
    assert err.count("\n") == 1
    assert not Path("started").exists()
    assert not Path(".advisor").exists()


def test_variables_of_the_plan_are_set_by_nsys(nsys: Made, tmp_path: Path, capsys: Captured) -> None:
    nsys()
    programs(tmp_path, "docker")
    assert main(["run", "--", "docker", "run", "image", "trtllm-serve", "M"]) == 2
    assert "--env-var=TLLM_PROFILE_START_STOP=100-150," in capsys.readouterr().err


def test_mpirun_is_told_and_recorded(nsys: Made, tmp_path: Path, capsys: Captured) -> None:
    """Its ranks of this machine are seen."""
    nsys()
    programs(tmp_path, "mpirun")
    command = ["mpirun", "-np", "8", "--mca", "btl", "tcp", "python", "x.py"]
    assert main(["run", "--once", "--delay", "0", "-q", "--", *command]) == 0
    note, *_ = capsys.readouterr().err.splitlines()
    assert "the ranks on this machine in one report, none on others" in note
    assert "mpirun -np 8 --mca btl tcp nsys profile --trace=cuda,nvtx,mpi " in note
    assert "_rank%q{OMPI_COMM_WORLD_RANK} python x.py (" in note
    assert Path("started").exists()


@pytest.mark.parametrize("command", ["ssh-agent bash", "docker images", "mpirunner x", "env A=1 python x.py"])
def test_other_programs_are_not_taken_for_clients(command: str) -> None:
    assert split(unwrapped(shlex.split(command)), launchers().clients) is None


WAYS = [
    ("env X=1 python x.py", "env X=1 advisor run --recorder torch -- python x.py"),
    ("timeout -k 5 60 python x.py", "timeout -k 5 60 advisor run --recorder torch -- python x.py"),
    ("uv run --frozen x.py", "advisor run --recorder torch -- .venv/bin/python SCRIPT"),
    (
        "torchrun --nproc-per-node 8 train.py --lr 1",
        "torchrun --nproc-per-node 8 --no-python advisor run --recorder torch -- python train.py --lr 1",
    ),
    ("vllm serve M", "advisor attach http://localhost:8000 --traces DIR"),
    ("python3 -m sglang.launch_server --model-path M", "advisor attach http://localhost:30000"),
]


@pytest.mark.parametrize(("command", "way"), WAYS)
@pytest.mark.parametrize("asked", [True, False])
def test_behind_scripts_the_ways_that_work_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, way: str, asked: bool, capsys: Captured
) -> None:
    """Where the profiler of PyTorch was asked for, and where there is no nsys."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("advisor.recording.nsys._PLACES", ())
    programs(tmp_path, "env", "timeout", "uv", "torchrun", "vllm", "python3")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert main(["run", *["--recorder", "torch"][: 2 * asked], "--", *shlex.split(command)]) == 2
    err = capsys.readouterr().err
    assert way in err
    assert ("nsys is neither on PATH" in err) != asked
    assert err.count("\n") == 1
    assert not Path(".advisor").exists()


@pytest.mark.parametrize(
    ("command", "before", "program"),
    [
        ("env -u A B=1 C=2 python x.py", "env -u A B=1 C=2", "python x.py"),
        ("nice -n 5 python x.py", "nice -n 5", "python x.py"),
        ("numactl -N 0 -l python x.py", "numactl -N 0 -l", "python x.py"),
        ("uv run -- python x.py", "uv run --", "python x.py"),
        ("taskset -c 0-3 python x.py", "taskset -c 0-3", "python x.py"),
        ("sudo -u me A=1 python x.py", "sudo -u me A=1", "python x.py"),
    ],
)
def test_the_program_behind_a_wrapper(command: str, before: str, program: str) -> None:
    found = split(shlex.split(command), launchers().wrappers)
    assert isinstance(found, Split)
    assert (shlex.join(found.before), shlex.join(found.program)) == (before, program)
