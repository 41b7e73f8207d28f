"""The GPU, or the CPU in its place so that the kit can be tried where there is none."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

HERE = torch.cuda.is_available()
DEVICE = "cuda" if HERE else "cpu"


def synchronize() -> None:
    if HERE:
        torch.cuda.synchronize()


def new_stream() -> Any:
    return torch.cuda.Stream() if HERE else None


def on(stream: Any) -> AbstractContextManager[Any]:
    return torch.cuda.stream(stream) if stream is not None else nullcontext()


def join(stream: Any, *, waits_for: Any = None) -> None:
    """`stream` (None: the current one) waits for all that `waits_for` (None: the current) holds so far."""
    if not HERE:
        return
    current = torch.cuda.current_stream()
    (stream or current).wait_stream(waits_for or current)


def pinned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.pin_memory() if HERE else tensor


def graphed(step: Callable[[], None]) -> Callable[[], None]:
    """`step` captured as a CUDA graph, as PyTorch's manual does it; `step` itself without a GPU."""
    if not HERE:
        return step
    side = torch.cuda.Stream()
    join(side)
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    join(None, waits_for=side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def about() -> dict[str, Any]:
    """What the labels say of the machine."""
    out: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name() if HERE else platform.processor() or "CPU",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "driver": None,
        "processors": os.cpu_count(),
        "python": platform.python_version(),
    }
    if HERE:
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        said = subprocess.run(query, capture_output=True, text=True, check=False)
        out["driver"] = said.stdout.strip() or None
    return out
