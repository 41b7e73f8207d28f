"""A PyTorch profiler trace (Chrome JSON, written by Kineto) decoded into events, part by part."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from advisor.errors import InputError
from advisor.reading import READING

EXPORT_HINT = "prof.export_chrome_trace('trace.json')"

#: Number of events decoded at once: their objects are freed before the next part.
_PART = 1 << 15

#: What old versions wrote for a division by zero. Not JSON.
_NO_NUMBER = re.compile(rb"(?<=[:\[,\s])(?:-?(?:inf(?:inity)?|nan)|N/A)(?=\s*[,}\]])", re.I)
#: A comma before a closing bracket, left behind by scripts that cut a trace; texts are kept, also one
#: that never ends: searching for its end from each quote would take quadratic time.
_LAST_COMMA = re.compile(rb'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|,(?=\s*[\]}])', re.S)
#: Whole escapes, pairs of surrogates as one; half of a pair, which Python writes of a cut name; a lone \.
_ESCAPE = re.compile(
    rb'\\(?:(["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    rb"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(u[dD][89a-fA-F][0-9a-fA-F]{2}))|\\"
)
_CONTROL = bytes(range(0x20))
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANK = bytes.maketrans(_CONTROL, b" " * len(_CONTROL))


NO_JSON = msgspec.Raw()
_ENCODER = msgspec.json.Encoder()
#: Fields of arguments that are kept as JSON.
_AS_JSON = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")


class Args(msgspec.Struct, gc=False):
    """The arguments of an event that are read; others are skipped without being decoded. Types are open:
    operators use some of these names for arguments of their own."""

    correlation: Any = None
    device: Any = None
    in_device: Any = msgspec.field(default=None, name="inDevice")
    context: Any = None
    stream: Any = None
    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(default=None, name="registers per thread")
    shared: Any = msgspec.field(default=None, name="shared memory")
    bytes: Any = None
    kind: Any = None
    reserved: Any = msgspec.field(default=None, name="Total Reserved")
    allocated: Any = msgspec.field(default=None, name="Total Allocated")
    device_type: Any = msgspec.field(default=None, name="Device Type")
    device_id: Any = msgspec.field(default=None, name="Device Id")
    collective: Any = msgspec.field(default=None, name="Collective name")
    elements_in: Any = msgspec.field(default=None, name="In msg nelems")
    elements_out: Any = msgspec.field(default=None, name="Out msg nelems")
    dtype: Any = None
    group: Any = msgspec.field(default=None, name="Process Group Name")
    sequence: Any = msgspec.field(default=None, name="Seq")
    external: Any = msgspec.field(default=None, name="External id")
    external_old: Any = msgspec.field(default=None, name="external id")
    # Kept as the file has them: few of them differ.
    sizes: msgspec.Raw = msgspec.field(default=NO_JSON, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=NO_JSON, name="Input type")
    strides: msgspec.Raw = msgspec.field(default=NO_JSON, name="Input Strides")
    numbers: msgspec.Raw = msgspec.field(default=NO_JSON, name="Concrete Inputs")
    name: Any = None


NO_ARGS = Args()


class Event(msgspec.Struct, gc=False):
    """One event. `ts` and `dur` are microseconds: int, float, or Decimal if a float would lose
    nanoseconds."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: Any = None
    tid: Any = None
    ts: int | float | None = None
    dur: int | float | None = None
    args: Args | None = None


class _ExactEvent(Event, gc=False):
    """An event whose times are read as the decimal numbers that the file has."""

    ts: Decimal | None = None  # type: ignore[assignment]
    dur: Decimal | None = None  # type: ignore[assignment]


class Head(msgspec.Struct):
    """The fields around the events; None for absent ones."""

    traceEvents: list[msgspec.Raw] | None = None
    deviceProperties: Any = None
    computeProperties: Any = None
    distributedInfo: Any = None
    baseTimeNanoseconds: Any = None
    cuda_runtime_version: Any = None
    hip_runtime_version: Any = None
    roctracer_version: Any = None
    record_shapes: Any = None
    profile_memory: Any = None
    with_stack: Any = None
    with_flops: Any = None
    with_modules: Any = None
    WARNING: Any = None
    ERROR: Any = None


HEAD = msgspec.json.Decoder(Head)
RAW_EVENTS = msgspec.json.Decoder(list[msgspec.Raw])
_EVENTS = msgspec.json.Decoder(list[Event])
_EXACT_EVENTS = msgspec.json.Decoder(list[_ExactEvent])
#: Numbers with a fraction as Decimals, and any type anywhere.
_ANYTHING = msgspec.json.Decoder(float_hook=Decimal)
_ARG_NAMES = dict(zip(Args.__struct_encode_fields__, Args.__struct_fields__, strict=True))


class Inexact(Exception):
    """Floats too large to hold nanoseconds: the part must be decoded as decimals."""


class TraceJson:
    """The JSON of one trace, its head decoded."""

    def __init__(self, data: bytes, shown: Path) -> None:
        self._begin_of(shown)
        data = data.removeprefix(BYTE_ORDER_MARK)
        # Chrome's other form is the bare list of events.
        bare = data.lstrip()[:1] == b"["
        try:
            if bare:
                self.head = Head(traceEvents=_decoded(RAW_EVENTS, data))
            else:
                self.head = _decoded(HEAD, data)
        except msgspec.ValidationError as error:
            raise self._no_trace("traceEvents is not a list of events") from error
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._damaged(error, len(data)) from error
        if self.head.traceEvents is None:
            raise self._no_trace("no traceEvents")
        if not self.head.traceEvents:
            raise self._no_trace("no event in it", "a PyTorch profiler trace without content")

    def _begin_of(self, shown: Path) -> None:
        self._shown = shown
        #: Entries of the list read so far, and how many of them are not events.
        self.entries = self.dropped = 0
        #: Number of events with a value of a wrong type, which is left out.
        self.loosened = 0

    def _events(self) -> Iterator[list[msgspec.Raw]]:
        """The entries of the list in their order, any number at a time."""
        raw = self.head.traceEvents or []
        for at in range(0, len(raw), _PART):
            READING.doing = f"reading events, {100 * at / len(raw):.0f} %"
            yield raw[at : at + _PART]

    def _parts(self) -> Iterator[list[msgspec.Raw]]:
        """The entries, `_PART` at a time."""
        rest: list[msgspec.Raw] = []
        for events in self._events():
            rest += events
            while len(rest) >= _PART:
                part, rest = rest[:_PART], rest[_PART:]
                yield part
        if rest:
            yield rest

    def parts(self) -> Iterator[tuple[list[Event], list[msgspec.Raw]]]:
        """The events, some thousand at a time, with the JSON that `decimals` takes."""
        for part in self._parts():
            self.entries += len(part)
            try:
                yield _decoded(_EVENTS, _joined(part)), part
            except msgspec.ValidationError:
                yield self._one_by_one(part), part
            except (msgspec.DecodeError, RecursionError) as error:
                raise self._damaged(error, sum(map(len, part))) from error

    def decimals(self, part: list[msgspec.Raw]) -> list[Event]:
        """The events of one part with `ts` and `dur` as the decimal numbers that the file has."""
        try:
            found: list[Event] = _decoded(_EXACT_EVENTS, _joined(part))
        except msgspec.DecodeError:
            return self._one_by_one(part)
        return found

    def _one_by_one(self, part: list[msgspec.Raw]) -> list[Event]:
        """The usable parts of faulty events, times as decimals."""
        found = []
        for raw in part:
            try:
                event = _decoded(_ANYTHING, bytes(raw))
            except (msgspec.DecodeError, RecursionError):
                event = None
            if isinstance(event, dict):
                texts = (event.get(key) for key in ("ph", "cat", "name"))
                odd = any(not isinstance(text, str | None) for text in texts)
                self.loosened += odd or not isinstance(event.get("args"), dict | None)
                found.append(_event(event))
            else:
                self.dropped += 1
        return found

    def no_profile(self) -> InputError:
        """The refusal of a trace that some other program wrote."""
        return self._no_trace("no event of the PyTorch profiler in it", "a Chrome trace")

    def _no_trace(self, why: str, what: str = "JSON, but not a PyTorch profiler trace") -> InputError:
        return InputError(f"{self._shown}: {what} ({why}); write a trace with {EXPORT_HINT}")

    def _damaged(self, error: Exception, size: int) -> InputError:
        if "truncated" in str(error):
            what = f"the JSON is cut short ({size:,} bytes)"
        else:
            what = f"not valid JSON ({str(error).removeprefix('JSON is malformed: ')})"
        return InputError(
            f"{self._shown}: {what}; copy it again, or write the trace again with {EXPORT_HINT}"
        )


def _joined(part: list[msgspec.Raw]) -> bytes:
    return b"[" + b",".join(part) + b"]"


def _decoded(decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    """Decodes, after repairing known faults of profilers if necessary."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if "truncated" in str(error):
            raise
        return decoder.decode(_mended(data))


def _mended(data: bytes) -> bytes:
    """JSON without bare `inf`, `N/A`, control characters, lone backslashes and surrogates, invalid UTF-8
    and a last comma."""
    data = _NO_NUMBER.sub(b"null", data.translate(_BLANK))
    data = _ESCAPE.sub(lambda found: found[0] if found[1] else rb"\ufffd" if found[2] else rb"\\", data)
    data = _LAST_COMMA.sub(lambda found: b"" if found[0] == b"," else found[0], data)
    return data.decode("utf-8", "replace").encode()


def _event(loose: dict[str, Any]) -> Event:
    """An event from arbitrary input, without invalid fields."""

    texts: dict[str, Any] = {k: v for k in ("ph", "cat", "name") if isinstance(v := loose.get(k), str)}
    others = {key: loose.get(key) for key in ("pid", "tid", "ts", "dur")}
    args = loose.get("args")
    if isinstance(args, dict):
        known = {k: v for k, v in args.items() if k in _ARG_NAMES}
        known |= {k: msgspec.Raw(_ENCODER.encode(known[k])) for k in _AS_JSON if k in known}
        others["args"] = Args(**{_ARG_NAMES[k]: v for k, v in known.items()})
    return Event(**texts, **others)
