"""Who makes the CUDA calls: by backtrace, else by Python stack, CPU samples or the enclosing NVTX range."""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
from msgspec import Struct

from advisor.knowledge.files import call_site_patterns, step_patterns
from advisor.knowledge.shapes import FrameKind
from advisor.metrics import limits
from advisor.metrics.budgeted.stage import Budgeted
from advisor.metrics.intervals import Coverage, Spans
from advisor.metrics.loaded.host import OPERATOR_TRAITS, ThreadCalls, innermost
from advisor.metrics.loaded.kernels import dense
from advisor.metrics.loaded.operations import calls_named, combinations
from advisor.model.arrays import Array, among, begins_run, marked, ordered, rows_at
from advisor.model.once import cached_property
from advisor.sources.schema import HTOD, MISSING, OPERATIONS, Call, base_name

Source = Literal["backtraces", "stacks", "samples", "ranges"]
_Labelled = tuple[Array, Array, Array]  # start, end, label

GROUPS = ("launch", "sync", "copy", "alloc")
_CLASSES = {
    "launch": (Call.LAUNCH, Call.GRAPH_LAUNCH),
    "sync": (Call.SYNC,),
    "copy": (Call.COPY, Call.MEMSET),
    "alloc": (Call.ALLOC, Call.FREE),
}
#: Number of application frames that name a site; more do not fit on a line.
_FRAMES = 3

_ASYNCHRONOUS = re.compile("Async")
_BRACKETS = re.compile(r"<[^<>]*>")
_LAMBDA = re.compile(r"\{lambda\(.{0,2000}?\)#\d+\}")
_OPERATOR = re.compile(r"operator *(?:<=>|<<=?|>>=?|<=?|>=?|->\*?) *")
_ARGUMENTS = re.compile(r"(?<=\S)\(")


class Site(Struct, frozen=True):
    """Calls of one API function from one place. `where` is None if the caller is unknown;
    `idle_ns` is device idle inside the calls and until the next call, where it is short."""

    where: str | None
    call: str
    calls: int
    time_ns: int
    idle_ns: int


class CallSites(Struct, frozen=True):
    """Sites of one class of calls, those with most device idle first, then by time.

    From CPU samples, `calls` counts samples, and times are the class's total by their share.
    """

    source: Source
    sites: tuple[Site, ...]
    calls: int  # number of calls of the class in the window
    time_ns: int


class CallSiteFinder:
    """Sites of the calls that one thread makes in the host window."""

    def __init__(self, a: Budgeted, device: int, thread: int) -> None:
        """`a` is the capture seen from the device that the thread feeds."""
        self._origins = a.provenance.calls
        self._trace, self._ranges, self._gaps = a.trace, a.ranges, a.budgets[device].gaps
        self._frames, self._steps = call_site_patterns(), step_patterns()
        calls = a.threads.of(thread)
        lo, hi = np.searchsorted(calls.start, a.host_window).tolist()
        columns = (v[lo:hi] for v in (calls.start, calls.end, calls.call, calls.row))
        self._calls = ThreadCalls(calls.thread, *columns)
        self._follows = calls.start[lo + 1 : hi + 1]  # the start of the next call; of the last one, its end
        if len(self._follows) < hi - lo:
            self._follows = np.append(self._follows, calls.end[-1:])

    def has(self, group: str) -> bool:
        """True when the thread makes calls of the group."""
        return bool(self._of_class(_CLASSES[group]).any())

    def members(self, group: str) -> Array:
        """Positions of the calls of a group. Synchronous copies and memsets count as waits, too."""
        mine = self._of_class(_CLASSES[group])
        if group == "sync":
            copies = np.flatnonzero(self._of_class(_CLASSES["copy"]))
            mine[copies[~calls_named(self._trace, self._calls.row[copies], _ASYNCHRONOUS)]] = True
        return np.flatnonzero(mine)

    def _of_class(self, classes: tuple[Call, ...]) -> Array:
        return among(self._calls.call, classes)

    def of(self, group: str) -> CallSites | None:
        """Sites of a group; None if it has no calls, or the capture names no caller."""
        at = self.members(group)
        if len(at) == 0:
            return None
        for source, look in (
            ("backtraces", self._by_backtrace),
            ("stacks", self._by_stack),
            ("samples", self._by_sample),
            ("ranges", self._by_range),
        ):
            found = look(at)
            if found is not None:
                return self._summed(at, source, *found)  # type: ignore[arg-type]
        return None

    def _names_of(self, at: Array) -> tuple[Array, list[str]]:
        """Names of calls without version suffix, as positions in the list."""
        name_id = self._trace.columns("api_calls", ("name_id",))["name_id"][self._calls.row[at]]
        ids = self._trace.distinct("api_calls", "name_id")
        bases = [base_name(text) for text in self._trace.texts(ids)]
        known = sorted(set(bases))
        return np.array([known.index(base) for base in bases], np.int64)[np.searchsorted(ids, name_id)], known

    def _summed(
        self, at: Array, source: Source, site: Array, labels: list[str], calls_at: Array
    ) -> CallSites:
        """Totals by site and API function; `calls_at` are positions of the calls of the entries of `site`."""
        calls, (name, names) = self._calls, self._names_of(calls_at)
        length = calls.end - calls.start
        total = int(length[at].sum())
        sampled = source == "samples"
        key, group = dense((site + 1) * len(names) + name)
        count = np.bincount(group, minlength=len(key))
        time = count * (total / max(len(calls_at), 1)) if sampled else np.bincount(group, length[calls_at])
        idle = np.zeros(len(key)) if sampled else np.bincount(group, self._idle_at(calls_at))
        sites = []
        for k, times, *ns in rows_at(np.arange(len(key)), key, count, np.rint(time), idle):
            where, call = divmod(k, len(names))
            sites.append(Site(labels[where - 1] if where else None, names[call], times, *map(int, ns)))
        sites.sort(key=lambda s: (-s.idle_ns, -s.time_ns, -s.calls, s.where or "~", s.call))
        return CallSites(source, tuple(sites), len(at), total)

    def _idle_at(self, at: Array) -> Array:
        """Device idle inside each call and until the next one, where that follows within the refill time."""
        cover, before = self._idle
        end = self._calls.end[at]
        near = self._follows[at] - end <= limits.host.REFILL_NS
        until = before[at + 1]
        far = np.flatnonzero(~near)
        until[far] = cover(end[far])
        return np.asarray(until - before[at])

    @cached_property
    def _idle(self) -> tuple[Coverage, Array]:
        """Idle time that this thread could have filled (not what it had queued in time), and its sum up to
        the start of each call and of the one after the last."""
        gaps, calls = self._gaps, self._calls
        own = (gaps.thread == calls.thread) & ~gaps.internal & (gaps.call_end > gaps.start)
        cover = Coverage(Spans(gaps.start[own], gaps.end[own]))
        return cover, cover(np.append(calls.start, self._follows[-1:]))

    # ------------------------------------------------------------ backtraces and samples

    def _by_backtrace(self, at: Array) -> tuple[Array, list[str], Array] | None:
        if not self._trace.has("callchains"):
            return None
        chain = self._trace.columns("api_calls", ("callchain",))["callchain"][self._calls.row[at]]
        site, labels = self._sites_of_chains(chain) if (chain > 0).any() else (chain, [])
        return (site, labels, at) if labels else None

    def _by_stack(self, at: Array) -> tuple[Array, list[str], Array] | None:
        """Sites by module and line. Ranges name operators too, except those of another recording."""
        found = self._origins(self._calls.row[at])
        if found is None or not found.known.any():
            return None
        if self._range_sites[0] and not ((found.line >= 0) | (found.module >= 0)).any():
            return None
        first, of = combinations(found.line, found.module, found.outer)
        labels: dict[str, int] = {}
        places = [found.place(i) for i in first.tolist()]
        code = [labels.setdefault(text, len(labels)) if text else MISSING for text in places]
        return np.array(code, np.int64)[of], list(labels), at

    def _by_sample(self, at: Array) -> tuple[Array, list[str], Array] | None:
        samples = self._trace.columns("host_samples", ("time", "thread", "callchain"))
        mine = samples["thread"] == self._calls.thread
        time, chain = samples["time"][mine], samples["callchain"][mine]
        start, end = self._calls.start[at], self._calls.end[at]
        k = np.searchsorted(start, time, "right") - 1
        inside = (k >= 0) & (time < end[np.maximum(k, 0)])
        if np.count_nonzero(inside) < limits.host.LOCATING_SAMPLES:
            return None
        site, labels = self._sites_of_chains(chain[inside])
        named = site >= 0
        if np.count_nonzero(named) < limits.host.LOCATING_SAMPLES:
            return None
        return site[named], labels, at[k[inside][named]]

    def _sites_of_chains(self, chain: Array) -> tuple[Array, list[str]]:
        """Site of each call chain as a position among labels, MISSING if no frame names one.

        A site is the innermost frames of the application; without any, the outermost and innermost frames
        of the framework; without those, the library that made the call.
        """
        used, back = np.unique(chain, return_inverse=True)
        columns = self._trace.columns("callchains", ("callchain", "depth", "symbol_id", "module_id"))
        at = np.flatnonzero(np.isin(columns["callchain"], used))
        of = np.searchsorted(used, columns["callchain"][at])
        order = np.lexsort((columns["depth"][at], of))
        at, of = at[order], of[order]
        names, name, kind = self._frame_names(columns["symbol_id"][at], columns["module_id"][at])
        site = np.full(len(used), MISSING, np.int64)
        labels: dict[str, int] = {}
        for number, wanted in enumerate(_KINDS[:3]):
            rows = np.flatnonzero((kind == number) & (site[of] == MISSING))
            if len(rows) == 0:
                continue
            chains, frames = of[rows], name[rows]
            # A frame that repeats the one below it (kernel stubs, wrappers) says nothing new.
            fresh = begins_run(chains, frames)
            chains, frames = chains[fresh], frames[fresh]
            first = np.flatnonzero(begins_run(chains))
            last = np.append(first[1:], len(chains)) - 1
            path = _path(wanted, frames, first, last)
            recorded, which = np.unique(path, axis=0, return_inverse=True)
            paths = [" > ".join(names[i] for i in row if i >= 0) for row in recorded.tolist()]
            code = [labels.setdefault(text, len(labels)) for text in paths]
            site[chains[first]] = np.array(code, np.int64)[which.ravel()]
        return site[back], list(labels)

    def _frame_names(self, symbol: Array, module: Array) -> tuple[list[str], Array, Array]:
        """Distinct names, and the name (as a position) and kind of each frame."""
        key, pair = np.unique(((symbol + 1) << 32) | (module + 1), return_inverse=True)
        symbols = self._trace.texts((key >> 32) - 1)
        modules = self._trace.texts((key & 0xFFFFFFFF) - 1)
        names: dict[str, int] = {}
        codes, kinds = [], []
        for text, path in zip(symbols, modules, strict=True):
            name = function_name(text)
            kind: FrameKind = self._frames.frame(name, path)
            if kind == "library":
                name = "[{}]".format(path.replace("\\", "/").rpartition("/")[2])
            codes.append(names.setdefault(name, len(names)))
            kinds.append(_KINDS.index(kind))
        return list(names), np.array(codes, np.int64)[pair], np.array(kinds, np.int64)[pair]

    # ------------------------------------------------------------ ranges

    def _by_range(self, at: Array) -> tuple[Array, list[str], Array] | None:
        texts, by_user, by_operation = self._range_sites
        start = self._calls.start[at]
        site = innermost(start, *by_user)
        open_ = np.flatnonzero(site == MISSING)
        if len(open_) and len(by_operation[0]):
            inner = innermost(start[open_], *by_operation)
            outer = innermost(start[open_], *by_operation, 1)
            # `aten::to > aten::copy_`: the operator asked for, and the part of it that makes the call.
            pairs, which = dense(np.where(inner >= 0, outer * len(texts) + inner, MISSING))
            known = {text: i for i, text in enumerate(texts)}
            codes = []
            for pair in pairs.tolist():
                ends = dict.fromkeys(texts[i] for i in divmod(pair, len(texts)))
                codes.append(MISSING if pair < 0 else known.setdefault(" > ".join(ends), len(known)))
            site[open_] = np.array(codes, np.int64)[which]
            texts = list(known)
        return (site, texts, at) if (site >= 0).any() else None

    @cached_property
    def _range_sites(self) -> tuple[list[str], _Labelled, _Labelled]:
        """Labels, and the thread's ranges as (start, end, label): those of users, and those that
        libraries put around operations. Steps, garbage collection and the GIL are left out."""
        calls = self._calls
        lo, hi = (int(calls.start[0]), int(calls.end[-1])) if len(calls.start) else (0, 0)
        rows = self._ranges.of_thread(calls.thread, lo, hi)
        named, kind_of = self._ranges.labels, self._ranges.kinds[1]
        used, kind = dense(kind_of[rows["text"]])
        known: dict[str, int] = {}
        operations: set[int] = set()
        codes = []
        for k in used.tolist():
            text = self._ranges.texts[int(np.argmax(kind_of == k))]
            name = OPERATOR_TRAITS.sub("", named[k])  # numbered ranges (layers) are one site
            if self._steps.step(text) is not None or self._steps.role(text) in _NOT_SITES:
                codes.append(MISSING)
                continue
            codes.append(known.setdefault(name, len(known)))
            if self._frames.is_operation(OPERATOR_TRAITS.sub("", text)):
                operations.add(codes[-1])
        labels = list(known)
        label = np.array(codes, np.int64)[kind]
        operation = np.isin(label, list(operations)) | (rows["domain"] == OPERATIONS)
        by_user, by_operation = (
            (rows["start"][mine], rows["end"][mine], label[mine])
            for mine in ((label >= 0) & ~operation, (label >= 0) & operation)
        )
        return labels, by_user, by_operation


_KINDS: tuple[FrameKind, ...] = ("application", "framework", "library", "below")
_NOT_SITES = ("gc", "gil_wait", "gil_hold")


def _path(kind: FrameKind, frames: Array, first: Array, last: Array) -> Array:
    """Names on the path of each chain, the outermost first, MISSING if there are fewer."""
    if kind == "application":  # the innermost frames
        position = first[:, None] + np.arange(_FRAMES - 1, -1, -1)
        return np.where(position <= last[:, None], frames[np.minimum(position, last[:, None])], MISSING)
    if kind == "framework":
        return np.stack((frames[last], np.where(last > first, frames[first], MISSING)), axis=1)
    return frames[first][:, None]


def function_name(symbol: str) -> str:
    """`void at::native::f<float>(at::Tensor&)` -> `at::native::f`; empty for a bare address.

    "f(int)" has arguments; "f (model.py:12)" is how Python frames name their line, which stays.
    """
    if symbol.startswith("0x"):
        return ""
    text = symbol.replace("(anonymous namespace)::", "").replace("operator()", "operator\0")
    text = _LAMBDA.sub("{lambda}", _OPERATOR.sub("operator", text))
    while (plain := _BRACKETS.sub("", text)) != text:
        text = plain
    arguments = _ARGUMENTS.search(text)
    if arguments is not None:
        text = text[: arguments.start()].rsplit(" ", 1)[-1]
    return text.replace("\0", "()").strip()


# --- small copies to the device that one call after the other makes ---------------------------------


def small_runs(thread: Array, start: Array, kind: Array, small: Array) -> Array:
    """For each call the number of the run of small copies that it belongs to, MISSING for none: eight calls
    or more of one thread that are `small` copies, with only waits between them. `kind` is that of
    `api_calls.call`; calls that neither issue work nor wait nor allocate are ignored."""
    acting = np.flatnonzero(~among(kind, (Call.OTHER, Call.EVENT, Call.PROFILER)))
    order = acting[ordered(start[acting], thread[acting])]
    inside = small[order] | (kind[order] == Call.SYNC)
    run = np.cumsum(begins_run(thread[order], inside))
    many = np.bincount(run, small[order] & inside, minlength=1) >= limits.host.COPIES_IN_A_ROW
    out = np.full(len(kind), MISSING, np.int64)
    out[order] = np.where(inside & many[run], run, MISSING)
    return out


def small_uploads(a: Budgeted, device: int) -> tuple[Array, Array]:
    """Positions in `ops` of the small copies to a device that are made one after the other, as they were
    called in each run of such; and the run of each."""
    at = a.device_copies(device)
    copies = a.trace.columns("copies", ("bytes", "kind"))
    size, kind = copies["bytes"][a.ops.row[at]], copies["kind"][a.ops.row[at]]
    small = (kind == HTOD) & (size > 0) & (size <= limits.host.SMALL_COPY_BYTES)
    at = at[small & (a.ops.api[at] >= 0)]
    calls, row = a.trace.columns("api_calls", ("thread", "start", "call")), a.ops.api[at]
    run = small_runs(calls["thread"], calls["start"], calls["call"], marked(len(calls["start"]), row))[row]
    order = np.flatnonzero(run != MISSING)
    order = order[ordered(calls["start"][row[order]], run[order])]
    return at[order], run[order]
