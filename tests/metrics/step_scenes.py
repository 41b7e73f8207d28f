"""Programs whose true number of steps is known, with the disturbances that real captures have.

A scene is a list of steps, a step a list of events: a kernel's name, `(name, us)` for one of another
length than 3 us, `Copy`, `Graph` (kernels of one launch) or `Pause` of the host. `record` writes it
as a host does that runs ahead of the device, and disturbs it on request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tests.builder import Export

US = 1_000
ADAM = "void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float>>(int)"
ARGMAX = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>()"
EMBED = "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long>(int)"
LOSS = "void at::native::nll_loss_forward_reduce_cuda_kernel_2d<float>(float*)"


class Copy(NamedTuple):
    direction: str
    bytes: int = 8


class Graph(NamedTuple):
    kernels: tuple[str, ...]


class Pause(NamedTuple):
    us: int


Event = str | tuple[str, int] | Copy | Graph | Pause
Step = Sequence[Event]


LAYER: list[Event] = ["norm_kernel", "ampere_sgemm_128x64_tn", "flash_fwd_kernel", "gelu_kernel"]
BACK: list[Event] = ["norm_grad_kernel", "ampere_sgemm_128x64_nt", "flash_bwd_kernel"]


@dataclass(frozen=True)
class Disturbed:
    """What goes wrong in a capture; by default nothing."""

    jitter: float = 0.0
    slow_first: float = 1.0
    missing: float = 0.0
    pause_us: int = 0
    seed: int = 0


CLEAN = Disturbed()


def record(
    steps: Sequence[Step], how: Disturbed = CLEAN, export: Export | None = None, at: int = 0
) -> Export:
    """A capture of these steps in one process on one stream."""
    export = export or Export().process(1)
    rng = Random(how.seed)
    free = at
    stalled = len(steps) // 2

    def long(us: float, number: int) -> int:
        slow = how.slow_first if number == 0 else 1.0
        return max(1, int(us * US * slow * (1 + how.jitter * rng.uniform(-1, 1))))

    def ran(length: int, begin: int) -> int:
        nonlocal free
        start = max(begin, free)
        free = start + length
        return start

    for number, step in enumerate(steps):
        for place, event in enumerate(step):
            if number == stalled and place == len(step) // 3:
                at += how.pause_us * US
            lost = rng.random() < how.missing
            if isinstance(event, Pause):
                at += long(event.us, number)
            elif isinstance(event, Copy):
                length = long(2, number)
                begin = ran(length, at + US)
                end = max(begin + length, at + 2 * US) if event.direction == "DtoH" else at + 2 * US
                export.copy(at, end - at, event.direction, event.bytes, "pageable", begin, length)
                at = end + 2 * US
            elif isinstance(event, Graph):
                nodes = []
                for kernel in event.kernels:
                    length = long(3, number)
                    nodes.append((kernel, ran(length, at + 10 * US), length))
                export.graph_launch(at, 8 * US, [n for n in nodes if rng.random() >= how.missing])
                at += long(20, number)
            else:
                name, us = event if isinstance(event, tuple) else (event, 3)
                length = long(us, number)
                begin = ran(length, at + 4 * US)
                if lost:
                    export.call("cudaLaunchKernel_v7000", at, 2 * US)
                else:
                    export.launch(at=at, dur=2 * US, kernel=name, kernel_start=begin, kernel_dur=length)
                at += long(10, number)
    return export


class Scene(NamedTuple):
    """`true` steps, of which each holds `inner` repeats; `told` where the capture tells their number."""

    steps: list[Step]
    true: int
    inner: int = 0
    told: bool = True


def times(count: int, *events: Event | list[Event]) -> list[Step]:
    step: list[Event] = []
    for event in events:
        step += event if isinstance(event, list) else [event]
    return [step] * count


def each(count: int, *events: Event | list[Event]) -> list[Event]:
    """What comes again and again inside a step."""
    return [event for part in times(count, *events) for event in part]


GEMM, HEAD = "ampere_sgemm_64x64_tn", "sgemm_head"
GATHER, REDUCE = "ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_ReduceScatter_Sum"
#: The same layer on a prompt, by other kernels.
PROMPT: list[Event] = ["norm_kernel", "bf16_s16816gemm_256x128_tn", "flash_fwd_kernel_prompt", "gelu_kernel"]
CONV: list[Event] = [*["implicit_convolve_sgemm", "group_norm_kernel", "silu_kernel"] * 2, "add_kernel"]
ATTENTION: list[Event] = ["norm_kernel", "ampere_sgemm_128x64_tn", "flash_fwd_kernel", GEMM, "add_kernel"]
UNET = [*each(2, CONV * 2, ATTENTION), "down_kernel", *CONV * 2, *each(2, CONV * 3, ATTENTION), CONV[0]]
SCHEDULER: list[Event] = ["mul_kernel", "sub_kernel", "add_kernel", "cast_kernel"]
VAE = [*CONV * 4, "upsample_kernel", *CONV * 4, "implicit_convolve_sgemm"]
PIECE = Graph(("norm_kernel", "ampere_sgemm_128x64_tn", "gelu_kernel", "ampere_sgemm_128x64_tn"))
MICRO_BATCH = [*LAYER * 6, LOSS, *BACK * 6]
TOKEN: list[Event] = ["eq_kernel", "cat_kernel", Copy("DtoH", 1)]
FRAME: list[Event] = ["resize_kernel", "implicit_convolve_sgemm", *CONV, "pool_kernel", GEMM]
LINEAR: list[Event] = ["ampere_sgemm_128x64_tn", "gelu_kernel", GEMM]
UP, DOWN = Copy("HtoD", 600_000), Copy("DtoH", 600_000)
FUSED: list[Event] = [
    *["loop_add_fusion_1", GEMM, "loop_multiply_fusion_2", "input_reduce_fusion", HEAD],
    *["loop_convert_fusion_4", GEMM, "loop_select_fusion_5", "loop_exponential_fusion"],
]

SCENES: dict[str, Scene] = {
    # identical layers without any pause, and what comes once a step
    "layers, argmax": Scene(times(8, LAYER * 12, HEAD, ARGMAX), 8, 12),
    "layers, softmax, multinomial": Scene(
        times(7, EMBED, LAYER * 12, HEAD, "softmax_kernel", "at::native::multinomial_kernel"), 7, 12
    ),
    "layers, head": Scene(times(8, LAYER * 12, HEAD), 8, told=False),
    "layers alone": Scene(times(10, LAYER * 4), 10, told=False),
    "experts chosen by argmax": Scene(times(8, EMBED, each(10, LAYER, ARGMAX, GEMM), HEAD, ARGMAX), 8, 10),
    # an eager generate(), whose layers repeat as well as its tokens
    "generate": Scene(
        [
            *times(1, EMBED, PROMPT * 12, HEAD, ARGMAX, TOKEN),
            *times(9, EMBED, LAYER * 12, HEAD, ARGMAX, TOKEN),
        ],
        10,
        12,
    ),
    "generate, sampling unknown": Scene(
        [*times(1, PROMPT * 12, HEAD, TOKEN), *times(9, LAYER * 12, HEAD, TOKEN)], 10, 12
    ),
    "generate, read back in layers": Scene(
        times(8, EMBED, each(10, LAYER, Copy("DtoH", 4)), HEAD, ARGMAX, TOKEN), 8, 10
    ),
    "generate, two read-backs": Scene(times(8, EMBED, LAYER * 10, HEAD, ARGMAX, Copy("DtoH"), TOKEN), 8, 10),
    # a denoiser between a text encoder and a decoder
    "unet": Scene([*times(1, EMBED, LAYER * 6), *times(9, UNET, SCHEDULER), VAE], 9),
    "dit": Scene([*times(1, EMBED, LAYER * 6), *times(9, ATTENTION * 14, SCHEDULER), VAE], 9, told=False),
    # loops of fewer than eight kernels
    "small loop": Scene(times(60, LINEAR), 60, told=False),
    "small loop, argmax": Scene(times(40, LINEAR, ARGMAX, Copy("DtoH")), 40),
    "small loop, now and then read back": Scene(times(8, LINEAR * 10, Copy("DtoH", 4)), 80, told=False),
    "inputs and results": Scene(times(60, UP, LINEAR, Copy("DtoH", 4000)), 60),
    "inputs and results, few": Scene(times(6, UP, LINEAR, Copy("DtoH", 4000)), 6, told=False),
    "halo exchange": Scene(times(40, "stencil", "pack", DOWN, UP, "unpack"), 40),
    "two exchanges": Scene(times(40, "stencil", "pack_x", DOWN, UP, "unpack", "pack_y", DOWN, UP), 40),
    "layers that wait": Scene(times(40, ATTENTION, DOWN), 40, told=False),
    "layers that wait twice": Scene(times(40, ATTENTION, DOWN, LINEAR, DOWN), 40, told=False),
    "frames through the host": Scene(times(20, "convert", DOWN, UP, FRAME, Copy("DtoH", 4000)), 20),
    "kernels that wait": Scene(times(40, "stencil", DOWN), 40, told=False),
    # programs that XLA compiled: every operation has its number, and runs once
    "xla": Scene(times(20, FUSED), 20),
    "xla, layers in a loop": Scene(times(6, "loop_add_fusion", FUSED * 12, HEAD), 6, 12, told=False),
    # training that is interrupted for an evaluation
    "epochs": Scene(
        [*times(10, MICRO_BATCH, ADAM), *times(20, LAYER * 6), *times(12, MICRO_BATCH, ADAM)], 12, 6
    ),
    # micro-batches
    "accumulation": Scene(times(6, MICRO_BATCH * 4, ADAM, ADAM), 6, 4),
    "accumulation, two iterations": Scene(times(2, MICRO_BATCH * 4, ADAM, ADAM), 2, 4),
    "accumulation, update unknown": Scene(times(6, MICRO_BATCH * 4, ["update_kernel"] * 6), 6, told=False),
    # one iteration only
    "one iteration": Scene(times(1, LAYER * 24, HEAD, LOSS, BACK * 24, [ADAM] * 12), 1, 24),
    "one iteration, loss unknown": Scene(times(1, LAYER * 24, HEAD, BACK * 24, [ADAM] * 12), 1, 24),
    "one iteration, recomputed": Scene(times(1, EMBED, LAYER * 24, LOSS, [*LAYER, *BACK] * 24, ADAM), 1, 24),
    "one iteration, accumulated": Scene(times(1, MICRO_BATCH * 8, ADAM), 1, 8),
    "one iteration, sharded": Scene(
        times(1, each(24, GATHER, LAYER), LOSS, each(24, GATHER, BACK, REDUCE), ADAM), 1, 48
    ),
    "one forward": Scene(times(1, EMBED, LAYER * 32, HEAD, ARGMAX), 1, 32),
    # many graph launches a step
    "pieces": Scene(
        times(8, EMBED, each(12, PIECE, "flash_fwd_kernel"), PIECE, HEAD, ARGMAX, Copy("DtoH")), 8, 12
    ),
    "pieces, nothing sampled": Scene(
        times(8, each(12, PIECE, "flash_fwd_kernel"), PIECE, HEAD, Copy("DtoH")), 8, 12
    ),
    "pieces and pauses": Scene(
        times(8, each(12, PIECE, "flash_fwd_kernel"), PIECE, Pause(200)), 8, told=False
    ),
    "graphs": Scene(times(8, Graph((EMBED, *LAYER * 12, HEAD, ARGMAX))), 8, 12),
    "graphs after a prompt": Scene(
        [
            *times(1, EMBED, PROMPT * 12, HEAD, ARGMAX),
            *times(8, Graph((*LAYER * 12, HEAD)), ARGMAX, Copy("DtoH")),
        ],
        9,
        12,
    ),
    # several passes of models a step
    "two networks": Scene(times(8, LAYER * 5, BACK * 5, ADAM, LAYER * 8, BACK * 8, ADAM), 8, told=False),
    "drafts": Scene(times(8, each(4, LAYER * 2, HEAD, ARGMAX), LAYER * 16, HEAD, ARGMAX), 8, told=False),
    # nothing that models have once a pass, but a result that the host waits for
    "frames": Scene(times(12, FRAME, Copy("DtoH", 4000)), 12),
    "pairs a wait": Scene(times(12, FRAME * 2, Copy("DtoH", 4000)), 24, told=False),
    "images": Scene(times(8, Copy("HtoD", 1 << 20), CONV * 12, HEAD, Copy("DtoH", 4000)), 8, 12),
}
