"""What is not read says in one line what it looks like, and what to give in its place; what is read may stand
far below the beginning of a text."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.sources.open import open_trace
from tests.other_output import OTHER_OUTPUT
from tests.profiler_tables import kernel, operator, table
from tests.server_logs import Server, sglang, vllm

TEXTS = {
    "ncu text": ("==PROF== Connected to process 4711\n  gemm (32, 1, 1)x(128, 1, 1)\n", "Nsight Compute"),
    "ncu section": ("  Section: GPU Speed Of Light Throughput\n    DRAM   %   45.2\n", "Nsight Compute"),
    "ncu CSV": ('"ID","Process ID","Kernel Name","Metric Name","Metric Unit"\n"0","1"\n', "Nsight Compute"),
    "rocprof CSV": ('"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n"k",1,5,5,100\n', "rocprof"),
    "rocprofv3": ('"Kind","Agent_Id","Queue_Id","Kernel_Name","Start_Timestamp"\n"D",1,1,"k",5\n', "rocprof"),
    "perf stat": (" Performance counter stats for 'python serve.py':\n  1,234 cycles\n", "perf"),
    "perf report": ("# Overhead  Command  Shared Object\n    12.0%  python  libc.so\n", "perf"),
    "py-spy dump": ('Thread 0x7F11 (active): "MainThread"\n    forward (model.py:12)\n', "py-spy"),
    "cProfile": ("   ncalls  tottime  percall  cumtime  percall filename:lineno\n  1 0.1\n", "cProfile"),
    "nvidia-smi list": ("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n", "nvidia-smi"),
    "memory summary": ("|  PyTorch CUDA memory summary, device ID 0 |\n", "memory"),
    "end of a table": ("Self CPU time total: 4.69ms\nSelf CUDA time total: 29us\n", "without its headings"),
    "an error": ("Traceback (most recent call last):\n  File 'a.py', line 1\nRuntimeError: no\n", "error"),
    "a log": ("INFO 11-05 13:20:01 [api.py:1] vLLM API server version 0.11.0\nINFO ready\n", "log without"),
    "a letter": ("My model is slow. What can I do?\n", "no capture"),
}
FILES = {
    "report.ncu-rep": (b"NVR\0\1\2\3", "Nsight Compute"),
    "host.xplane.pb": (b"\x0a\x05hello\0", "JAX"),
    "screen.png": (b"\x89PNG\r\n\x1a\n\0", "picture"),
    "screen": (b"\x89PNG\r\n\x1a\n\0", "picture"),
    "photo.jpg": (b"\xff\xd8\xff\xe0\0\x10JFIF", "picture"),
    "perf.data": (b"PERFILE2\0\0", "perf"),
    "p.json": (b'{"$schema":"https://www.speedscope.app/file-format-schema.json"}', "py-spy"),
    "trace.pftrace": (b"\n\x0b\x08\1\2", "Perfetto"),
    "trace.rpd": (b"\1\2\3\0", "ROCm"),
}


@pytest.mark.parametrize(("text", "what"), TEXTS.values(), ids=TEXTS)
def test_a_text_is_named_in_one_line(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "paste.txt"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        open_trace(path)
    message = str(caught.value)
    assert what in message
    assert "\n" not in message
    assert "; " in message  # the way out


@pytest.mark.parametrize(("text", "what"), OTHER_OUTPUT.values(), ids=OTHER_OUTPUT)
def test_output_of_another_tool_is_refused_by_its_name(tmp_path: Path, text: str, what: str) -> None:
    """Also below a log; only what nsys wrote is asked for as a table of nsys stats."""
    path = tmp_path / "paste.txt"
    for before in ("", "$ ./measure.sh\nhere it is:\n\n"):
        path.write_text(before + text)
        with pytest.raises(InputError) as caught:
            open_trace(path)
        message = str(caught.value)
        assert what in message.partition("; ")[0]
        assert "nsys stats" not in message
        assert "\n" not in message


@pytest.mark.parametrize(("name", "content"), FILES.items(), ids=FILES)
def test_a_file_is_named_in_one_line(tmp_path: Path, name: str, content: tuple[bytes, str]) -> None:
    path = tmp_path / name
    path.write_bytes(content[0])
    with pytest.raises(InputError, match=content[1]) as caught:
        open_trace(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (table([kernel("gemm", 10, 5.0), operator("aten::mm", 10, 9.0, device=50.0)]), "pytorch-table"),
        (vllm(Server()), "server-log"),
        (sglang(Server()), "server-log"),
    ],
    ids=["table", "vLLM", "SGLang"],
)
@pytest.mark.parametrize(
    "before", ["INFO 11-05 13:20:01 loading\n", "[2025-08-01 10:00:00] loading\n", "[1/4] loading\n"]
)
def test_what_stands_behind_a_long_beginning_is_found(
    tmp_path: Path, text: str, kind: str, before: str
) -> None:
    path = tmp_path / "out.log"
    path.write_text(before * 500 + text)
    with open_trace(path) as trace:
        assert trace.capture.format == kind
