"""Options of the verbs: defaults, then ``[tool.advisor]`` or ``advisor.toml``, then flags. Files of the
current folder may be a stranger's: `REACHES` says what they can set."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from advisor.errors import InputError, invalid_choice, near
from advisor.model.options import Flag, Options, Setting, declared, format_names, one_of
from advisor.reading import MOST_WRITTEN_BYTES, leads_out, read_text, similar

_PAIR = "TRACE is two recordings of one program: nsys' and PyTorch's."


@dataclass(frozen=True)
class Settings(Options):
    """Options shared by several verbs: of the analysis, of reports, and options that files cannot set."""

    format: Annotated[
        str, one_of("Kind of report.", *format_names("findings"))._replace(short=("--output-format",))
    ] = "text"
    select: Annotated[tuple[str, ...], Flag("CODES", "Show only these: SYN101,LCH (prefixes).")] = ()
    ignore: Annotated[tuple[str, ...], Flag("CODES", "Do not show these.")] = ()
    fail_on: Annotated[
        str | None, one_of("Exit 1 from this severity on.", "info", "low", "medium", "high")
    ] = None
    fail_on_new: Annotated[
        bool, Flag("", "Exit 1 for new findings only (from --fail-on, or medium, on).")
    ] = False
    fail_on_worse: Annotated[
        bool, Flag("", "Exit 1 for findings that are worse than in the baseline, too.")
    ] = False
    baseline: Annotated[
        str | None, Flag("NAME|FILE", "Saved diagnosis: mark findings as new, known, gone.")
    ] = None
    folder: Annotated[Path, Flag("DIR", "Folder of named baselines (.advisor).")] = Path(".advisor")
    reader: Annotated[
        Literal["manager"] | None, one_of("Five sentences for this reader.", "manager")._replace(key="for")
    ] = None
    top: Annotated[int, Flag("N", "Findings listed (default 5).")] = 5
    explain_ranking: Annotated[bool, Flag("", "Show how findings got their order.")] = False
    ranks: Annotated[bool, Flag("", "The captures are the ranks of one job.")] = False
    independent: Annotated[bool, Flag("", "They are not, despite their names.")] = False
    jobs: Annotated[int, Flag("N", "Processes for ranks (default: cores).", at_least=0)] = 0
    dask: Annotated[str | None, Flag("ADDRESS|local", "Read ranks on this Dask cluster.")] = None
    quiet: Annotated[bool, Flag("", "Only what to do and what it wins.", short=("-q",))] = False
    verbose: Annotated[
        int, Flag("", "Every finding in full; -vv: every row, place and fact.", short=("-v",), counted=True)
    ] = 0
    output: Annotated[Path | None, Flag("FILE", "Write the result here.", short=("-o",))] = None
    html: Annotated[Path | None, Flag("FILE", "Write an HTML report as well.")] = None
    xlsx: Annotated[Path | None, Flag("FILE", "Write a workbook as well.")] = None
    force: Annotated[bool, Flag("", "Replace an existing FILE.")] = False
    pair: Annotated[bool, Flag("", _PAIR, key="together")] = False
    config: Annotated[Path | None, Flag("FILE", "Take options from this file, not this folder's.")] = None

    @property
    def verbosity(self) -> int:
        return self.verbose - int(self.quiet)


class Reach(NamedTuple):
    """What options could do if a stranger had chosen their values; whether files may set them, and whether
    their values are paths, which then stay below the folder of a file that was only found."""

    effect: str
    keys: str
    in_files: bool = False
    paths: bool = False


#: Each option is in one of them; no file sets one that is in none.
REACHES = (
    Reach(
        "changes what is analysed and shown, and whether a gate fails",
        "window nvtx phase unprofiled_step acceptance gpu_metrics_offset serving_engine param engine "
        "sensitivity redact format select ignore fail_on fail_on_new fail_on_worse for top explain_ranking "
        "ranks independent jobs quiet verbose",
        in_files=True,
    ),
    Reach("names what is read", "weight_bytes gpu_metrics log rules baseline", in_files=True, paths=True),
    Reach("names the folder of baselines, reviews and runs", "folder", in_files=True, paths=True),
    Reach("writes files", "output html xlsx force"),
    Reach("contacts an address", "dask"),
    Reach("belongs to one command line", "together config"),
)
REACH = {key: reach for reach in REACHES for key in reach.keys.split()}

#: By the key of a file, which with dashes is the name of the flag; and those that files may set.
FLAGS = declared(Settings)
SETTINGS = {key: setting for key, setting in FLAGS.items() if key in REACH and REACH[key].in_files}
CHOICES = {key: setting.flag.choices for key, setting in SETTINGS.items() if setting.flag.choices}


def settle(
    flags: Mapping[str, Any],
    folder: Path | None = None,
    keys: Collection[str] = tuple(SETTINGS),
    choices: Mapping[str, Sequence[str]] = CHOICES,
) -> Settings:
    """The settings in force: a given flag wins over the files in `folder`, or the file that the flag
    `config` names, of which only `keys` count; `choices` are the values that each flag may have.

    Raises InputError, too where a found file names something outside of `folder`, or what is kept
    there leads out of it."""
    found, named = folder or Path.cwd(), flags.get("config")
    values: dict[str, Any] = {}
    if named is not None:
        values = _from_named(named, keys)
    elif keys:
        values = _from_files(found, keys)
    if "folder" in flags and not flags["folder"] and not (named is not None and "folder" in values):
        kept = Path(values.get("folder", Settings.folder))
        if (out := leads_out(found / kept, found)) is not None:
            raise InputError(
                f"{kept}: {_shown(out, found)} leads out of this folder; if you trust it: --folder {kept}"
            )
    for name, value in flags.items():
        # An empty list and an unset switch mean "not given".
        if value is not None and value is not False and value != [] and value != ():
            where = f"--{name.replace('_', '-')}"
            values[FLAGS[name].name] = checked(FLAGS[name], value, where, choices.get(name, ()))
    if flags.get("quiet") and flags.get("verbose"):
        raise InputError("-q and -v contradict each other; give one of them")
    # A flag for more or for less cancels the opposite in a file.
    if flags.get("quiet"):
        values["verbose"] = 0
    if flags.get("verbose"):
        values["quiet"] = False
    return Settings(**values)


def _from_files(folder: Path, keys: Collection[str]) -> dict[str, Any]:
    """Fields that pyproject.toml sets, overlaid by advisor.toml; empty if neither sets any."""
    values: dict[str, Any] = {}
    for name in ("pyproject.toml", "advisor.toml"):
        with suppress(FileNotFoundError):
            source, table = _section(folder / name, name)
            if table and leads_out(folder / name, folder):
                raise InputError(f"{name}: a link out of this folder; if you trust it: --config {name}")
            values |= _values(table, keys, source, folder, found=True)
    return values


def _from_named(path: Path, keys: Collection[str]) -> dict[str, Any]:
    """The same of the file that the user named, whose paths may lead anywhere. Raises InputError."""
    try:
        source, table = _section(path, str(path))
    except FileNotFoundError:
        raise InputError(f"--config: {path}: no such file{similar(path)}") from None
    return _values(table, keys, source, path.parent, found=False)


def _section(path: Path, name: str) -> tuple[str, dict[str, Any]]:
    """How messages name the part of a file that holds our options, and those."""
    document = _read(path, name)
    tools = document.get("tool")
    own = tools.get("advisor", {}) if isinstance(tools, dict) else {}
    source = f"{name}, [tool.advisor]" if path.name == "pyproject.toml" else name
    if path.name == "pyproject.toml" or (document.keys() == {"tool"} and own):
        document = own
    if not isinstance(document, dict):
        raise InputError(f"{source}: must be a table of options")
    return source, document


def _values(
    table: Mapping[str, Any], keys: Collection[str], source: str, folder: Path, found: bool
) -> dict[str, Any]:
    """The fields that a table sets. Paths are those from `folder`; of a `found` file they stay below it."""
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        dashed = name.replace("_", "-")
        if name in FLAGS and name not in SETTINGS:
            flag = f"--{dashed} {FLAGS[name].flag.metavar}".strip()
            why = REACH[name].effect if name in REACH else "is not for files"
            raise InputError(f"{source}: '{dashed}' {why}; only the command line may: {flag}")
        if name not in SETTINGS:
            hint = near(dashed, [k.replace("_", "-") for k in SETTINGS])
            raise InputError(f"{source}: unknown key '{key}'; {hint}")
        held = checked(SETTINGS[name], value, f"{source}: {key}", CHOICES.get(name, ()))
        if REACH[name].paths:
            held = _placed(held, folder, f"{source}: {key}", found)
        if name in keys:
            values[SETTINGS[name].name] = held
    return values


def _placed(value: Any, folder: Path, where: str, found: bool) -> Any:
    """Paths, of a file in `folder`, as the current folder has them. Raises InputError for those that lead out
    of the folder of a `found` file, by themselves or by links in them."""
    if isinstance(value, tuple):
        return tuple(_placed(each, folder, where, found) for each in value)
    if not found:
        there = isinstance(value, Path) or "/" in value or (folder / value).is_file()
        return type(value)(folder / value) if there else value  # else a number, or the name of a baseline
    for path in (folder / value, folder / f"{value}.json"):  # a baseline is named without its suffix
        if (out := leads_out(path, folder)) is not None:
            raise InputError(
                f"{where}: {_shown(out, folder)} leads out of the folder of this file; "
                "give it on the command line, or name the file: --config FILE"
            )
    return value


def _shown(path: Path, folder: Path) -> str:
    """A path for messages, shorter if it lies in `folder`."""
    return repr(str(path.relative_to(folder) if path.is_relative_to(folder) else path))


#: Parts of a dotted key. Reading one of 20,000 takes 1.5 GB; deep tables of other tools have five.
_MOST_PARTS = 32
_PART = r"""(?:[\w-]++|"(?:\\.|[^"\\\n])*+"|'[^'\n]*+')[ \t]*+"""
_LEXED = re.compile(
    rf"""\"{{3}}(?:\\.|[^\\"]|"(?!""))*+(?:\"{{3}}|\Z)|'{{3}}(?:[^']|'(?!''))*+(?:'{{3}}|\Z)|\#[^\n]*+"""
    rf"|(?P<deep>(?:{_PART}\.[ \t]*+){{{_MOST_PARTS}}})|{_PART}"
    r"""|"(?:\\.|[^"\\\n])*+""",  # a quote that does not end, whose signs are looked at once
    re.DOTALL,
)


def _read(path: Path, name: str) -> dict[str, Any]:
    """A TOML document. Raises FileNotFoundError, and InputError for what cannot be read."""
    try:
        text = read_text(path, MOST_WRITTEN_BYTES)
        for part in _LEXED.finditer(text):
            if part["deep"]:
                line = text.count("\n", 0, part.start()) + 1
                raise ValueError(f"a key of more than {_MOST_PARTS} parts (at line {line})")
        return tomllib.loads(text)
    except FileNotFoundError:
        raise
    except RecursionError:
        raise InputError(f"{name}: not valid TOML: nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{name}: not valid TOML: {error}") from error
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error


def checked(setting: Setting, value: Any, where: str, choices: Sequence[str]) -> Any:
    """`value` in the type of the setting, or a line that says what it should be."""
    kind = setting.kind
    if kind == "list":
        texts = _texts(setting.name, value, where)
        return tuple(map(Path, texts) if setting.paths else texts)
    if kind == "bool":
        if not isinstance(value, bool):
            raise InputError(f"{where} must be true or false")
        return value
    if setting.flag.counted and isinstance(value, bool):
        return int(value)
    if kind == "int":
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputError(f"{where} must be a whole number, 0 or more")
        return value
    if isinstance(value, int) and not isinstance(value, bool) and setting.name == "weight_bytes":
        return str(value)
    if setting.paths and isinstance(value, Path):
        return value
    if not isinstance(value, str):
        raise InputError(f"{where} must be text")
    if choices and value not in choices:
        raise invalid_choice(where, value, choices)
    return Path(value) if setting.paths else value


def _texts(name: str, value: Any, where: str) -> list[str]:
    if isinstance(value, str):
        return [value]
    if name == "params" and isinstance(value, dict):
        # [tool.advisor.param] with SYN101.min_idle = 0.1 reads as a table of tables.
        return [
            f"{code}.{param}={number}"
            for code, params in value.items()
            for param, number in (params.items() if isinstance(params, dict) else [("", params)])
        ]
    if isinstance(value, list | tuple) and all(isinstance(v, str | Path) for v in value):
        return list(map(str, value))
    raise InputError(f"{where} must be text or a list of texts")
