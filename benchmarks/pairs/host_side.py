"""Workloads whose cause lies on the host: launches, waits, allocations, Python."""

from __future__ import annotations

import gc
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gpu
import torch
from decoder import Decoder, Decoding, Prefill
from measure import Gain, Variant
from torch.profiler import record_function

GPU_BOUND = ("compute-bound", "memory-bandwidth-bound")
GRAPH_TOPS = ("under-filled-gpu", "unfused-elementwise", "memory-bandwidth-bound", "dominant-kernel")


def _graphs(shape: str, prefix: str, batches: tuple[int, ...], top: tuple[str, ...]) -> Iterator[Variant]:
    names = {n: f"{prefix}graph_b{n}" for n in batches}
    for batch in batches:
        loop = Decoding(Decoder(shape, batch))
        gains = (Gain("launch-bound", "CUDA graphs", names[batch]),)
        yield Variant(
            f"{prefix}eager_b{batch}", "launches", loop.step, top, GPU_BOUND if top else (), gains, calls=6
        )
        if batch == 8 and not prefix:
            ways: dict[str, dict[str, Any]] = {
                "shapes": {"record_shapes": True, "with_stack": True},
                "gpu_only": {"activities": [torch.profiler.ProfilerActivity.CUDA]},
            }
            for way, options in ways.items():
                yield Variant(
                    f"eager_b8_{way}", "launches", loop.step, top, GPU_BOUND, gains, calls=4, options=options
                )
        others = {n: name for n, name in names.items() if n > batch}
        yield Variant(
            names[batch], "launches", loop.graph_step(), never=("launch-bound",), marks=False, batches=others
        )
        del loop


def launches() -> Iterator[Variant]:
    """Eager decode against CUDA graphs, where the host's launching limits the step."""
    yield from _graphs("small", "", (1, 8, 64), ("launch-bound",))


def large_launches() -> Iterator[Variant]:
    """The same where the kernels are about as long as their launches take."""
    yield from _graphs("large", "large_", (1, 64), ())


def readbacks() -> Iterator[Variant]:
    """A value read back after every layer, a device-wide wait after every step, and neither."""
    for shape, prefix, batch in (("small", "", 8), ("large", "large_", 1)):
        loop = Decoding(Decoder(shape, batch))
        plain = f"{prefix}no_item"
        top = ("launch-bound", "blocking-sync", "readback-per-layer") if not prefix else ()
        yield Variant(plain, "waits", loop.step, calls=6)
        loop.model.after_layer = lambda x: x[0, 0, 0].item()
        gains = (Gain("blocking-sync|readback-per-layer", "no value read back in the layers", plain),)
        yield Variant(f"{prefix}item_per_layer", "waits", loop.step, top, gains=gains, calls=6)
        loop.model.after_layer = lambda _: gpu.synchronize()
        gains = (Gain("device-wide-sync|blocking-sync", "no wait for the device in the layers", plain),)
        yield Variant(f"{prefix}sync_per_layer", "waits", loop.step, gains=gains, calls=6)


def allocations() -> Iterator[Variant]:
    """Eager decode with and without the caching allocator, which the environment decides."""
    loop = Decoding(Decoder("small", 8))
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") == "1":
        gains = (Gain("allocation-churn", "caching allocator", "cached"),)
        top = ("allocation-churn", "implicit-sync", "launch-bound")
        yield Variant("no_caching", "allocations", loop.step, top, gains=gains, calls=4)
    else:
        yield Variant("cached", "allocations", loop.step, ("launch-bound",), ("allocation-churn",), calls=6)


def collections() -> Iterator[Variant]:
    """Python's garbage collection in the decode loop: every step, marked and not; without."""
    forward = Decoding(Decoder("middle", 8)).graph_step()
    junk = [[{"i": i}] for i in range(400_000)]
    yield Variant("gc_none", "collections", forward, never=("python-gc",))

    def marked() -> None:
        forward()
        with record_function("Python GC"):
            gc.collect()

    def unmarked() -> None:
        forward()
        gc.collect()

    gains = (Gain("python-gc|gil-gc|host-gap|graph-replay-gaps", "no collection in the step", "gc_none"),)
    yield Variant("gc_marked", "collections", marked, ("python-gc",), gains=gains, calls=5)
    host = ("host-gap", "graph-replay-gaps", "python-gc", "gpu-idle")
    yield Variant("gc_unmarked", "collections", unmarked, host, gains=gains, calls=5)
    del junk


@contextmanager
def _spinning() -> Iterator[None]:
    """A Python thread that holds the interpreter's lock as long as it is let: 5 ms at a time."""
    stop = threading.Event()

    def spin() -> None:
        x = 0
        while not stop.is_set():
            x = (x * 31 + 7) % 1_000_003

    thread = threading.Thread(target=spin, name="spinner", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def lock_holders() -> Iterator[Variant]:
    """Threads that hold Python's lock beside an eager loop and beside one of graph replays."""
    loop = Decoding(Decoder("short", 8))
    replay = loop.graph_step()
    host = ("launch-bound", "host-gap", "gil-contention", "slow-host", "cpu-contention", "host-overhead")
    gains = (Gain("|".join(host[1:]), "no thread that holds Python's lock", "gil_eager_free"),)
    yield Variant("gil_eager_free", "python threads", loop.step, ("launch-bound",), calls=6)
    yield Variant("gil_eager_held", "python threads", loop.step, host, gains=gains, calls=4, around=_spinning)
    gains = (Gain("|".join((*host[1:], "graph-replay-gaps")), gains[0].change, "gil_graph_free"),)
    yield Variant("gil_graph_free", "python threads", replay)
    yield Variant(
        "gil_graph_held",
        "python threads",
        replay,
        (*host[1:], "graph-replay-gaps", "gpu-idle"),
        gains=gains,
        around=_spinning,
    )


def _detokenise() -> list[str]:
    """Python work as detokenising and streaming are, some 1.5 ms: it holds the interpreter's lock."""
    return ["".join(chr(97 + (i * 7) % 26) for i in range(50)) for _ in range(300)]


class _Worker:
    """Runs what it is handed on a thread of its own."""

    def __init__(self) -> None:
        self.jobs: queue.Queue[Callable[[], object] | None] = queue.Queue(maxsize=2)

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._work, name="detokeniser", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.jobs.put(None)
            thread.join()

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            job()


def detokenisers() -> Iterator[Variant]:
    """Detokenising between graph replays: in the loop, on a thread of its own, not at all."""
    replay = Decoding(Decoder("middle", 8)).graph_step()
    worker = _Worker()

    def inline() -> None:
        replay()
        with record_function("detokenize"):
            _detokenise()

    def unmarked() -> None:
        replay()
        _detokenise()

    def handed_on() -> None:
        replay()
        worker.jobs.put(_detokenise)

    host = ("host-gap", "graph-replay-gaps", "gpu-idle")
    gains = (
        Gain("host-gap|graph-replay-gaps", "no host work between steps", "detokenise_none"),
        Gain("host-gap|graph-replay-gaps", "the work on a thread of its own", "detokenise_thread"),
    )
    yield Variant("detokenise_none", "host work", replay, marks=False)
    yield Variant("detokenise_inline", "host work", inline, host, gains=gains)
    yield Variant("detokenise_unmarked", "host work", unmarked, host, gains=gains, marks=False)
    yield Variant("detokenise_thread", "host work", handed_on, gains=gains[:1], around=worker.running)


def prefills() -> Iterator[Variant]:
    """Prompts between decode steps: a whole one every fourth, a piece of it in every step, none."""
    every, tokens = 4, 2048
    model = Decoder("middle", 16)
    loop = Decoding(model)
    decode = loop.graph_step()
    prompts = {n: Prefill(Decoder("middle", 1, length=max(n, 64)), n) for n in (tokens, tokens // every)}
    count = 0

    def whole() -> None:
        nonlocal count
        count += 1
        if count % every == 0:
            with record_function("prefill"):
                prompts[tokens].step()
        with record_function("decode"):
            decode()

    def pieces() -> None:
        with record_function("prefill"):
            prompts[tokens // every].step()
        with record_function("decode"):
            decode()

    def none() -> None:
        with record_function("decode"):
            decode()

    yield Variant("prefill_none", "prefills", none, never=("prefill-holds-decode",))
    # A prompt and a decode step are two steps.
    yield Variant(
        "prefill_whole",
        "prefills",
        whole,
        ("prefill-holds-decode",),
        calls=16,
        period=every,
        steps_a_call=1 + 1 / every,
    )
    yield Variant("prefill_pieces", "prefills", pieces, steps_a_call=2)
