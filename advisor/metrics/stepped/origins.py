"""Where GPU work comes from: the operator with its operands, the Python module and the source line around
the call that launched it, as a PyTorch trace records them (and nsys with ``--pytorch``, but for modules),
or as another recording of the same program shows them (`Provenance`)."""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from advisor.errors import InputError
from advisor.knowledge.operators import OperatorWork, operator_entries, operator_work
from advisor.metrics import limits
from advisor.metrics.loaded.host import OPERATOR_TRAITS, Ranges, innermost_on_threads
from advisor.metrics.loaded.kernels import dense
from advisor.metrics.loaded.operations import combinations
from advisor.metrics.stepped.pairing import Match, align, match_calls
from advisor.metrics.stepped.recording import Recording
from advisor.model.arrays import Array, distinct, rows_at
from advisor.model.numbers import percent
from advisor.model.once import cached_property
from advisor.sources.schema import MISSING, OPERATIONS
from advisor.sources.trace import Columns, Trace

#: Sizes in the text of an operator's NVTX range, as torch.autograd.profiler.emit_nvtx(record_shapes) writes.
_SIZES = re.compile(r"^(?>.*?, sizes = )(\[.*\])(?:,|$)")
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


def _taken(values: Array, at: Array) -> Array:
    """The values of rows `at`; MISSING for a row that is MISSING."""
    return np.asarray(np.append(values, MISSING)[np.where(at < 0, len(values), at)])


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
        columns = (self.outer, self.operator, self.operands, self.module, self.line)
        outer, operator, operands, module, line = (_taken(column, at) for column in columns)
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
        first, group = combinations(self.line[at], of[self.module[at]], self.outer[at])
        held, count = np.bincount(group, weight), np.bincount(group)
        order = np.argsort(-held, kind="stable").tolist()
        return [(self.place(int(at[first[i]])) or "-", int(count[i]), float(held[i])) for i in order]


def find_origins(trace: Trace, ranges: Ranges, thread: Array, time: Array) -> Origins:
    """Where calls come from that these threads made at these times (ns)."""
    operators, names, sizes = _operators(trace, ranges)
    functions = trace.columns("python_calls", ("start", "end", "thread", "text_id"))
    line_ids, line_of = np.unique(functions["text_id"], return_inverse=True)
    called = trace.columns("modules", ("start", "end", "thread", "text_id"))
    own = np.isin(called["thread"], distinct(thread))
    called = {n: v[own] for n, v in called.items()}
    modules, module_of = _nested(trace, called)
    around = partial(innermost_on_threads, thread, time)
    operator = around(operators, operators["name"])
    # The innermost operator has the sizes of the kernel; one without any inherits those around it.
    some = operators["operands"] >= 0
    sized = {n: np.append(v[some], MISSING) for n, v in operators.items()}
    inner = around(sized, np.arange(len(sized["name"])))
    same = (inner >= 0) & (sized["name"][inner] == operator)
    return Origins(
        outer=around(operators, operators["name"], 1),
        operator=operator,
        operands=np.where(same, sized["operands"][inner], MISSING),
        module=around(called, module_of),
        line=around(functions, line_of),
        operators=names,
        operand_texts=sizes,
        modules=modules,
        lines=[_FOLDERS.sub("", text) for text in trace.texts(line_ids.tolist())],
    )


class OperatorCalls(NamedTuple):
    """Calls of operators with recorded operands whose work is known: of each piece of GPU work the call that
    it is part of (MISSING: none), of each call what it works on, and what these are."""

    call: Array
    work_of: Array
    works: list[tuple[str, OperatorWork]]

    def take(self, at: Array) -> OperatorCalls:
        """Those of rows `at`, none where it is MISSING."""
        return self._replace(call=_taken(self.call, at))


def find_operator_calls(trace: Trace, ranges: Ranges, thread: Array, time: Array) -> OperatorCalls | None:
    """The innermost calls of operators with known work around calls that these threads made at these times
    (ns). None if the trace holds none."""
    given = trace.columns("ranges", ("operands_id",))["operands_id"]
    if not (given >= 0).any() and not any(_SIZES.search(text) for text in ranges.texts if "sizes = " in text):
        return None
    operators, names, sizes = _operators(trace, ranges)
    listed = operator_entries()
    chosen = np.array([name in listed for name in names], bool)[operators["name"]]
    chosen &= operators["operands"] >= 0
    rows = {name: values[chosen] for name, values in operators.items()}
    if not chosen.any():
        return None
    first, pair = combinations(rows["name"], rows["operands"])
    known: dict[tuple[str, OperatorWork], int] = {}
    of_pair = np.full(len(first), MISSING, np.int64)
    for place, (i, j) in enumerate(rows_at(first, rows["name"], rows["operands"])):
        if (work := operator_work(names[i], sizes[j])) is not None:
            of_pair[place] = known.setdefault((names[i], work), len(known))
    if not known:
        return None
    work_of = of_pair[pair]
    rows = {name: values[work_of >= 0] for name, values in rows.items()}
    work_of = work_of[work_of >= 0]
    call = innermost_on_threads(thread, time, rows, np.arange(len(work_of)))
    return OperatorCalls(call, work_of, list(known))


def _operators(trace: Trace, ranges: Ranges) -> tuple[Columns, list[str], list[str]]:
    """Ranges that a profiler put around operators, with `name` and `operands` as positions in these lists."""
    columns = trace.columns("ranges", ("start", "end", "thread", "domain", "operands_id"))
    text = ranges.text_of
    # nsys keeps what emit_nvtx wrote as ranges like any other.
    written = np.array([is_operator_text(t) for t in ranges.texts], bool)
    chosen = columns["domain"] == OPERATIONS
    if written.any():
        chosen |= written[text]
    found = {n: v[chosen] for n, v in columns.items()}
    text = text[chosen]
    names: dict[str, int] = {}
    sizes: dict[str, int] = {}
    name, operands = (np.full(len(ranges.texts), MISSING, np.int64) for _ in range(2))
    for i in distinct(text).tolist():
        name[i] = names.setdefault(OPERATOR_TRAITS.sub("", ranges.texts[i]), len(names))
        if written[i] and (sizes_of := _SIZES.search(ranges.texts[i])) is not None:
            operands[i] = sizes.setdefault(sizes_of[1], len(sizes))
    ids, at = np.unique(found["operands_id"], return_inverse=True)
    number = [MISSING if i == MISSING else sizes.setdefault(trace.text(i), len(sizes)) for i in ids.tolist()]
    given = np.array(number, np.int64)[at] if len(ids) else ids
    found |= {"name": name[text], "operands": np.where(given >= 0, given, operands[text])}
    return found, list(names), list(sizes)


def is_operator_text(text: str) -> bool:
    """True for ``aten::mm, op_id = 7, sizes = [[4, 8], [8, 8]]``."""
    return "::" in text and (", op_id = " in text or ", sizes = [" in text)


def _nested(trace: Trace, calls: Columns) -> tuple[list[Module], Array]:
    """The modules, and which of them each call ran, below those around it on the thread."""
    order = np.lexsort((-calls["end"], calls["start"], calls["thread"])).tolist()
    start, end, thread = (calls[n].tolist() for n in ("start", "end", "thread"))
    names = trace.texts(calls["text_id"].tolist())
    known: dict[Module, int] = {}
    found = np.full(len(order), MISSING, np.int64)
    open_: list[int] = []
    for i in order:
        while open_ and (end[open_[-1]] <= start[i] or thread[open_[-1]] != thread[i]):
            open_.pop()
        module = Module(int(found[open_[-1]]) if open_ else MISSING, names[i])
        found[i] = known.setdefault(module, len(known))
        open_.append(i)
    return list(known), found


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
    module = found.module[at]
    inside = module >= 0
    branch: dict[tuple[int, str], int] = {}
    of: list[int] = []  # parents come before what they hold
    for m in found.modules:
        above = of[m.parent] if m.parent >= 0 else MISSING
        of.append(branch.setdefault((above, m.name if apart else m.kind), len(branch)))
    place = np.append(of, MISSING).astype(np.int64)[module[inside]]
    total, kernels = (np.bincount(place, v, len(branch)) for v in (duration[inside], None))
    own, keys = total.astype(np.int64), list(branch)
    for b in range(len(keys) - 1, -1, -1):
        if keys[b][0] >= 0:
            total[keys[b][0]] += total[b]
    names = [set[str]() for _ in keys]
    below: dict[int, list[int]] = {}
    for m, b in zip(found.modules, of, strict=True):
        names[b].add(m.name)
    for b, (above, _) in enumerate(keys):
        below.setdefault(above, []).append(b)
    rows: list[Branch] = []

    def add(above: int, level: int) -> None:
        for b in sorted(below.get(above, ()), key=lambda b: (-total[b], keys[b][1])):
            if total[b]:
                times = int(kernels[b]), int(own[b]), int(total[b])
                rows.append(Branch(level, keys[b][1], len(names[b]), *times))
                add(b, level + 1)

    add(MISSING, 0)
    return rows


_AGAIN = "record the same model, batch and phase with both profilers"


class Provenance:
    """Origins of the GPU work and of the calls of a recording, by its own ranges and operators or by those of
    another recording of the same program (`other`); None if nothing names any."""

    def __init__(self, a: Recording, other: Recording | None = None) -> None:
        self._a, self.other = a, other
        self._theirs = None if other is None else Provenance(other)

    @cached_property
    def match(self) -> Match | None:
        """How the operations of the other recording correspond; None without one that has GPU work."""
        other = self.other
        return align(self._a, other) if other is not None and len(other.ops) else None

    @cached_property
    def quality(self) -> float | None:
        """Share of the GPU time and of the operations that the recordings have in common; where the other
        has no GPU work (of two profilers at once one gets none), of the calls that it shows code around."""
        if self.other is None:
            return None
        if self.match is not None:
            return self.match.quality
        api = self._a.ops.api[self._a.ops.api >= 0]
        found = self.calls(distinct(api)) if len(api) else None
        return 0.0 if found is None else float(found.known.mean())

    def check(self) -> None:
        """Raise InputError if the two recordings are not of one program."""
        if self.other is None:
            return
        mine, theirs = (a.trace.capture.path for a in (self._a, self.other))
        same = self.match.same_ratio if self.match is not None else None
        if self.quality is not None and self.quality < limits.kernels.SAME_PROGRAM_RATIO:
            low, least = (
                f"{theirs} matches {100 * self.quality:.0f} % of {mine}",
                limits.kernels.SAME_PROGRAM_RATIO,
            )
        elif same is not None and same < limits.kernels.SAME_SHAPES_RATIO:
            low = f"{100 * same:.0f} % of the kernels of {theirs} have the launch shape of {mine}"
            least = limits.kernels.SAME_SHAPES_RATIO
        else:
            return
        raise InputError(f"--together: {low}, less than {100 * least:.0f} %; {_AGAIN}")

    @property
    def in_words(self) -> str | None:
        """What the other recording is and how well it matches, in words."""
        other, match = self.other, self.match
        if other is None:
            return None
        how = f"by clock; it shows code around {percent(self.quality or 0.0)} of the calls"
        if match is not None:
            how = f"by {match.by}; {percent(match.time_ratio)} of the GPU time and "
            how += f"{percent(match.other_ratio)} of its operations match"
            if match.same_ratio is not None:
                how += f"; {percent(match.same_ratio)} of the kernels in one launch shape"
        return f"{other.trace.capture.path} ({how})"

    @cached_property
    def ops(self) -> Origins | None:
        """Origin of each operation of `ops`, by the call that launched it."""
        a, match = self._a, self.match
        if match is not None and self._theirs is not None:
            theirs = self._theirs.ops
            if theirs is None:
                return None
            found = theirs.take(match.other)
            return replace(found, operands=np.where(match.same, found.operands, MISSING))
        if self.other is None and not _names_origins(a):
            return None
        api = a.ops.api
        rows, at = dense(api[api >= 0])
        called = self.calls(rows)
        if called is None:
            return None
        place = np.full(len(api), MISSING, np.int64)
        place[api >= 0] = at
        return called.take(place)

    @cached_property
    def operator_calls(self) -> OperatorCalls | None:
        """The call of an operator with known work that each operation of `ops` is part of, replays of graphs
        left out; None if none is known."""
        a, match = self._a, self.match
        if match is not None and self._theirs is not None:
            found = self._theirs.operator_calls
            return None if found is None else found.take(np.where(match.same, match.other, MISSING))
        if self.other is not None or (not a.ranges.by_profiler.any() and not _names_origins(a)):
            return None
        eager = (a.ops.api >= 0) & (a.ops.graph_node == 0)
        rows, at = dense(a.ops.api[eager])
        columns = a.trace.columns("api_calls", ("thread", "start"))
        found = find_operator_calls(a.trace, a.ranges, columns["thread"][rows], columns["start"][rows])
        if found is None:
            return None
        place = np.full(len(eager), MISSING, np.int64)
        place[eager] = at
        return found.take(place)

    def calls(self, rows: Array) -> Origins | None:
        """Origin of each of these rows of api_calls."""
        a, other = self._a, self.other
        if other is not None and self._theirs is not None and self.match is not None:
            at = match_calls(a, other, self.match.other, rows)
            theirs = self._theirs.calls(np.maximum(at, 0)) if other.trace.has("api_calls") else None
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


def _names_origins(a: Recording) -> bool:
    if a.trace.has("modules") or a.trace.has("python_calls") or a.ranges.by_profiler.any():
        return True
    return any(map(is_operator_text, a.ranges.texts))
