"""What users of Nsight Systems type and paste: names of its reports and rules, and commands that we print."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from advisor.cli.main import main
from advisor.engine.load import builtin_dir, load_rules
from advisor.knowledge.files import nsys_rules
from tests.captures import committed
from tests.scenarios.machine import GEMV, SILU, Kernel, Machine

EAGER = str(committed("decode_eager_bs1"))
OPAQUE = str(committed("decode_graph_opaque"))
Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("kern_sum", "cuda_gpu_kern_sum"),
        ("cuda_kern_sum", "cuda_gpu_kern_sum"),
        ("api_sum", "cuda_api_sum"),
        ("mem_sum", "cuda_gpu_mem_time_sum"),
        ("kern_exec_sum", "cuda_kern_exec_sum"),
        ("kernles", "kernels"),
    ],
)
def test_a_misspelt_report_suggests_the_one_that_is_meant(typed: str, meant: str, capsys: Captured) -> None:
    assert main(["stats", EAGER, "--report", typed]) == 2
    assert f"did you mean '{meant}'?" in capsys.readouterr().err


@pytest.mark.parametrize("name", nsys_rules())
def test_names_of_nsys_lead_to_our_causes(name: str, capsys: Captured) -> None:
    cause = nsys_rules()[name]
    rule = load_rules(builtin_dir()).by_cause[cause]
    assert main(["explain", name]) == 0
    assert capsys.readouterr().out.startswith(f"{rule.code} {cause}")
    assert main(["stats", EAGER, "--report", name]) == 2
    assert f"advisor explain {cause}" in capsys.readouterr().err


def test_a_name_of_nsys_explains_a_capture(capsys: Captured) -> None:
    assert main(["explain", "cuda_api_sync", "--trace", EAGER]) == 0
    assert "SYN101 blocking-sync" in capsys.readouterr().out


def test_a_command_of_the_outline_pastes_as_one(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    """At 80 columns, as a shell reads it: no word is torn."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["capture", "--troubleshoot", "too-large"]) == 0
    lines = capsys.readouterr().out.splitlines()
    begin = next(i for i, line in enumerate(lines) if "nsys export" in line and line.endswith("\\"))
    end = next(i for i in range(begin, len(lines)) if not lines[i].endswith("\\"))
    pasted = "\n".join(lines[begin : end + 1]).replace("nsys", "printf '%s\\n'", 1)
    words = subprocess.run(["bash", "-c", pasted], capture_output=True, text=True, check=True).stdout.split()
    tables = "CUPTI_ACTIVITY_KIND_KERNEL,CUPTI_ACTIVITY_KIND_RUNTIME,StringIds"
    assert words == [
        "export",
        "--type=sqlite",
        f"--tables={tables}",
        "-o",
        "kernels.sqlite",
        "report.nsys-rep",
    ]


def test_traced_graphs_are_not_told_to_trace_cuda(capsys: Captured) -> None:
    assert main([OPAQUE]) == 0
    out = capsys.readouterr().out
    assert "Record again with --cuda-graph-trace=node" in out
    assert "race CUDA" not in out
    assert "in the program" not in out


def _json(path: Path, capsys: Captured) -> dict[str, Any]:
    assert main([str(path), "--format", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_secrets_never_lead(tmp_path: Path, capsys: Captured) -> None:
    """Graph runs recorded as blocks, and a key in the environment: the graphs come first."""
    m = Machine()
    m.export.environment("API_TOKEN", "hf_0123456789abcdef")
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(22, mode="graph")
            m.wait()
    found = _json(m.write(tmp_path), capsys)
    assert found["headline"]["cause"] == "opaque-cuda-graphs"


def test_secrets_alone_are_no_headline(tmp_path: Path, capsys: Captured) -> None:
    m = Machine()
    m.export.environment("API_TOKEN", "hf_0123456789abcdef")
    for i in range(12):
        with m.step(f"decode_step {i}"):
            m.replay(22, [(GEMV, 60), (SILU, 5)])
    found = _json(m.write(tmp_path), capsys)
    assert "secrets-in-export" in {f["cause"] for f in found["findings"]}
    headline = found["headline"]
    assert headline is None or headline["cause"] != "secrets-in-export"
    assert "redact" not in str(found["verdict"])


def test_json_and_header_agree_about_steps(tmp_path: Path, capsys: Captured) -> None:
    """Few passes that may be layers are counted in both, and called uncertain where they are."""
    paths = [committed(n) for n in ("decode_eager_bs1", "decode_graph_opaque", "no_gpu_work")]
    m = Machine()
    for _ in range(4):
        m.layers(1, [(GEMV, 60), (SILU, 5), (GEMV, 40), (SILU, 9)])
        m.work(40)
    for path in (*paths, m.write(tmp_path)):
        found = _json(path, capsys)
        counts = [s["count"] for s in found["steps"]]
        assert main([str(path)]) == 0
        head = capsys.readouterr().out.splitlines()[1]
        said = found["inputs"][0]["steps"]
        if said is None:
            assert "no steps found" in head
        else:
            assert f"{said} " in head or all(f"{n} " in head for n in counts)
            assert ("not certain" in head) == (not counts)


GENERIC = (
    "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, float>(T13)",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_64x64>(T1::Params)",
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int>>>(T1::Params)",
)
PLAIN = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64>, false>(Flash_fwd_params)"


def _chosen(kernel: str, folder: Path, capsys: Captured) -> tuple[str, re.Pattern[str]]:
    """The base and the expression of the `ncu` line where this kernel holds most time."""
    m = Machine()
    for _ in range(300):
        m.launch(Kernel(kernel), 90)
    target = _json(m.write(folder), capsys)["next_target"]
    words = shlex.split(target["command"])
    return words[words.index("--kernel-name-base") + 1], re.compile(words[words.index("-k") + 1][6:])


@pytest.mark.parametrize("kernel", GENERIC)
def test_ncu_is_not_told_to_measure_every_kernel(kernel: str, tmp_path: Path, capsys: Captured) -> None:
    """`kernel` is a name within nearly all names, so the demangled one is given."""
    base, pattern = _chosen(kernel, tmp_path, capsys)
    assert base == "demangled"
    assert pattern.search(kernel)
    assert not [k for k in (*GENERIC, PLAIN) if k != kernel and pattern.search(k)]


def test_ncu_takes_the_whole_name_of_a_function(tmp_path: Path, capsys: Captured) -> None:
    base, pattern = _chosen(PLAIN, tmp_path, capsys)
    assert base == "function"
    assert pattern.search("flash_fwd_splitkv_kernel")
    assert not pattern.search("flash_fwd_splitkv_kernel_combine")
    assert not pattern.search("mine_flash_fwd_splitkv_kernel")
