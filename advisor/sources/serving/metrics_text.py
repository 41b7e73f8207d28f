"""`/metrics` of serving engines in the text format of Prometheus -> rows of their load.

One scrape shows what is so now and means since the start. Of several, each is compared with the one before it
and counts as far as its counters grew: what was before the first is history. Samples may have times (the last
number of a line, in ms), by which counters of tokens are rates. Lines that begin with `# server:` tell of its
settings, as a log does when the server starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct, field

from advisor.numerals import read_float, read_int
from advisor.reading import short_lines
from advisor.sources.ranges import share_factor
from advisor.sources.schema import LOAD_BOTH
from advisor.sources.serving.line_times import moment_of
from advisor.sources.serving.log_lines import Row, ServerLog, read_settings

_SAMPLE = re.compile(
    r"^([a-zA-Z_:][\w:]*)(?:\{([^}]*)\})?\s+(-?[\d.]+(?:[eE][-+]?\d+)?|NaN|[+-]Inf)(?:\s+(\d{1,18}))?\s*$"
)
_LABEL = re.compile(r'\b(\w+)="((?:[^"\\]|\\.)*)"')
_PREFIXES = {
    "vllm:": "vllm",
    "sglang:": "sglang",
    "sglang_": "sglang",
    "tgi_": "tgi",
    "nv_": "triton-server",
    "llamacpp:": "native",
}
#: Our column -> names of gauges, and what they are multiplied with.
_GAUGES = {
    "running": (
        (
            "vllm:num_requests_running",
            "sglang:num_running_reqs",
            "tgi_batch_current_size",
            "llamacpp:requests_processing",
        ),
        1.0,
    ),
    "waiting": (
        (
            "vllm:num_requests_waiting",
            "sglang:num_queue_reqs",
            "tgi_queue_size",
            "nv_inference_pending_request_count",
            "llamacpp:requests_deferred",
        ),
        1.0,
    ),
    "cache_used": (
        (
            "vllm:kv_cache_usage_perc",
            "vllm:gpu_cache_usage_perc",
            "sglang:token_usage",
            "llamacpp:kv_cache_usage_ratio",
        ),
        1.0,
    ),
    "fetching": (("vllm:num_requests_kv_fetch_by_stage",), 1.0),
    "output_per_s": (("vllm:avg_generation_throughput_toks_per_s", "sglang:gen_throughput"), 1.0),
    "prompt_per_s": (("vllm:avg_prompt_throughput_toks_per_s",), 1.0),
    "prefix_hit": (("sglang:cache_hit_rate", "vllm:gpu_prefix_cache_hit_rate"), 1.0),
    "accepted": (("sglang:spec_accept_length",), 1.0),
}
#: The stage of requests whose cache is there: they wait for a place, as others do.
_FETCHED = "completed_waiting"
_OF_A_MOMENT = frozenset(name for names, _ in _GAUGES.values() for name in names)
#: Our column -> counters of tokens, for engines that say no rate.
_RATES = {
    "output_per_s": ("vllm:generation_tokens_total", "sglang:generation_tokens_total"),
    "prompt_per_s": (
        "vllm:prompt_tokens_total",
        "sglang:prompt_tokens_total",
        "llamacpp:prompt_tokens_total",
    ),
}
#: Tokens that a verification yields besides the accepted ones of its draft.
_VERIFIED = ("vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_drafts_total")
#: Labels by which the processes of one replica are told apart: each says the same of it.
_PROCESSES = ("tp_rank", "pp_rank", "moe_ep_rank")
#: Our column -> counters of which the first is divided by the second, and the factor of the quotient.
_QUOTIENTS = {
    "token_ms": (
        (
            ("vllm:time_per_output_token_seconds_sum", "vllm:time_per_output_token_seconds_count", 1e3),
            (
                "vllm:request_time_per_output_token_seconds_sum",
                "vllm:request_time_per_output_token_seconds_count",
                1e3,
            ),
            ("vllm:inter_token_latency_seconds_sum", "vllm:inter_token_latency_seconds_count", 1e3),
            ("sglang:time_per_output_token_seconds_sum", "sglang:time_per_output_token_seconds_count", 1e3),
            ("sglang:inter_token_latency_seconds_sum", "sglang:inter_token_latency_seconds_count", 1e3),
            (
                "tgi_request_mean_time_per_token_duration_sum",
                "tgi_request_mean_time_per_token_duration_count",
                1e3,
            ),
        )
    ),
    "queue_ms": (
        (
            ("vllm:request_queue_time_seconds_sum", "vllm:request_queue_time_seconds_count", 1e3),
            ("sglang:queue_time_seconds_sum", "sglang:queue_time_seconds_count", 1e3),
            ("tgi_request_queue_duration_sum", "tgi_request_queue_duration_count", 1e3),
            ("nv_inference_queue_duration_us", "nv_inference_request_success", 1e-3),
        )
    ),
    "first_token_ms": (
        (
            ("vllm:time_to_first_token_seconds_sum", "vllm:time_to_first_token_seconds_count", 1e3),
            ("sglang:time_to_first_token_seconds_sum", "sglang:time_to_first_token_seconds_count", 1e3),
        )
    ),
    "request_ms": (
        (
            ("vllm:e2e_request_latency_seconds_sum", "vllm:e2e_request_latency_seconds_count", 1e3),
            ("sglang:e2e_request_latency_seconds_sum", "sglang:e2e_request_latency_seconds_count", 1e3),
            ("tgi_request_duration_sum", "tgi_request_duration_count", 1e3),
            ("nv_inference_request_duration_us", "nv_inference_request_success", 1e-3),
        )
    ),
    "prefix_hit": (
        (
            ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", 1.0),
            ("vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_queries_total", 1.0),
        )
    ),
    "acceptance": (
        (("vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_draft_tokens_total", 1.0),)
    ),
}
#: Column of a mean -> column that says over how many.
_COUNTS = {
    "token_ms": "token_count",
    "queue_ms": "queue_count",
    "first_token_ms": "first_token_count",
    "request_ms": "request_count",
    "prefix_hit": "prefix_count",
}
#: Counters of requests, and of batches in which they ran.
_BATCHES = ("nv_inference_count", "nv_inference_exec_count")
_PREEMPTIONS = (
    "vllm:num_preemptions_total",
    "sglang:num_retracted_reqs",
    "sglang:num_retracted_requests_total",
)
#: vLLM counts requests that ended, by their reason: those that did not get a whole answer.
_ENDED, _CUT_SHORT = "vllm:request_success_total", ("abort", "error")
_ENDED_SHORT = f"{_ENDED}:short"
_ABORTED = (
    _ENDED_SHORT,
    "sglang:num_aborted_requests_total",
    "tgi_request_failure",
    "nv_inference_request_failure",
)
#: A scrape with one of these has no sample of aborted ones until the first is aborted.
_ALL_ENDED = (_ENDED, "sglang:num_requests_total", "tgi_request_count")
#: llama.cpp: rates of one slot while it works, since the scrape before, and how many work at once.
_SLOT_RATES = {
    "slots_busy": "llamacpp:n_busy_slots_per_decode",
    "slot_output_per_s": "llamacpp:predicted_tokens_seconds",
    "slot_prompt_per_s": "llamacpp:prompt_tokens_seconds",
}
_SLOT_SECONDS = ("llamacpp:tokens_predicted_seconds_total", "llamacpp:tokens_predicted_total")
_SLOT_PROMPTS = ("llamacpp:prompt_seconds_total", "llamacpp:prompt_tokens_total")
_STEPS = "llamacpp:n_decode_total"
_SETTINGS = {"vllm:cache_config_info": {"num_gpu_blocks": "cache_blocks"}}


SERVER = "# server:"


class Sample(NamedTuple):
    """`time` in ms, None if the line has none."""

    name: str
    labels: dict[str, str]
    value: float
    time: int | None = None


#: More than any server counts of requests.
_MOST_COUNTED = 1e12


class _Scrape(Struct):
    """Sums of samples by replica and name."""

    time: int | None
    values: dict[str, dict[str, float]] = field(default_factory=dict)

    def total(self, names: Sequence[str]) -> float | None:
        """The sum over all replicas; None if none has such a sample."""
        found = [of[name] for of in self.values.values() for name in names if name in of]
        return sum(found) if found else None


def is_metrics(text: str) -> bool:
    """True if the text holds a metric of an engine that is known here."""
    return any(engine_of(sample.name) for sample in samples(text))


def engine_of(name: str) -> str | None:
    """The engine whose metric it is."""
    return next((e for prefix, e in _PREFIXES.items() if name.startswith(prefix)), None)


def samples(text: str) -> Iterator[Sample]:
    """The samples of a text that are a number; other lines are left out."""
    for line in short_lines(text)[0]:
        if line.startswith("#") or not (hit := _SAMPLE.match(line.strip())):
            continue
        if (value := read_float(hit[3])) is not None:
            yield Sample(hit[1], dict(_LABEL.findall(hit[2] or "")), value, read_int(hit[4]))


def read_metrics(text: str) -> ServerLog:
    """A row for each replica and scrape; of means and counters, the last scrape holds what changed, and each
    scrape that has a time what changed since the one before."""
    lines, longer = short_lines(text)
    log = ServerLog(torn=longer)
    for line in lines:
        if line.startswith(SERVER):
            read_settings(line, log)
    scrapes = _scrapes(text, log)
    busy = [
        any((scrape.total(_GAUGES[of][0]) or 0) > 0 for of in ("running", "waiting")) for scrape in scrapes
    ]
    for i, scrape in enumerate(scrapes):
        earlier = scrapes[i - 1] if i else None
        seconds = _seconds(earlier, scrape)
        under_load_s = _under_load(busy[max(i - 1, 0) : i + 1], seconds, scrape.time is not None)
        for replica, values in scrape.values.items():
            before = earlier.values.get(replica, {}) if earlier else None if len(scrapes) > 1 else {}
            row = _row(replica, values, before, seconds)
            if len(scrapes) > 1:
                row["under_load_s"] = under_load_s
            if scrape.time is not None and scrapes[0].time is not None:
                row["time_s"] = (scrape.time - scrapes[0].time) / 1e3
            log.rows.append(row)
    if len(log.rows) == len(scrapes) > 1:  # of one server
        _rates_of_slots(scrapes, log.rows)
    for column in ("cache_used", "prefix_hit"):
        factor = share_factor(row[column] for row in log.rows if column in row)
        for row in log.rows:
            if column in row:
                row[column] *= factor
    if scrapes and scrapes[0].time is not None:
        log.began = moment_of(scrapes[0].time)
    log.preempted = _growth([scrape.total(_PREEMPTIONS) for scrape in scrapes])
    log.aborted = _growth(_aborted(scrapes))
    if len(scrapes) == 1:
        log.settings["since_start"] = 1.0
    log.settings |= _slot_settings(scrapes)
    if scrapes and (a_batch := _a_batch(scrapes)) is not None:
        log.settings["requests_a_batch"] = a_batch
    return log


def _a_batch(scrapes: Sequence[_Scrape]) -> float | None:
    """Requests that ran as one batch, between the first scrape and the last; of one, since the start."""
    requests, batches = (
        (scrapes[-1].total((name,)) or 0.0)
        - ((scrapes[0].total((name,)) or 0.0) if len(scrapes) > 1 else 0.0)
        for name in _BATCHES
    )
    return requests / batches if requests > 0 and batches > 0 else None


def _aborted(scrapes: Sequence[_Scrape]) -> list[float | None]:
    """Requests that were aborted or failed by each scrape. Of several scrapes, one without the counter is
    ahead of the first of them, if it counts the others; where all lack it, it is not known."""
    totals = [scrape.total(_ABORTED) for scrape in scrapes]
    if all(total is None for total in totals):
        return totals
    return [
        0.0 if total is None and scrape.total(_ALL_ENDED) is not None else total
        for total, scrape in zip(totals, scrapes, strict=True)
    ]


def _growth(totals: Sequence[float | None]) -> int | None:
    """What a counter of requests grew by between the first scrape and the last, of one scrape its value since
    the start; None if no scrape has it. A counter that falls belongs to a server that started again; what no
    server counts is left out."""
    counts = [total for total in totals if total is not None and total <= _MOST_COUNTED]
    if len(counts) < 2:
        return int(counts[0]) if counts else None
    return int(sum(max(after - before, 0.0) for before, after in pairwise(counts)))


def _scrapes(text: str, log: ServerLog) -> list[_Scrape]:
    """The scrapes of a text: another begins where a sample is there again, or has another time."""
    scrapes: list[_Scrape] = []
    seen: set[tuple[str, str]] = set()
    processes: dict[str, list[str | None]] = {}
    for sample in samples(text):
        if (engine := engine_of(sample.name)) is None or sample.labels.get("stage") == _FETCHED:
            continue
        if sample.value < 0 and sample.name not in _OF_A_MOMENT:  # their rows are dropped later, and counted
            continue
        log.engine = log.engine or engine
        replica = sample.labels.get("engine", sample.labels.get("dp_rank", "0"))
        process = [sample.labels.get(name) for name in _PROCESSES]
        if any(process) and processes.setdefault(replica, process) != process:
            continue
        key = (sample.name, repr(sorted(sample.labels.items())))
        if not scrapes or key in seen or sample.time != scrapes[-1].time:
            scrapes.append(_Scrape(sample.time))
            seen.clear()
        seen.add(key)
        of = scrapes[-1].values.setdefault(replica, {})
        of[sample.name] = of.get(sample.name, 0.0) + sample.value
        if sample.name == _ENDED and sample.labels.get("finished_reason") in _CUT_SHORT:
            of[_ENDED_SHORT] = of.get(_ENDED_SHORT, 0.0) + sample.value
    return scrapes


def _seconds(before: _Scrape | None, scrape: _Scrape) -> float | None:
    """The time between two scrapes; None if it is not known."""
    if before is None or before.time is None or scrape.time is None or scrape.time <= before.time:
        return None
    return (scrape.time - before.time) / 1e3


def _under_load(busy: Sequence[bool], seconds: float | None, timed: bool) -> float:
    """How long requests ran or waited before a scrape, as it and the one before it (`busy`, the last one its
    own) tell; nothing where the load begins or ends between them, which they do not tell when. Scrapes
    without times are a second each."""
    if not timed:
        return float(busy[-1])
    return seconds if seconds is not None and all(busy) else 0.0


def _row(
    replica: str, values: Mapping[str, float], before: Mapping[str, float] | None, seconds: float | None
) -> Row:
    """The row of a replica in one scrape; `before` is the scrape ahead of it, None if what counters hold is
    history."""
    row: Row = {"kind": float(LOAD_BOTH), "replica": read_float(replica) or 0.0}
    for column, (names, scale) in _GAUGES.items():
        if (value := next((values[n] for n in names if n in values), None)) is not None:
            row[column] = value * scale
    if before is None:
        return row
    for column, quotients in _QUOTIENTS.items():
        for above, below, scale in quotients:
            if (found := _quotient(above, below, values, before)) is not None:
                row[column] = found[0] * scale
                if column in _COUNTS:
                    row[_COUNTS[column]] = found[1]
                break
    row |= _of_slots(values, before, timed=seconds is not None)
    if (accepted := _quotient(*_VERIFIED, values, before)) is not None:
        row["accepted"] = 1 + accepted[0]
    if seconds is not None:
        rated = [column for column in _RATES if column not in row]
        for column in rated:
            for name in _RATES[column]:
                if name in values and name in before and values[name] >= before[name]:
                    row[column] = (values[name] - before[name]) / seconds
        if "output_per_s" in rated and "running" in row:  # of the same stretch
            was = next((before[n] for n in _GAUGES["running"][0] if n in before), row["running"])
            row["running"] = (row["running"] + was) / 2
    return row


def _of_slots(values: Mapping[str, float], before: Mapping[str, float], timed: bool) -> Row:
    """Of llama.cpp: the time of a token in a slot, and the tokens of all slots that work. Its rates are of
    what ended since anyone scraped it; counters of two scrapes tell what ended between these."""
    rate, slots = (values.get(_SLOT_RATES[n], 0.0) for n in ("slot_output_per_s", "slots_busy"))
    if (found := _quotient(*_SLOT_SECONDS, values, before)) is not None and before:
        row = {"token_ms": 1e3 * found[0], "token_count": found[1]}
        then, now = (of.get(_STEPS, 0.0) for of in (before, values))
        if now > then:
            slots = (slots * now - before.get(_SLOT_RATES["slots_busy"], 0.0) * then) / (now - then)
        return row if timed else row | {"output_per_s": max(slots, 1.0) / found[0]}
    if rate > 0 and not before:
        return {"token_ms": 1e3 / rate, "output_per_s": rate * max(slots, 1.0)}
    return {}


def _slot_settings(scrapes: Sequence[_Scrape]) -> dict[str, float]:
    """Of llama.cpp: slots that are busy, and their rates; of several scrapes, from the first to the last."""
    found: dict[str, float] = {}
    if not scrapes:
        return found
    first, last = scrapes[0], scrapes[-1]
    for setting, name in _SLOT_RATES.items():
        if (value := last.total((name,))) is not None:
            found[setting] = value
    if len(scrapes) == 1 or not found:
        return found
    grown = {
        n: (last.total((n,)) or 0.0) - (first.total((n,)) or 0.0) for n in (*_SLOT_SECONDS, *_SLOT_PROMPTS)
    }
    for setting, (seconds, tokens) in (
        ("slot_output_per_s", _SLOT_SECONDS),
        ("slot_prompt_per_s", _SLOT_PROMPTS),
    ):
        if grown[seconds] > 0 and grown[tokens] > 0:
            found[setting] = grown[tokens] / grown[seconds]
    then, now = (scrape.total((_STEPS,)) or 0.0 for scrape in (first, last))
    busy = first.total((_SLOT_RATES["slots_busy"],))
    if busy is not None and "slots_busy" in found and now > then > 0:
        found["slots_busy"] = max((found["slots_busy"] * now - busy * then) / (now - then), 0.0)
    return found


def _rates_of_slots(scrapes: Sequence[_Scrape], rows: Sequence[Row]) -> None:
    """llama.cpp counts the tokens of a request when it ends: those of a scrape were made since the last one
    that counted more than the one before it."""
    counts = [scrape.total(_SLOT_SECONDS[1:]) for scrape in scrapes]
    since: _Scrape | None = None
    for row, scrape, (before, count) in zip(rows[1:], scrapes[1:], pairwise(counts), strict=True):
        if before is None or count is None or count <= before:
            continue
        if since is not None and (seconds := _seconds(since, scrape)) is not None:
            row |= {"output_per_s": (count - before) / seconds, "stretch_s": seconds}
        since = scrape


def _quotient(
    above: str, below: str, values: Mapping[str, float], before: Mapping[str, float]
) -> tuple[float, float] | None:
    """The mean of what came since `before`, and over how many; None if nothing came, or if a counter fell
    because the server started again."""
    count = values.get(below, 0.0) - before.get(below, 0.0)
    if above not in values or count <= 0 or values[above] < before.get(above, 0.0):
        return None
    return (values[above] - before.get(above, 0.0)) / count, count
