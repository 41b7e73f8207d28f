"""Private tables and columns of an nsys export, and how each is redacted."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from advisor.capture import redact_command
from advisor.capture import redact_text as private
from advisor.capture.redact_kept import Kept, kept_of
from advisor.capture.redact_names import COMMAND_KEY, ENVIRONMENT_KEY, IDENTITY_KEY, commands, names_of
from advisor.capture.redact_text import MARK, Scrubber
from advisor.numerals import read_int
from advisor.sources.nsys.table_map import ID_MASK, PID_SHIFT, RUNTIME, STRINGS
from advisor.sources.sqlite.file import distrust
from advisor.sources.sqlite.pages import quoted

#: Tables that hold private data only.
DROPPED_ROWS = {"ProcessStreams": "output of the program", "ANALYSIS_FILE": "attached files"}
#: Tables of processes and threads: only traced ones stay.
PROCESS_TABLES = {
    "PROCESSES": ("globalPid", "process list"),
    "ThreadNames": ("globalTid", "names of other processes' threads"),
    "TARGET_INFO_PROCESS": ("processId", "process list"),
}
#: Tables of GPUs, with the id of each in `uuid`.
GPUS = ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE")
#: Tables that nsys exports, of any version.
NSYS_TABLES = re.compile(
    r"StringIds|ThreadNames|ProcessStreams|UnwindMethodType|PROCESSES|sqlite_\w+"
    r"|(?:ENUM|CUPTI|TARGET|META|NVTX|OSRT|SAMPLING|SCHED|GPU|CUDA|CUDNN|CUBLAS|OPENMP|OPENGL|OPENACC"
    r"|VULKAN|WDDM|DX\d+|D3D\d+|DXGI|SLI|NV|NVVIDEO|NVSHMEM|KHR|ETW|FECS|ANALYSIS|DIAGNOSTIC|COMPOSITE"
    r"|PROFILER|EXPORT|GENERIC|MPI|UCX|NIC|NET|RDMA|TOTAL|DEMOTED|SYSCALL|PYTHON|PMU|PERF|MEMORY|THREAD|LINUX"
    r"|DLA|VIDEO|XMC|HOST|CPU)"
    r"_[A-Z0-9_a-z]{1,60}"
)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?(?:\*/|\Z)", re.S)
_DEFAULT = re.compile(r"(?i)(?<!\s)\s+default\s+(?:'(?:[^']|'')*'|\"[^\"]*\"|\([^()]*\)|[^\s,)]+)")
#: Columns that identify the traced processes.
TRACED = ("globalPid", "globalTid", "processId", "pid")
#: Columns that refer to a string of StringIds: of kernels and calls, of programs, of any text.
CODE_COLUMNS = frozenset({"demangledName", "shortName", "mangledName"})
PROGRAM_COLUMNS = frozenset({"module"})
TEXT_COLUMNS = frozenset({"nameId", "textId", "jsonTextId", "symbol", "text", "name"})
#: Tables whose texts come from NVIDIA's tools and name nothing of the user's.
TOOL_TABLES = re.compile(r"^(?:ENUM_|TARGET_INFO_GPU(?:_METRICS)?$|sqlite_|NVTX_PAYLOAD_)")

#: Variables of launchers that contain the rank: plain numbers, which stay.
RANKS = frozenset(
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "PMI_RANK",
        "PMI_SIZE",
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "RANK",
        "WORLD_SIZE",
    )
)
_FOLDER_KEY = re.compile(r"(?i)(?:WORKING_DIR|_DIR(?:ECTORY)?$|_FOLDER$|STORAGE_PATH)")
_EXPORT_KEY = re.compile(r"(?i)^EXPORT_(?:HOST|USER)|_FILE$|_PATH(?:_ABS)?$|COMMAND_?LINE")
_SYSTEM_KEY = re.compile(
    r"(?i)environment|^hostname$|user|^systemuid$|namespace|installdir|storagepath|^nicinfo$|login"
)

#: Columns of texts that may name a user.
_NAMED_IN = {STRINGS: "value", "PROCESSES": "name", "NVTX_EVENTS": "text", "DIAGNOSTIC_EVENT": "text"}
_IN_TEXTS = "paths, names and secrets in texts"

#: Entries removed or changed, by kind and table.
Counts = Counter[tuple[str, str]]
Tables = dict[str, tuple[str, ...]]


def take_out(work: Path) -> tuple[Counts, tuple[Kept, ...], Scrubber]:
    """Redacts the export in place. Returns what was removed, what stays, and what searched its texts."""
    with closing(sqlite3.connect(work, isolation_level=None)) as db:
        db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        distrust(db)
        db.execute("pragma journal_mode = off")
        db.execute("pragma secure_delete = on")
        db.execute("pragma temp_store = memory")
        counts: Counts = Counter()
        _foreign(db, counts)
        tables = _columns(db)
        scrubber = _private_words(db, tables)
        db.execute("begin")
        ranks = _metadata(db, tables, scrubber, counts)
        _system(db, tables, counts)
        _gpus(db, tables, counts)
        _processes(db, tables, counts)
        for table, what in DROPPED_ROWS.items():
            if table in tables:
                counts[what, table] = db.execute(f"delete from {quoted(table)}").rowcount
        _strings(db, tables, scrubber, counts)
        _texts(db, tables, scrubber, counts)
        db.execute("commit")
        settings = [(key, value) for _, key, value in _pairs(db, tables, "META_DATA_CAPTURE")]
        kept = tuple(kept_of(db, tables, scrubber, ranks, settings))
        for table in tables:
            if table.startswith("sqlite_stat"):
                db.execute(f"drop table {quoted(table)}")
        db.execute("vacuum")
    return counts, kept, scrubber


def _foreign(db: sqlite3.Connection, counts: Counts) -> None:
    """Drops what no export has: views, triggers, indexes, unknown tables and columns, defaults, comments."""
    listed = "select type, name from sqlite_master where name not like 'sqlite_%' order by type = 'table'"
    for kind, name in db.execute(listed).fetchall():
        if kind != "table" or not NSYS_TABLES.fullmatch(name):
            db.execute(f"drop {kind} if exists {quoted(name)}")
            counts[f"{kind}s that no export has", "" if kind != "table" else _harmless(name)] += 1
    for (table,) in db.execute("select name from sqlite_master where type = 'table'").fetchall():
        for column in [row[1] for row in db.execute(f"pragma table_info({quoted(table)})")]:
            if not re.fullmatch(r"[A-Za-z]\w{0,40}", column) or Scrubber().text(column) != column:
                db.execute(f"alter table {quoted(table)} drop column {quoted(column)}")
                counts["columns that no export has", table] += 1
    db.execute("pragma writable_schema = on")
    for name, sql in db.execute("select name, sql from sqlite_master where type = 'table'").fetchall():
        plain = _COMMENT.sub(" ", _DEFAULT.sub("", sql or ""))
        if sql and plain != sql:
            db.execute("update sqlite_master set sql = ? where type = 'table' and name = ?", (plain, name))
    (version,) = db.execute("pragma schema_version").fetchone()
    db.execute(f"pragma schema_version = {version + 1}")
    db.execute("pragma writable_schema = reset")


def _harmless(name: str) -> str:
    """The name of a dropped table, if it cannot be private itself."""
    clean = re.fullmatch(r"[A-Za-z_]{1,40}", name) and Scrubber().text(name) == name
    return name if clean else MARK


def _columns(db: sqlite3.Connection) -> Tables:
    """Columns of every table that may be written."""
    names = [n for (n,) in db.execute("select name from sqlite_master where type = 'table'")]
    return {
        name: tuple(row[1] for row in db.execute(f"pragma table_info({quoted(name)})"))
        for name in names
        if not name.startswith("sqlite_") or name.startswith("sqlite_stat")
    }


def _pairs(db: sqlite3.Connection, tables: Tables, table: str) -> list[tuple[int, str, str]]:
    """Row, name and value of a table of settings."""
    if not {"name", "value"} <= set(tables.get(table, ())):
        return []
    rows = db.execute(f"select rowid, name, value from {quoted(table)} order by rowid")
    return [(r, str(n), v if isinstance(v, str) else "") for r, n, v in rows if v is not None]


def _private_words(db: sqlite3.Connection, tables: Tables) -> Scrubber:
    """Names of people and machines, and secret values, found in this capture."""
    of_tables = ("META_DATA_CAPTURE", "META_DATA_EXPORT", "EXPORT_META_DATA", "TARGET_INFO_SYSTEM_ENV")
    settings = [(name, value) for table in of_tables for _, name, value in _pairs(db, tables, table)]
    settings = [(re.sub(r"(?i)^EXPORT_(?=HOST|USER)", "", name), value) for name, value in settings]
    texts = [text for table, column in _NAMED_IN.items() for text in _held(db, tables, table, column)]
    found = [names_of(settings, texts), *(names_of((), (), line) for line in commands(settings))]
    words = {word for names in found for word in names.words}
    return Scrubber(words, {s for names in found for s in names.secrets}, _serials(db, tables))


def _held(db: sqlite3.Connection, tables: Tables, table: str, column: str) -> list[str]:
    """The texts of a column."""
    if column not in tables.get(table, ()):
        return []
    name = quoted(column)
    rows = db.execute(f"select distinct {name} from {quoted(table)} where typeof({name}) = 'text'")
    return [text for (text,) in rows]


def _metadata(db: sqlite3.Connection, tables: Tables, scrubber: Scrubber, counts: Counts) -> tuple[str, ...]:
    """Options of the capture and of the export; returns the variables that stay."""
    kept: list[str] = []
    table = "META_DATA_CAPTURE"
    for row, key, value in _pairs(db, tables, table):
        name, _, number = value.partition("=")
        if ENVIRONMENT_KEY.search(key):
            if name in RANKS and number.strip('"').isdigit():
                kept.append(name)
                continue
            _delete(db, table, row, counts, "environment variables")
        elif IDENTITY_KEY.search(key):
            if value and value != "Local (CLI)":
                _set(db, table, row, MARK, counts, "names of hosts and users")
        elif _FOLDER_KEY.search(key):
            _delete(db, table, row, counts, "folders")
    _commands(db, tables, scrubber, counts)
    for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        for row, key, value in _pairs(db, tables, table):
            if value and _EXPORT_KEY.search(key):
                _set(db, table, row, MARK, counts, "names of hosts, users and files")
    return tuple(dict.fromkeys(kept))


def _commands(db: sqlite3.Connection, tables: Tables, scrubber: Scrubber, counts: Counts) -> None:
    """Command lines: an argument may be the value of the option before it."""
    table = "META_DATA_CAPTURE"
    lines: dict[str, list[tuple[int, int, str]]] = {}
    for row, key, value in _pairs(db, tables, table):
        if hit := COMMAND_KEY.match(key):
            lines.setdefault(hit["process"], []).append((read_int(hit["number"] or "-1") or 0, row, value))
    for line in lines.values():
        words = sorted(line)
        program = ["program"] * (words[0][0] >= 0)  # where the export does not name it
        clean = redact_command.clean([*program, *(word for _, _, word in words)], scrubber)[len(program) :]
        for (_, row, old), new in zip(words, clean, strict=True):
            if new != old:
                _set(db, table, row, new, counts, "command arguments")


def _system(db: sqlite3.Connection, tables: Tables, counts: Counts) -> None:
    table = "TARGET_INFO_SYSTEM_ENV"
    for row, key, value in _pairs(db, tables, table):
        if value and (_SYSTEM_KEY.search(key) or private.is_environment(value)):
            what = "environments" if private.is_environment(value) else "names of hosts, users and folders"
            _delete(db, table, row, counts, what)


def _serials(db: sqlite3.Connection, tables: Tables) -> list[str]:
    """Ids that identify one GPU."""
    listed = [table for table in GPUS if "uuid" in tables.get(table, ())]
    rows = (db.execute(f"select distinct uuid from {t} where typeof(uuid) = 'text'") for t in listed)
    return list(dict.fromkeys(text for found in rows for (text,) in found if len(text) >= 8))


def _gpus(db: sqlite3.Connection, tables: Tables, counts: Counts) -> None:
    """The ids of GPUs are replaced; which GPU is which stays."""
    for serial in _serials(db, tables):
        for table in GPUS:
            if "uuid" in tables.get(table, ()):
                sql = f"update {table} set uuid = ? where uuid = ?"
                done = db.execute(sql, (private.other_gpu(serial), serial))
                counts["ids of GPUs", table] += done.rowcount


def _processes(db: sqlite3.Connection, tables: Tables, counts: Counts) -> None:
    """Only processes and threads with events stay."""
    traced: set[int] = set()
    for table, columns in tables.items():
        if table in PROCESS_TABLES or not table.startswith(("CUPTI_", "TARGET_INFO_CUDA_", "NVTX_EVENTS")):
            continue
        for column in TRACED:
            if column in columns:
                shown = _process(column)
                rows = db.execute(f"select distinct {shown} from {quoted(table)} where {quoted(column)} > 0")
                traced.update(p for (p,) in rows if isinstance(p, int))
    for table, (column, what) in PROCESS_TABLES.items():
        if column in tables.get(table, ()):
            marks = ",".join(map(str, sorted(traced))) or "-1"
            where = f"coalesce({_process(column)}, -1) not in ({marks})"
            sql = f"delete from {quoted(table)} where {where}"
            counts[what, table] += db.execute(sql).rowcount


def _process(column: str) -> str:
    """SQL for the process in a column: a plain id, or one inside a serialised id."""
    name = quoted(column)
    return name if column in ("pid", "processId") else f"(({name} >> {PID_SHIFT}) & {ID_MASK})"


def _strings(db: sqlite3.Connection, tables: Tables, scrubber: Scrubber, counts: Counts) -> None:
    """StringIds: by what refers to a string; unreferenced texts become empty."""
    if not {"id", "value"} <= set(tables.get(STRINGS, ())):
        return
    db.execute("create temp table referred (id integer, way integer)")
    for table, columns in tables.items():
        if table == STRINGS or TOOL_TABLES.match(table):
            continue
        for column in columns:
            way = _way(table, column)
            if way is not None:
                db.execute(
                    f"insert into referred select distinct {quoted(column)}, {way} from "
                    f"{quoted(table)} where typeof({quoted(column)}) = 'integer'"
                )
    # A string of a kernel that is also a text is treated as a text.
    ways = dict(db.execute("select id, max(way) from referred group by id"))
    clean = (scrubber.name, scrubber.program, scrubber.text)
    sql = f"select id, cast(value as blob) from {STRINGS} where value is not null"
    changed = []
    for number, raw in db.execute(sql):
        old = _decoded(raw)
        new = clean[ways[number]](old) if number in ways else ""
        if new != old:
            what = _IN_TEXTS if number in ways else "strings that no event refers to"
            counts["environments" if private.is_environment(old) else what, STRINGS] += 1
            changed.append((_encoded(new), number))
    db.executemany(f"update {STRINGS} set value = cast(? as text) where id = ?", changed)
    db.execute("drop table referred")


def _way(table: str, column: str) -> int | None:
    """How the strings of a column are searched: 0 lightly, 1 as programs, 2 as texts."""
    if column in CODE_COLUMNS or (column == "nameId" and table == RUNTIME):
        return 0
    if column in PROGRAM_COLUMNS:
        return 1
    return 2 if column in TEXT_COLUMNS else None


def _texts(db: sqlite3.Connection, tables: Tables, scrubber: Scrubber, counts: Counts) -> None:
    """Every text and blob stored in a table itself."""
    for table, columns in tables.items():
        if table == STRINGS or TOOL_TABLES.match(table) or not columns:
            continue
        found = ", ".join(f"max(typeof({quoted(c)}) in ('text', 'blob'))" for c in columns)
        holds = db.execute(f"select {found} from {quoted(table)}").fetchone()
        for column, held in zip(columns, holds, strict=True):
            if held:
                _column(db, table, column, scrubber, counts)


def _column(db: sqlite3.Connection, table: str, column: str, scrubber: Scrubber, counts: Counts) -> None:
    export = table in ("META_DATA_EXPORT", "EXPORT_META_DATA")
    clean: Callable[[str], str] = scrubber.program if table == "PROCESSES" else scrubber.text

    def replaced(raw: bytes) -> bytes | None:
        """The new bytes, NULL if nothing changes."""
        old = _decoded(raw)
        # A version of four numbers is not an address.
        new = old if export and re.fullmatch(r"[\d.]+", old) else clean(old)
        if new == old:
            return None
        counts[_IN_TEXTS, table] += 1
        return _encoded(new)

    db.create_function("replaced", 1, replaced)
    name = quoted(column)
    for kind in ("text", "blob"):
        db.execute(
            f"update {quoted(table)} set {name} = coalesce(cast(replaced(cast({name} as blob)) "
            f"as {kind}), {name}) where typeof({name}) = '{kind}'"
        )


def _delete(db: sqlite3.Connection, table: str, row: int, counts: Counts, what: str) -> None:
    db.execute(f"delete from {quoted(table)} where rowid = ?", (row,))
    counts[what, table] += 1


def _set(db: sqlite3.Connection, table: str, row: int, value: str, counts: Counts, what: str) -> None:
    raw = _encoded(value)
    db.execute(f"update {quoted(table)} set value = cast(? as text) where rowid = ?", (raw, row))
    counts[what, table] += 1


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
