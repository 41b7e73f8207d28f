"""What the steps deliver: tokens a second, and how much of the device's peaks that takes."""

from __future__ import annotations

from advisor.facts import needs, origin
from advisor.facts.activity import WEIGHT_BYTES, read_ratio
from advisor.facts.spec import Entry, Need, group
from advisor.facts.writer import FactWriter
from advisor.knowledge.files import StepName, gpu
from advisor.metrics.analysis import Analysis
from advisor.metrics.pauses import step_times
from advisor.metrics.sizes import step_sizes
from advisor.model.facts import Scope

_SIZES = Need(
    "the names of the steps do not tell how many tokens they work on",
    "an NVTX range around each step that names its batch",
)
_CONFIG = Need("the number of parameters is not given", "--weight-bytes config.json")

FACTS = (
    *group("device", needs.CUDA, [
        Entry("serving.tokens_per_s", "count_per_s", "ranges", "Tokens that the steps work on a second, as captured: prompts read and tokens generated", "tokens by range names over step times", needs=(needs.STEPS, _SIZES)),
        Entry("serving.model_bandwidth_ratio", "ratio", "kernels", "Model-bandwidth utilisation: bytes of the weights over the time of a decode step, over the peak bandwidth (needs --weight-bytes)", "weight bytes x decode steps / their time / peak; none above 1", needs=(needs.STEPS, WEIGHT_BYTES)),
        Entry("serving.model_flop_ratio", "ratio", "ranges kernels", "Model-FLOP utilisation: two operations a parameter and token over the time of the steps, over the dense 16-bit peak (needs --weight-bytes config.json)", "2 x parameters x tokens / step times / peak; attention is not counted", needs=(needs.STEPS, _SIZES, _CONFIG)),
    ], columns=origin.STEPS),
)  # fmt: skip


def rate_facts(
    a: Analysis, device: int, out: FactWriter, weight_bytes: int | None, parameters: int | None
) -> None:
    """`weight_bytes` and `parameters` are those that one step reads, where the user gave them."""
    if not a.step_count:
        return
    scope, times = Scope(device=device), step_times(a)
    seconds = float(times.sum()) / 1e9
    decode = a.window_phases == "decode"
    if weight_bytes and decode.any():
        read = read_ratio(a, device, weight_bytes * int(decode.sum()), float(times[decode].sum()))
        out.put("serving.model_bandwidth_ratio", read, scope)
    counts = [_tokens(size) for size in step_sizes(a, a.window_steps)]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts) or not seconds:
        return
    out.put("serving.tokens_per_s", sum(known) / seconds, scope)
    about = gpu(a.device(device).name)
    peak = about.tensor_tflops.get("fp16") if about else None
    if parameters and peak:
        ratio = 2 * parameters * sum(known) / seconds / (peak * 1e12)
        out.put("serving.model_flop_ratio", ratio if ratio <= 1 else None, scope)


def _tokens(size: StepName | None) -> int | None:
    """Tokens of one step: those that its name counts, else one for each sequence of a decode."""
    if size is None:
        return None
    if size.tokens is not None:
        return size.tokens + (size.generation_tokens or size.generation or 0)
    return size.batch if size.phase == "decode" or not size.context else None
