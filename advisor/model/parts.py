"""Parts of the budget: their names, order, words and colours. `advisor.metrics.budget` defines the time
that each counts, ``knowledge/facts/device.yaml`` describes it in words.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Stripes(NamedTuple):
    """A pattern over a colour: angle in degrees, width and period in px."""

    degrees: int
    tone: Literal["light", "dark"]
    width: int
    every: int


class Dots(NamedTuple):
    """A pattern over a colour: radius, radius with the soft edge, and period in px."""

    radius: float
    edge: float
    every: int


class PartSpec(NamedTuple):
    """How a part is shown: in words; by sign and style on a terminal, where signs differ by more
    than case, so that bars are readable without colour (`compute` is a full bar there and C on a page); by a
    colour of its own in a workbook; by colour and pattern on a page; and by a colour of Perfetto's."""

    words: str
    sign: str
    style: str
    plain: str
    colour: str
    pattern: Stripes | Dots | None = None
    perfetto: str | None = None


#: During these the device works.
BUSY: dict[str, PartSpec] = {
    "compute": PartSpec("compute", "", "green", "009E73", "009e73", None),
    "communication": PartSpec("communication", "N", "magenta", "CC79A7", "cc79a7", None),
    "htod": PartSpec("HtoD copies", ">", "blue", "0072B2", "0072b2", None),
    "dtoh": PartSpec("DtoH copies", "<", "blue", "3D96CC", "0072b2", Stripes(45, "light", 3, 8)),
    "other_copy": PartSpec("other copies", "=", "blue", "56B4E9", "56b4e9", None),
    "migration": PartSpec("page migration", "m", "blue", "2E8BC0", "56b4e9", Stripes(135, "dark", 2, 7)),
}
#: During these it waits.
IDLE: dict[str, PartSpec] = {
    "graph_internal": PartSpec("between graph nodes", "b", "cyan", "7A8A99", "7a8a99", None, "grey"),
    "queued": PartSpec(
        "queued, not started", "q", "cyan", "9AA7B3", "7a8a99", Stripes(45, "light", 3, 8), "grey"
    ),
    "launch_latency": PartSpec(
        "launch latency", "t", "red", "E58A3C", "d55e00", Stripes(135, "light", 3, 7), "thread_state_runnable"
    ),
    "profiler": PartSpec(
        "profiler", "p", "dim", "B9C0C7", "b9c0c7", Stripes(135, "dark", 1, 6), "generic_work"
    ),
    "startup": PartSpec("start-up", "u", "dim", "C9B8A6", "c9b8a6", Dots(1, 1.4, 5), "startup"),
    "gc": PartSpec("Python GC", "y", "yellow", "8C510A", "8c510a", None, "olive"),
    "gil": PartSpec("GIL wait", "I", "yellow", "A8733A", "8c510a", Stripes(45, "light", 3, 8), "olive"),
    "alloc": PartSpec(
        "alloc or free call", "A", "yellow", "BF9460", "b8860b", Dots(1.2, 1.6, 6), "thread_state_sleeping"
    ),
    "sync": PartSpec("synchronize call", "S", "yellow", "E69F00", "f0e442", None, "yellow"),
    "copy_call": PartSpec(
        "copy call", "k", "yellow", "F0C05A", "f0e442", Stripes(45, "dark", 2, 8), "thread_state_iowait"
    ),
    "launch_call": PartSpec("launch or other call", "L", "bold red", "D55E00", "d55e00", None, "bad"),
    "graph_launch_call": PartSpec(
        "graph launch call", "R", "red", "B34A00", "d55e00", Stripes(0, "dark", 2, 7), "bad"
    ),
    "os": PartSpec("OS call", "O", "yellow", "6B4C9A", "a6a6a6", None, "thread_state_sleeping"),
    "host_gap": PartSpec("host gap", "g", "bold yellow", "B8AE1F", "e69f00", None, "terrible"),
    "host_between_launches": PartSpec(
        "host, between launches",
        "h",
        "bold yellow",
        "DDD24A",
        "e69f00",
        Stripes(135, "light", 4, 10),
        "terrible",
    ),
    "unified_memory": PartSpec(
        "unified memory", "v", "yellow", "C58F2B", "c58f2b", None, "thread_state_iowait"
    ),
    "unknown": PartSpec("unknown", "?", "dim", "D9DFE5", "d4d8dc", Dots(1, 1.4, 7), "white"),
}
PARTS = BUSY | IDLE
