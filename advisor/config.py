"""Options of `diagnose`: defaults, then ``[tool.advisor]`` or ``advisor.toml``, then flags."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from advisor.errors import InputError, invalid_choice

#: Closed sets; everything else is free text that the stage that uses it checks.
CHOICES: dict[str, tuple[str, ...]] = {
    "format": ("text", "json", "markdown", "sarif", "junit", "github"),
    "phase": ("prefill", "decode"),
    "engine": ("durable", "python"),
    "fail_on": ("info", "low", "medium", "high"),
}


@dataclass(frozen=True)
class Settings:
    """Every option of `diagnose` that may come from a file. Names are those of the flags."""

    format: str = "text"
    window: str | None = None
    nvtx: str | None = None
    phase: str | None = None
    weight_bytes: str | None = None
    gpu_metrics: str | None = None
    gpu_metrics_offset: str | None = None
    serving_engine: str | None = None
    rules: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    param: tuple[str, ...] = ()
    engine: str | None = None
    fail_on: str | None = None
    fail_on_new: bool = False
    baseline: str | None = None
    folder: str | None = None
    top: int = 5
    sensitivity: bool = False
    explain_ranking: bool = False
    ranks: bool = False
    independent: bool = False
    jobs: int = 0
    dask: str | None = None
    quiet: bool = False
    verbose: bool = False

    @property
    def verbosity(self) -> int:
        return int(self.verbose) - int(self.quiet)


_KINDS = {f.name: str(f.type) for f in fields(Settings)}


def settle(flags: Mapping[str, Any], folder: Path | None = None) -> Settings:
    """The settings in force: a flag that was given wins over the files in `folder`."""
    values = from_files(folder if folder is not None else Path.cwd())
    for name, value in flags.items():
        # An empty list and an unset switch mean "not given".
        if value is not None and value is not False and value != [] and value != ():
            values[name] = _checked(name, value, f"--{name.replace('_', '-')}")
    if flags.get("quiet") and flags.get("verbose"):
        raise InputError("-q and -v contradict each other; give one of them")
    # A flag for more or for less undoes the opposite in a file.
    if flags.get("quiet"):
        values["verbose"] = False
    if flags.get("verbose"):
        values["quiet"] = False
    return Settings(**values)


def from_files(folder: Path) -> dict[str, Any]:
    """What pyproject.toml says, overlaid by advisor.toml; empty where neither says anything."""
    values: dict[str, Any] = {}
    project = _read(folder / "pyproject.toml")
    section = project.get("tool", {}).get("advisor", {})
    for source, table in (
        ("pyproject.toml, [tool.advisor]", section),
        ("advisor.toml", _read(folder / "advisor.toml")),
    ):
        if not isinstance(table, dict):
            raise InputError(f"{source}: must be a table of options")
        for key, value in table.items():
            name = key.replace("-", "_")
            if name not in _KINDS:
                raise InputError(f"{source}: unknown key '{key}'; {_near(name)}")
            values[name] = _checked(name, value, f"{source}: {key}")
    return values


def _near(name: str) -> str:
    known = [k.replace("_", "-") for k in _KINDS]
    near = get_close_matches(name.replace("_", "-"), known, 1)
    return f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            return tomllib.load(stream)
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path.name}: not valid TOML: {error}") from error
    except OSError as error:
        raise InputError(f"{path.name}: {error.strerror or error}") from error


def _checked(name: str, value: Any, where: str) -> Any:
    """`value` in the type of the setting, or a line that says what it should be."""
    kind = _KINDS[name]
    if kind.startswith("tuple"):
        return tuple(_texts(name, value, where))
    if kind == "bool":
        if not isinstance(value, bool):
            raise InputError(f"{where} must be true or false")
        return value
    if kind == "int":
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputError(f"{where} must be a whole number, 0 or more")
        return value
    if isinstance(value, int) and not isinstance(value, bool) and name == "weight_bytes":
        return str(value)
    if not isinstance(value, str):
        raise InputError(f"{where} must be text")
    if name in CHOICES and value not in CHOICES[name]:
        raise invalid_choice(where, value, CHOICES[name])
    return value


def _texts(name: str, value: Any, where: str) -> list[str]:
    if isinstance(value, str):
        return [value]
    if name == "param" and isinstance(value, dict):
        # [tool.advisor.param] with SYN101.min_idle = 0.1 reads as a table of tables.
        return [
            f"{code}.{param}={number}"
            for code, params in value.items()
            for param, number in (params.items() if isinstance(params, dict) else [("", params)])
        ]
    if isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
        return list(value)
    raise InputError(f"{where} must be text or a list of texts")
