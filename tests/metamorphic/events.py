"""Edits of PyTorch profiler traces: functions over the parsed document."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Document = dict[str, Any]
Change = Callable[[Document], object]


def events(document: Document) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document["traceEvents"]
    return found


def timed(document: Document) -> list[dict[str, Any]]:
    return [e for e in events(document) if isinstance(e.get("ts"), int | float)]


def shifted(us: int) -> Change:
    def change(document: Document) -> None:
        for event in timed(document):
            event["ts"] += us

    return change


def in_random_order(document: Document) -> None:
    random.Random(2).shuffle(events(document))


def without(*categories: str) -> Change:
    def change(document: Document) -> None:
        document["traceEvents"] = [e for e in events(document) if e.get("cat") not in categories]

    return change


def without_phase(phase: str) -> Change:
    """No flows ("s", "f") or no metadata ("M")."""

    def change(document: Document) -> None:
        document["traceEvents"] = [e for e in events(document) if e.get("ph") != phase]

    return change


def with_event_of_the_users(document: Document) -> None:
    events(document).append({"ph": "i", "name": "note", "cat": "mine", "ts": 1.5, "s": "g"})


def with_shapeless_events(document: Document) -> None:
    events(document).extend([{}, {"ph": "X"}, {"name": "lost"}])


def with_keys_of_the_users(document: Document) -> None:
    document["my notes"] = {"a": [1, 2, 3]}
    for event in timed(document)[::7]:
        event["mine"] = None


def correlations_renumbered(document: Document) -> None:
    for event in timed(document):
        args = event.get("args") or {}
        if (args.get("correlation") or 0) > 0:
            args["correlation"] += 500_000


def process_renumbered(document: Document) -> None:
    """Another process on the host; devices keep their numbers."""
    for event in timed(document):
        if isinstance(event.get("pid"), int) and event["pid"] > 50:
            event["pid"] += 1000


def steps_renamed(document: Document) -> None:
    for event in timed(document):
        event["name"] = str(event.get("name")).replace("decode_step", "zork")


def with_stacks(document: Document) -> None:
    """`with_stack=True`: a Python call around every operator."""
    document["with_stack"] = 1
    for event in [e for e in timed(document) if e.get("cat") == "cpu_op"]:
        events(document).append(event | {"cat": "python_function", "name": "model.py(1): forward"})


def with_loader(document: Document) -> None:
    """Each step begins ten times its length later, and a data loader lies before it."""
    steps = sorted((e for e in timed(document) if e.get("cat") == "user_annotation"), key=lambda e: e["ts"])
    starts, wait = [s["ts"] for s in steps], 10 * steps[0]["dur"]
    for event in timed(document):
        event["ts"] += wait * sum(event["ts"] >= s for s in starts)
    for step in steps:
        events(document).append(
            step
            | {
                "name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                "ts": step["ts"] - wait + 20,
                "dur": wait - 40,
            }
        )


def kernels_lost(every: int) -> Change:
    def change(document: Document) -> None:
        kernels = [id(e) for e in events(document) if e.get("cat") == "kernel"][::every]
        gone = set(kernels)
        document["traceEvents"] = [e for e in events(document) if id(e) not in gone]

    return change


def without_durations(category: str) -> Change:
    def change(document: Document) -> None:
        for event in events(document):
            if event.get("cat") == category:
                event.pop("dur", None)

    return change


def to_whole_us(document: Document) -> None:
    """Times as they were written until 2023."""
    for event in timed(document):
        event["ts"] = int(event["ts"])
        if "dur" in event:
            event["dur"] = int(event["dur"])


def doubled(*categories: str) -> Change:
    def change(document: Document) -> None:
        events(document).extend(dict(e) for e in list(events(document)) if e.get("cat") in categories)

    return change


def one_far_away(document: Document) -> None:
    """The clock of one kernel is thirty years ahead."""
    kernels = [e for e in timed(document) if e.get("cat") == "kernel"]
    kernels[len(kernels) // 2]["ts"] += 30 * 365 * 86_400 * 1_000_000


def first_part(share: float) -> Change:
    def change(document: Document) -> None:
        times = [e["ts"] for e in timed(document) if e.get("cat") == "kernel"]
        until = min(times) + share * (max(times) - min(times))
        document["traceEvents"] = [
            e for e in events(document) if not isinstance(e.get("ts"), int | float) or e["ts"] < until
        ]

    return change


def on_device(number: int) -> Change:
    """The GPU has another number: its events say so in their process and in their arguments."""

    def change(document: Document) -> None:
        for event in events(document):
            args = event.get("args") or {}
            if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"):
                event["pid"] = number
                args["device"] = number
        for known in document.get("deviceProperties", []):
            known["id"] = number

    return change


def with_polling_thread(document: Document) -> None:
    """Another thread asks an event every 50 us."""
    calls = [e for e in timed(document) if e.get("cat") == "cuda_runtime"]
    first, last = min(e["ts"] for e in calls), max(e["ts"] for e in calls)
    highest = max(e["args"]["correlation"] for e in calls)
    for i in range(int((last - first) / 50)):
        event = calls[0] | {"name": "cudaEventQuery", "tid": 77, "ts": first + 50 * i, "dur": 1}
        events(document).append(event | {"args": {"correlation": highest + 1 + i}})


#: Categories of what ran on a device.
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")
#: Numbers that tie events of one moment together, in `args`.
_TIES = ("correlation", "External id", "Ev Idx", "Python id", "Python parent id", "Python module id")


def window_again(gpu: tuple[int, int], host: tuple[int, int], zero: int, times: int) -> Change:
    """Only the events of a window (what ran on the GPU in [start, end), the calls that issued it and what the
    host did meanwhile), so often in a row: times and the numbers that tie events are moved on each time. All
    are ns, counted from `zero` of the file."""

    def change(document: Document) -> None:
        every, start, end = timed(document), *gpu
        begun = {id(e): round(e["ts"] * 1_000) - zero for e in every}
        on_device = {id(e) for e in every if e.get("cat") in _ON_DEVICE}
        mine, others = set(), set()
        for e in every:
            if id(e) in on_device and (tie := _tie(e)) is not None:
                (mine if start <= begun[id(e)] < end else others).add(tie)

        def kept(e: dict[str, Any]) -> bool:
            at, tie = begun[id(e)], _tie(e)
            if id(e) in on_device:
                return start <= at < end
            meanwhile = host[0] <= at < host[1]
            if e.get("cat") in ("cuda_runtime", "cuda_driver", "ac2g"):
                return tie in mine or (meanwhile and tie not in others)
            last = at + round(float(e.get("dur") or 0) * 1_000)
            return meanwhile and last <= max(host[1], end)

        once = [e for e in every if e.get("ph") != "M" and kept(e)]
        step = {name: _width([number for e in once for number in _numbers(e, name)]) for name in _TIES}
        again = [
            _later(e, i * (end - start) / 1_000, {n: i * w for n, w in step.items()})
            for i in range(times)
            for e in once
        ]
        document["traceEvents"] = [e for e in events(document) if e.get("ph") == "M"] + again

    return change


def _tie(event: dict[str, Any]) -> int | None:
    if event.get("cat") == "ac2g":
        return event.get("id")
    found: int | None = (event.get("args") or {}).get("correlation")
    return found


def _numbers(event: dict[str, Any], name: str) -> list[int]:
    found = (event.get("args") or {}).get(name)
    return [found] if isinstance(found, int) else []


def _width(numbers: list[int]) -> int:
    return max(numbers) - min(numbers) + 1 if numbers else 0


def _later(event: dict[str, Any], us: float, by: dict[str, int]) -> dict[str, Any]:
    later = event | {"ts": round(event["ts"] + us, 3)}
    if event.get("cat") == "ac2g":
        later["id"] = event["id"] + by["correlation"]
    if isinstance(args := event.get("args"), dict):
        later["args"] = args | {n: args[n] + by[n] for n in _TIES if isinstance(args.get(n), int)}
    return later
