"""Saved diagnoses: reading one, and keeping them by name in a folder of the user's choice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from json import JSONDecodeError
from pathlib import Path

from msgspec import ValidationError

from advisor.errors import InputError
from advisor.model.findings import SCHEMA_VERSION, Diagnosis
from advisor.reading import parse_saved, read_bytes

#: The folder of baselines, unless the user names another.
FOLDER = Path(".advisor")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SAVE = "save one with 'advisor baseline save NAME TRACE'"


def read(path: Path, redact: bool = False) -> tuple[Diagnosis, ...]:
    """The diagnoses of a file. Raises InputError, in one line, if it holds none, and with `redact`: a
    document does not show which of its texts are private."""
    if redact:
        raise InputError(f"{path}: a saved diagnosis; --redact works on the capture that it came from")
    found = parsed(path, str(path), _SAVE)
    for diagnosis in found:
        if not diagnosis.inputs:
            raise InputError(f"{path}: not a saved diagnosis (inputs: empty); {_SAVE}")
    return found


def parsed(path: Path, label: str, hint: str) -> tuple[Diagnosis, ...]:
    """The diagnoses of a file, without keys that a later version has added. Raises InputError, in one line
    that begins with `label`, where it holds none of this version."""
    try:
        document = parse_saved(read_bytes(path))
    except OSError as error:
        raise InputError(f"{label}: {error.strerror or error}; {hint}") from error
    except (JSONDecodeError, UnicodeDecodeError):
        raise InputError(f"{label}: not a JSON document; {hint}") from None
    except ValueError as error:
        raise InputError(f"{label}: not a saved diagnosis ({error}); {hint}") from None
    many = document.get("diagnoses") if isinstance(document, dict) else None
    found = many if isinstance(many, list) else [document]
    if not found:
        raise InputError(f"{label}: holds no diagnosis; {hint}")
    for entry in (document, *found):
        fields = entry if isinstance(entry, dict) else {}
        version = fields.get("schema_version", "missing")
        if version != SCHEMA_VERSION and isinstance(version, int):
            raise InputError(
                f"{label}: schema version {version}, this advisor reads {SCHEMA_VERSION}; {hint}"
            )
        if version != SCHEMA_VERSION:
            raise InputError(f"{label}: not a saved diagnosis (schema_version: {version}); {hint}")
        if isinstance(kind := fields.get("kind"), str):
            raise InputError(f"{label}: a saved {kind}, not a diagnosis; {hint}")
    try:
        return tuple(map(Diagnosis.model_validate, found))
    except ValidationError as error:
        raise InputError(f"{label}: not a saved diagnosis ({fault_text(error)}); {hint}") from None


def fault_text(error: ValidationError) -> str:
    """The first fault of a document: where, and what."""
    what, _, where = str(error).partition(" - at `$")
    return f"{where.strip('.`') or 'the document'}: {what.replace('`', '')}"


def path_of(name: str, folder: Path) -> Path:
    """The path of the baseline of this name, existing or not. Raises InputError for a bad name."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"'{name}' cannot name a baseline: use letters, digits, dots, dashes and underscores"
        )
    return folder / f"{name}.json"


def find(name: str, folder: Path) -> Path | None:
    """The file of a baseline, None if no such baseline exists."""
    if not _NAME.fullmatch(name):
        return None
    path = folder / f"{name}.json"
    return path if path.is_file() else None


def named(name: str, folder: Path) -> tuple[Diagnosis, ...]:
    """What is saved under this name. Raises InputError, which lists the existing names."""
    path = find(name, folder)
    if path is None:
        known = ", ".join(names(folder)) or "none"
        file = f"; show a file with: advisor {name}" if Path(name).is_file() else ""
        raise InputError(f"{folder}: no baseline is called '{name}' (saved: {known}){file}")
    return read(path)


def names(folder: Path) -> list[str]:
    return sorted(p.stem for p in folder.glob("*.json")) if folder.is_dir() else []


def entries(folder: Path) -> Iterator[tuple[str, tuple[Diagnosis, ...], str]]:
    """Name and diagnoses of every baseline of the folder; of an unreadable one the fault instead."""
    for name in names(folder):
        try:
            yield name, read(folder / f"{name}.json"), ""
        except InputError as error:
            yield name, (), str(error)
