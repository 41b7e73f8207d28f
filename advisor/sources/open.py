"""`open_trace`: detects the kind of a path, and opens it or says in one line what to do instead. The readers
of text (printed tables, logs) are imported for a text alone: 25 modules that no other capture needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

from advisor.errors import InputError
from advisor.model.capture import Capture
from advisor.numerals import read_int
from advisor.reading import READING, SAVED, Scratch, held, similar
from advisor.sources.found import Found
from advisor.sources.kineto.decode import EXPORT_HINT as WRITE
from advisor.sources.kineto.reader import KinetoJson
from advisor.sources.nsys.columnar import NsysColumnar, export_kind
from advisor.sources.nsys.export import EXPORT_HINT, NsysSqlite
from advisor.sources.packed import FAULTS, HEAD_BYTES, REPORT_SUFFIXES, export_report, opener, unpack
from advisor.sources.refused import OTHER_PACKERS, is_other, refuse_other, refuse_packed
from advisor.sources.sqlite.file import MAGIC
from advisor.sources.trace import Around, Source, Trace

#: Suffixes of captures that may also be compressed.
PACKED = ("", ".xz", ".gz")


class Recogniser(NamedTuple):
    """One kind of input. `open` returns its source, or raises InputError with a way out.

    `reads` is true if `open` reads the file: a compressed one is then unpacked in full. A folder is
    searched for files of these `suffixes`, compressed or not; if other kinds have them too, `begins`
    tells whether a file is one, or raises InputError.
    """

    name: str
    matches: Callable[[Found], bool]
    open: Callable[[Found], Source]
    reads: bool = False
    suffixes: tuple[str, ...] = ()
    begins: Callable[[Path], bool] | None = None


def open_trace(path: str | Path) -> Trace:
    """Opens a capture; a path that cannot be used as one raises InputError, in one line."""
    shown = READING.path = Path(path)
    try:
        return Trace(_open_source(shown))
    except FileNotFoundError as error:
        raise InputError(f"{shown}: no such file{similar(shown)}") from error
    except PermissionError as error:
        raise InputError(f"{shown}: permission denied; make it readable: chmod u+r FILE") from error
    except OSError as error:
        raise InputError(f"{shown}: cannot be read ({error.strerror or error})") from error


def with_samples(trace: Trace, log: Path, offset_ns: int | None) -> Trace:
    """`trace` with the samples of a sampler's log; closing it closes both. `offset_ns` is the start of
    the log in session time. Raises InputError if the two cannot be joined."""
    from advisor.sources.samplers.log import WithSamples, read_log

    _check_log("--gpu-metrics", log)
    return Trace(WithSamples(trace.source, read_log(log), offset_ns))


def with_load(trace: Trace, log: Path) -> Trace:
    """`trace` with the load of its server, from the server's log or metrics; closing it closes both.
    Raises InputError for a file that does not hold it."""
    from advisor.sources.serving.server import WithLoad, open_server

    _check_log("--log", log)
    return Trace(WithLoad(trace.source, open_server(log, log)))


def _check_log(option: str, log: Path) -> None:
    if not log.is_file():
        what = "not a regular file; save it to disk first" if log.exists() else f"no such file{similar(log)}"
        raise InputError(f"{option}: {log}: {what}")
    READING.path = log


def needs_export(path: str | Path) -> bool:
    """True for a report that nsys must export first, which takes a while."""
    return str(path).endswith(REPORT_SUFFIXES)


def _open_source(shown: Path) -> Source:
    if (content := held(shown)) is not None:
        return _open_held(shown, content)
    if shown.is_dir():
        return _recognised(Found(shown, shown, b""))
    if shown.exists() and not shown.is_file():
        raise InputError(f"{shown}: not a regular file; save it to disk first")
    with shown.open("rb") as file:
        head = file.read(HEAD_BYTES)
    packed = opener(head)
    return _open_packed(shown, packed) if packed else _recognised(Found(shown, shown, head))


def _open_held(shown: Path, content: bytes) -> Source:
    folder = Scratch()
    copy = folder.path / "content"
    try:
        copy.write_bytes(content)
        source = _Unpacked(_open_source(copy), folder)
    except OSError as error:
        folder.close()
        where, why = folder.path.parent, error.strerror or error
        raise InputError(
            f"{shown}: cannot be kept in {where} ({why}); save it to disk, or set TMPDIR"
        ) from error
    except InputError as error:
        folder.close()
        raise InputError(str(error).replace(str(copy), str(shown))) from error
    source.capture = source.capture.replaced(path=str(shown))
    return source


def _kind_of(found: Found) -> Recogniser | None:
    return next((kind for kind in RECOGNISERS if kind.matches(found)), None)


#: What tells a tar archive, and its place.
_TAR, _TAR_AT = b"ustar", 257


def _recognised(found: Found) -> Source:
    kind = _kind_of(found)
    if kind is not None:
        return kind.open(found)
    if found.head[_TAR_AT:].startswith(_TAR):
        raise InputError(
            f"{found.shown}: a tar archive; unpack it (tar xf) and give the capture or folder in it"
        )
    raise InputError(
        f"{found.shown}: not a SQLite database and no other capture this version knows; "
        f"give an Nsight Systems export ({EXPORT_HINT}) or a PyTorch profiler trace (.json)"
    )


class _Unpacked(Around):
    """A source read from a temporary copy, which is removed when the source is closed."""

    def __init__(self, source: Source, folder: Scratch) -> None:
        super().__init__(source)
        self._folder = folder

    def close(self) -> None:
        super().close()
        self._folder.close()


def _open_packed(shown: Path, opener: Callable[[Path], BinaryIO]) -> Source:
    # The folder object also removes itself at exit if the source is not closed.
    folder = Scratch()
    try:
        copy = folder.path / "capture"

        def is_read(head: bytes) -> bool:
            kind = _kind_of(Found(copy, shown, head))
            return kind is not None and kind.reads  # only these are worth unpacking in full

        with opener(shown) as packed:
            head = unpack(shown, packed, copy, is_read)
        return _Unpacked(_recognised(Found(copy, shown, head)), folder)
    except BaseException:
        folder.close()
        raise


def _refused(what: str, way_out: str) -> Callable[[Found], NoReturn]:
    """Says what the file is and what to do; `way_out` may name the path, as `shown`."""

    def refuse(found: Found) -> NoReturn:
        raise InputError(f"{found.shown}: {what}; {way_out.format(shown=found.shown)}")

    return refuse


def _reader(open_: Callable[[Path, Path], Source]) -> Callable[[Found], Source]:
    """What opens a file with the reader of a module, which is given the path and the name to show."""
    return lambda found: open_(found.path, found.shown)


def _late(module: str, function: str) -> Callable[..., Any]:
    """A function of a module below `sources`, which is imported when the function is called."""
    return lambda *given: getattr(import_module(f"advisor.sources.{module}"), function)(*given)


def is_export_folder(path: Path) -> bool:
    """True for a folder that is one capture: an nsys export of one file a table."""
    return path.is_dir() and export_kind(path) is not None


def _refuse_empty(found: Found) -> NoReturn:
    written = found.name.endswith(".json")
    again = f"write the trace again: {WRITE}" if written else f"export it again: {EXPORT_HINT}"
    raise InputError(f"{found.shown}: an empty file; {again}")


def _open_report(found: Found) -> Source:
    folder = Scratch()
    try:
        exported = export_report(found.path, found.shown, folder.path)
        return _Unpacked(NsysSqlite(exported, found.shown), folder)
    except BaseException:
        folder.close()
        raise


def _is_tables(found: Found) -> bool:
    from advisor.sources.pasted.printed_tables import is_tables

    return not found.name.endswith(REPORT_SUFFIXES) and is_tables(found.head)


def _is_profiler_table(found: Found) -> bool:
    from advisor.sources.pasted.profiler_sums import is_profiler_table

    return not found.name.endswith(REPORT_SUFFIXES) and is_profiler_table(found.head)


def _is_server(found: Found) -> bool:
    from advisor.sources.serving.server import is_server

    return _is_text(found) and is_server(found.head)


def _is_markup(found: Found) -> bool:
    from advisor.sources.pasted.markup import is_markup

    return _is_text(found) and is_markup(found.head.decode("utf-8", "replace"))


def _is_text(found: Found) -> bool:
    """Any text may hold tables of `nsys stats` further down."""
    from advisor.sources.pasted.printed_tables import is_text

    return not found.name.endswith((*REPORT_SUFFIXES, ".sqlite", ".db")) and is_text(found.head)


def _is_report(found: Found) -> bool:
    inside = not _is_text(found) and (b"Nsight Systems" in found.head or b"QuadD" in found.head)
    return found.name.endswith(REPORT_SUFFIXES) or inside


def _is_json(found: Found) -> bool:
    """JSON, and no log whose lines begin with a time in brackets."""
    begin = found.head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return begin[:1] in (b"{", b"[") and not re.match(rb"\[\s*(?:\d+[-/]|[A-Z])", begin)


_FOLDER = _refused("a folder, not a capture", "name the file in it")
_PARQUET = _refused("one Parquet file", "name the folder that nsys exported it into ({shown.parent})")
_GIT_LFS = _refused(
    "a Git LFS pointer, not the file itself", "fetch the file: git lfs pull --include={shown.name}"
)
_UNFINISHED = _refused(
    "an unfinished Nsight Systems recording",
    "import it (QdstrmImporter -i {shown}, or nsys import {shown}), then export it: "
    "nsys export --type=sqlite {shown.stem}.nsys-rep",
)
_SAVED = _refused(
    "a document that advisor wrote, not a capture",
    "name the capture that it came from, or print a saved diagnosis with 'advisor FILE'",
)

# --- the beginning of a trace of PyTorch, without reading all of it --------------------------------

#: The events begin within this many bytes: devices and process groups come before them. Information about
#: the job lies within the second number.
_EVENTS_BYTES, _INFO_BYTES = 4 << 20, 1 << 18
_INFO = re.compile(rb'"distributedInfo"\s*:\s*\{(.{0,400})', re.DOTALL)


def _is_trace(path: Path) -> bool:
    """True for a file that begins like a trace. Raises InputError for one that cannot be read."""
    try:
        return b'"traceEvents"' in _head(path, _EVENTS_BYTES)
    except (OSError, *FAULTS) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error


def is_profiler_json(path: Path) -> bool:
    """The same; false for a file that cannot be read."""
    try:
        return _is_trace(path)
    except InputError:
        return False


def kind_of(path: Path) -> str | None:
    """The name of the recogniser that knows a file; None for one that cannot be read."""
    try:
        found = Found(path, path, b"" if path.is_dir() else _head(path, HEAD_BYTES))
        kind = _kind_of(found)
        return None if kind is None else kind.name
    except (OSError, InputError, *FAULTS):
        return None


def _head(path: Path, size: int) -> bytes:
    """The beginning of a file, unpacked if it is compressed."""
    with path.open("rb") as file:
        packed = opener(file.read(HEAD_BYTES))
    with packed(path) if packed else path.open("rb") as file:
        return file.read(size)


def peek(path: Path) -> Capture:
    """What the capture says of itself, without reading or exporting all of it only to learn its rank: nothing
    for a report that nsys has yet to export, of a trace of PyTorch rank and world size, if they come before
    its events. Raises InputError for anything but a capture."""
    if needs_export(path.name.lower()):
        return Capture(path=str(path), format="nsys-rep")
    if not path.is_file() or not is_profiler_json(path):
        with open_trace(path) as trace:
            return trace.capture
    try:
        info = _INFO.search(_head(path, _INFO_BYTES))
    except (OSError, *FAULTS):
        info = None  # reported when it is read
    text = info[1] if info else b""
    found = {n: re.search(rb'"%s"\s*:\s*(\d+)' % n.encode(), text) for n in ("rank", "world_size")}
    numbers: dict[str, Any] = {name: read_int(number[1].decode()) for name, number in found.items() if number}
    return Capture(path=str(path), format="kineto-json", **numbers)


#: Tried in order. A new format is a module with a Source, and one line here.
RECOGNISERS: list[Recogniser] = [
    Recogniser("nsys-columnar", lambda found: is_export_folder(found.path), _reader(NsysColumnar)),
    Recogniser("folder", lambda found: found.path.is_dir(), _FOLDER),
    Recogniser("empty", lambda found: not found.head, _refuse_empty),
    Recogniser(
        "nsys-sqlite", lambda found: found.head.startswith(MAGIC), _reader(NsysSqlite), True, (".sqlite",)
    ),
    Recogniser("git-lfs", lambda f: f.head.startswith(b"version https://git-lfs"), _GIT_LFS),
    Recogniser("qdstrm", lambda found: found.name.endswith(".qdstrm"), _UNFINISHED),
    Recogniser("markup", _is_markup, _reader(_late("pasted.any_text", "open_text")), reads=True),
    Recogniser(
        "pytorch-table",
        _is_profiler_table,
        _reader(_late("pasted.profiler_sums", "open_profiler_tables")),
        reads=True,
    ),
    Recogniser("nsys-stats", _is_tables, _reader(_late("pasted.printed_tables", "open_tables")), reads=True),
    Recogniser("other-tool", is_other, refuse_other),
    Recogniser("nsys-rep", _is_report, _open_report, reads=True),
    Recogniser("packed", lambda f: f.head.startswith(tuple(OTHER_PACKERS)), refuse_packed),
    Recogniser("parquet", lambda found: found.head.startswith(b"PAR1"), _PARQUET),
    Recogniser("saved", lambda found: SAVED.match(found.head) is not None, _SAVED),
    Recogniser("server", _is_server, _reader(_late("serving.server", "open_server")), reads=True),
    Recogniser("kineto", _is_json, _reader(KinetoJson), True, (".json",), _is_trace),
    Recogniser(
        "samples",
        lambda f: _late("samplers.log", "looks_like_log")(f.head),
        _reader(_late("samplers.log", "read_log")),
        reads=True,
    ),
    Recogniser("text", _is_text, _reader(_late("pasted.any_text", "open_text")), reads=True),
]


def searched() -> tuple[str, ...]:
    """The suffixes of files that a folder is searched for."""
    return tuple(s + packed for kind in RECOGNISERS for s in kind.suffixes for packed in PACKED)


def in_folder(path: Path) -> bool:
    """True for the files that a folder of captures may hold, also for unreadable files and broken links."""
    if path.is_dir():
        return is_export_folder(path)
    name = path.name
    for packed in PACKED[1:]:
        name = name.removesuffix(packed)
    kind = next((kind for kind in RECOGNISERS if name.endswith(kind.suffixes)), None)
    if kind is None or not (path.is_file() or (path.is_symlink() and not path.exists())):
        return False
    try:
        return kind.begins is None or kind.begins(path)
    except InputError:
        return True


def as_captures(paths: Sequence[Path], together: bool) -> list[Path]:
    """The paths, with files that are parts of one recording as one capture."""
    if len(paths) < 2:
        return list(paths)
    from advisor.sources.pasted.printed_tables import as_one_recording

    return as_one_recording(paths, together)
