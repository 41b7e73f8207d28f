"""Where GPU work comes from: the operator with its operands, the Python module and the source line around
the call that launched it, as a PyTorch trace records them (and nsys with ``--pytorch``, but for modules),
or as another recording of the same program shows them (`Provenance`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.errors import InputError
from advisor.metrics.host import OPERATOR_TRAITS, Ranges, innermost
from advisor.metrics.kernels import dense
from advisor.metrics.pairing import Match, align, match_calls
from advisor.model.arrays import Array, distinct
from advisor.model.once import cached_property
from advisor.sources.schema import MISSING, OPERATIONS
from advisor.sources.trace import Columns, Trace

if TYPE_CHECKING:
    from advisor.metrics.analysis import Analysis

#: Sizes in the text of an operator's NVTX range, as torch.autograd.profiler.emit_nvtx(record_shapes) writes.
_SIZES = re.compile(r", sizes = (\[.*\])(?:,|$)")
_NUMBER = re.compile(r"_\d+$")
#: Folders above the last one of a source file carry little information.
_FOLDERS = re.compile(r"^.*/(?=[^/]+/[^/]+$)")


class Module(NamedTuple):
    """A Python module that ran, by its name (``Linear_3``) below the module `parent`."""

    parent: int
    name: str

    @property
    def kind(self) -> str:
        """Its class: the trace numbers the objects of one."""
        return _NUMBER.sub("", self.name)


class Origins(Struct, frozen=True):
    """Where each of some calls, or pieces of GPU work, comes from: positions in the lists beside, MISSING
    if unknown. `outer` is the outermost operator, `operator` the innermost one."""

    outer: Array
    operator: Array
    operands: Array
    module: Array
    line: Array
    operators: list[str]
    operand_texts: list[str]
    modules: list[Module]
    lines: list[str]

    def take(self, at: Array) -> Origins:
        """Those of rows `at`, nothing where it is MISSING."""

        def taken(values: Array) -> Array:
            padded = np.append(values, MISSING)
            return np.asarray(padded[np.where(at < 0, len(values), at)])

        columns = (self.outer, self.operator, self.operands, self.module, self.line)
        outer, operator, operands, module, line = map(taken, columns)
        return replace(self, outer=outer, operator=operator, operands=operands, module=module, line=line)

    @property
    def known(self) -> Array:
        """Rows with a known operator, module or line."""
        return np.asarray((self.operator >= 0) | (self.module >= 0) | (self.line >= 0))

    def path(self, module: int) -> list[int]:
        """The module below those around it, the outermost first."""
        found: list[int] = []
        while module >= 0:
            found.append(module)
            module = self.modules[module].parent
        return found[::-1]

    def place(self, i: int) -> str:
        """Row i in words: ``model.py(57): forward in LlamaMLP > aten::linear``; empty if unknown."""
        line = self.lines[self.line[i]] if self.line[i] >= 0 else ""
        module = self.modules[self.module[i]].kind if self.module[i] >= 0 else ""
        outer = self.operators[self.outer[i]] if self.outer[i] >= 0 else ""
        where = " in ".join(part for part in (line, module) if part)
        return " > ".join(part for part in (where, outer) if part)

    def by_place(self, at: Array, weight: Array) -> list[tuple[str, int, float]]:
        """Place (- if unknown), rows and their weight for the rows `at`, the heaviest first."""
        if not len(at):
            return []
        kinds: dict[str, int] = {}
        of = np.array([kinds.setdefault(m.kind, len(kinds)) for m in self.modules] + [-1], np.int64)
        keys = np.stack([self.line[at], of[self.module[at]], self.outer[at]])
        groups, first, group_of = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        held = np.bincount(group_of.ravel(), weight, minlength=groups.shape[1])
        count = np.bincount(group_of.ravel(), minlength=groups.shape[1])
        order = np.argsort(-held, kind="stable").tolist()
        return [(self.place(int(at[first[i]])) or "-", int(count[i]), float(held[i])) for i in order]


def find_origins(trace: Trace, ranges: Ranges, thread: Array, time: Array) -> Origins:
    """Where calls come from that these threads made at these times (ns)."""
    count = len(time)
    rows = {n: np.full(count, MISSING, np.int64) for n in ("outer", "operator", "operands", "module", "line")}
    names: dict[str, int] = {}
    sizes: dict[str, int] = {}
    modules: list[Module] = []
    functions = trace.columns("python_calls", ("start", "end", "thread", "text_id"))
    line_ids, line_of = np.unique(functions["text_id"], return_inverse=True)
    called = trace.columns("modules", ("start", "end", "thread", "text_id"))
    operators = _operators(trace, ranges, names, sizes)
    known: dict[Module, int] = {}
    for each in distinct(thread).tolist():
        mine = np.flatnonzero(thread == each)
        mine = mine[np.argsort(time[mine], kind="stable")]
        when = time[mine]
        here = operators["thread"] == each
        span = operators["start"][here], operators["end"][here]
        rows["outer"][mine] = innermost(when, *span, operators["name"][here], 1)
        rows["operator"][mine] = innermost(when, *span, operators["name"][here])
        # The innermost operator has the sizes of the kernel; one without any inherits those around it.
        sized = here & (operators["operands"] >= 0)
        inner = innermost(when, operators["start"][sized], operators["end"][sized], np.flatnonzero(sized))
        found, inner = mine[inner >= 0], inner[inner >= 0]
        same = operators["name"][inner] == rows["operator"][found]
        rows["operands"][found[same]] = operators["operands"][inner[same]]
        here = functions["thread"] == each
        rows["line"][mine] = innermost(when, functions["start"][here], functions["end"][here], line_of[here])
        here = called["thread"] == each
        tree = {n: v[here] for n, v in called.items()}
        rows["module"][mine] = innermost(when, tree["start"], tree["end"], _nested(trace, tree, known))
    modules += known
    lines = [_FOLDERS.sub("", text) for text in trace.texts(line_ids.tolist())]
    return Origins(**rows, operators=list(names), operand_texts=list(sizes), modules=modules, lines=lines)


def _operators(trace: Trace, ranges: Ranges, names: dict[str, int], sizes: dict[str, int]) -> Columns:
    """Ranges that a profiler put around operators, with their `name` and `operands` as positions in
    `names` and `sizes`, which are filled here."""
    columns = trace.columns("ranges", ("start", "end", "thread", "domain", "operands_id"))
    text = ranges.text_of
    # nsys keeps what emit_nvtx wrote as ranges like any other.
    written = np.array([is_operator_text(t) for t in ranges.texts], bool)
    chosen = columns["domain"] == OPERATIONS
    if written.any():
        chosen |= written[text]
    found = {n: v[chosen] for n, v in columns.items()}
    text = text[chosen]
    used = distinct(text).tolist()
    name, operands = (np.full(len(ranges.texts), MISSING, np.int64) for _ in range(2))
    for i in used:
        name[i] = names.setdefault(OPERATOR_TRAITS.sub("", ranges.texts[i]), len(names))
        if written[i] and (sizes_of := _SIZES.search(ranges.texts[i])) is not None:
            operands[i] = sizes.setdefault(sizes_of[1], len(sizes))
    ids, at = np.unique(found["operands_id"], return_inverse=True)
    number = [MISSING if i == MISSING else sizes.setdefault(trace.text(i), len(sizes)) for i in ids.tolist()]
    given = np.array(number, np.int64)[at] if len(ids) else ids
    return found | {"name": name[text], "operands": np.where(given >= 0, given, operands[text])}


def is_operator_text(text: str) -> bool:
    """True for ``aten::mm, op_id = 7, sizes = [[4, 8], [8, 8]]``."""
    return "::" in text and (", op_id = " in text or ", sizes = [" in text)


def _nested(trace: Trace, calls: Columns, known: dict[Module, int]) -> Array:
    """Which module of `known` (completed here) each call ran, below those around it on the thread."""
    order = np.lexsort((-calls["end"], calls["start"])).tolist()
    start, end = calls["start"].tolist(), calls["end"].tolist()
    names = trace.texts(calls["text_id"].tolist())
    found = np.full(len(order), MISSING, np.int64)
    open_: list[int] = []
    for i in order:
        while open_ and end[open_[-1]] <= start[i]:
            open_.pop()
        module = Module(int(found[open_[-1]]) if open_ else MISSING, names[i])
        found[i] = known.setdefault(module, len(known))
        open_.append(i)
    return found


class Branch(NamedTuple):
    """A module of the tree: those of one class below the same branch are one (`objects` of them)."""

    level: int
    name: str
    objects: int
    kernels: int
    self_ns: int
    total_ns: int


def module_tree(found: Origins, at: Array, duration: Array, apart: bool = False) -> list[Branch]:
    """GPU time by module, each below the one around it, the heaviest first; `apart` keeps the objects of
    a class apart. `at` are rows of `found`, with the time (ns) of each. Others are left out."""
    size = len(found.modules)
    module = found.module[at]
    inside = module >= 0
    own = np.bincount(module[inside], duration[inside], minlength=size)
    count = np.bincount(module[inside], minlength=size)
    branch: dict[tuple[int, str], int] = {}
    of: list[int] = []  # parents come before what they hold
    for m in found.modules:
        above = of[m.parent] if m.parent >= 0 else MISSING
        of.append(branch.setdefault((above, m.name if apart else m.kind), len(branch)))
    place = np.array(of, np.int64)
    time, kernels = (np.bincount(place, v, minlength=len(branch)) for v in (own, count))
    objects = np.zeros(len(branch), np.int64)
    names = np.array([m.name for m in found.modules], object)
    for b in range(len(branch)):
        objects[b] = len(set(names[place == b].tolist()))
    keys = list(branch)
    total = time.copy()
    for b in range(len(keys) - 1, -1, -1):
        if keys[b][0] >= 0:
            total[keys[b][0]] += total[b]
    below: dict[int, list[int]] = {}
    for b, (above, _) in enumerate(keys):
        below.setdefault(above, []).append(b)
    rows: list[Branch] = []

    def add(above: int, level: int) -> None:
        for b in sorted(below.get(above, ()), key=lambda b: (-total[b], keys[b][1])):
            if total[b]:
                rows.append(
                    Branch(level, keys[b][1], int(objects[b]), int(kernels[b]), int(time[b]), int(total[b]))
                )
                add(b, level + 1)

    add(MISSING, 0)
    return rows


#: Recordings that have less in common are not of one program: those of one program share 97 % and more, of
#: others up to 75 % of the time and 70 % of the operations.
LEAST_MATCH = 0.75
#: With fewer kernels of one launch shape they are of other sizes (one program: 86 % and more).
LEAST_SAME = 0.25
_AGAIN = "record the same model, batch and phase with both profilers"


class Provenance:
    """Origins of the GPU work and of the calls of one analysis; None if nothing names any."""

    def __init__(self, a: Analysis) -> None:
        self._a = a

    @cached_property
    def match(self) -> Match | None:
        """How the operations of the other recording correspond; None without one that has GPU work."""
        other = self._a.other
        return align(self._a, other) if other is not None and len(other.ops) else None

    @cached_property
    def quality(self) -> float | None:
        """Share of the GPU time and of the operations that the recordings have in common; where the other
        has no GPU work (of two profilers at once one gets none), of the calls that it shows code around."""
        if self._a.other is None:
            return None
        if self.match is not None:
            return self.match.quality
        api = self._a.ops.api[self._a.ops.api >= 0]
        found = self.calls(distinct(api)) if len(api) else None
        return 0.0 if found is None else float(found.known.mean())

    def check(self) -> None:
        """Raise InputError if the two recordings are not of one program."""
        a, quality = self._a, self.quality
        if quality is not None and quality < LEAST_MATCH and a.other is not None:
            raise InputError(
                f"--together: {a.other.trace.capture.path} matches {100 * quality:.0f} % of "
                f"{a.trace.capture.path}, less than {100 * LEAST_MATCH:.0f} %; {_AGAIN}"
            )
        same = self.match.same_ratio if self.match is not None else None
        if same is not None and same < LEAST_SAME and a.other is not None:
            raise InputError(
                f"--together: {100 * same:.0f} % of the kernels of {a.other.trace.capture.path} have the "
                f"launch shape of {a.trace.capture.path}, less than {100 * LEAST_SAME:.0f} %; {_AGAIN}"
            )

    @property
    def in_words(self) -> str | None:
        """What the other recording is and how well it matches, in words."""
        other, match = self._a.other, self.match
        if other is None:
            return None
        if match is None:
            return (
                f"{other.trace.capture.path} (by clock; it shows code around {self.quality:.1%} of the calls)"
            )
        same = (
            "" if match.same_ratio is None else f"; {match.same_ratio:.1%} of the kernels in one launch shape"
        )
        return (
            f"{other.trace.capture.path} (by {match.by}; {match.time_ratio:.1%} of the GPU time and "
            f"{match.other_ratio:.1%} of its operations match{same})"
        )

    @cached_property
    def ops(self) -> Origins | None:
        """Origin of each operation of `ops`, by the call that launched it."""
        a, match = self._a, self.match
        if match is not None and a.other is not None:
            theirs = a.other.provenance.ops
            if theirs is None:
                return None
            found = theirs.take(match.other)
            return replace(found, operands=np.where(match.same, found.operands, MISSING))
        if a.other is None and not _names_origins(a):
            return None
        api = a.ops.api
        rows, at = dense(api[api >= 0])
        called = self.calls(rows)
        if called is None:
            return None
        place = np.full(len(api), MISSING, np.int64)
        place[api >= 0] = at
        return called.take(place)

    def calls(self, rows: Array) -> Origins | None:
        """Origin of each of these rows of api_calls."""
        a, other = self._a, self._a.other
        if other is not None and self.match is not None:
            at = match_calls(a, other, self.match.other, rows)
            theirs = other.provenance.calls(np.maximum(at, 0)) if other.trace.has("api_calls") else None
            return None if theirs is None else theirs.take(np.where(at < 0, MISSING, np.arange(len(at))))
        if other is None and not _names_origins(a):
            return None
        columns = a.trace.columns("api_calls", ("thread", "start"))
        thread, time = columns["thread"][rows], columns["start"][rows]
        if other is None:
            return find_origins(a.trace, a.ranges, thread, time)
        begun = a.trace.capture.start_utc_ns, other.trace.capture.start_utc_ns
        if begun[0] is None or begun[1] is None or not _names_origins(other):
            return None
        threads = other.trace.columns("ranges", ("thread", "domain"))
        named = distinct(threads["thread"][threads["domain"] == OPERATIONS])
        if len(named) == 1 and not np.isin(named, thread).any():  # a container counts threads anew
            thread = np.full(len(thread), named[0])
        return find_origins(other.trace, other.ranges, thread, time + begun[0] - begun[1])


def _names_origins(a: Analysis) -> bool:
    if a.trace.has("modules") or a.trace.has("python_calls") or a.ranges.by_profiler.any():
        return True
    return any(map(is_operator_text, a.ranges.texts))
