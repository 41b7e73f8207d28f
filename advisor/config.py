"""Options of the verbs: defaults, then ``[tool.advisor]`` or ``advisor.toml``, then flags."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from advisor.errors import InputError, invalid_choice, near
from advisor.model.options import Flag, Options, Setting, declared, format_names, one_of
from advisor.reading import read_text

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
    output: Annotated[Path | None, Flag("FILE", "Write the result here.", short=("-o",), typed=True)] = None
    html: Annotated[Path | None, Flag("FILE", "Write an HTML report as well.", typed=True)] = None
    xlsx: Annotated[Path | None, Flag("FILE", "Write a workbook as well.", typed=True)] = None
    force: Annotated[bool, Flag("", "Replace an existing FILE.", typed=True)] = False
    pair: Annotated[bool, Flag("", _PAIR, key="together", typed=True)] = False

    @property
    def verbosity(self) -> int:
        return self.verbose - int(self.quiet)


#: By the key of a file, which with dashes is the name of the flag; and those that files may set.
FLAGS = declared(Settings)
SETTINGS = {key: setting for key, setting in FLAGS.items() if not setting.flag.typed}
CHOICES = {key: setting.flag.choices for key, setting in SETTINGS.items() if setting.flag.choices}


def settle(
    flags: Mapping[str, Any],
    folder: Path | None = None,
    keys: Collection[str] = tuple(SETTINGS),
    choices: Mapping[str, Sequence[str]] = CHOICES,
) -> Settings:
    """The settings in force: a given flag wins over the files in `folder`, of which only `keys` count;
    `choices` are the values that each flag may have."""
    values = _from_files(folder or Path.cwd(), keys) if keys else {}
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
    project = _read(folder / "pyproject.toml")
    section = project.get("tool", {}).get("advisor", {})
    own = _read(folder / "advisor.toml")
    if own.keys() == {"tool"} and own["tool"].keys() == {"advisor"}:  # as in pyproject.toml
        own = own["tool"]["advisor"]
    for source, table in (("pyproject.toml, [tool.advisor]", section), ("advisor.toml", own)):
        if not isinstance(table, dict):
            raise InputError(f"{source}: must be a table of options")
        for key, value in table.items():
            name = key.replace("-", "_")
            if name not in SETTINGS:
                known = [k.replace("_", "-") for k in SETTINGS]
                hint = near(name.replace("_", "-"), known)
                raise InputError(f"{source}: unknown key '{key}'; {hint}")
            held = checked(SETTINGS[name], value, f"{source}: {key}", CHOICES.get(name, ()))
            if name in keys:
                values[SETTINGS[name].name] = held
    return values


def _read(path: Path) -> dict[str, Any]:
    try:
        text = read_text(path)
        return tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path.name}: not valid TOML: {error}") from error
    except OSError as error:
        raise InputError(f"{path.name}: {error.strerror or error}") from error


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
