"""The folder of runs: each in a folder of its own, readable by its user only, since command lines may hold
secrets."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import ValidationError

from advisor.errors import InputError, near
from advisor.locks import InUse, locked
from advisor.model.run import Run
from advisor.numerals import read_int
from advisor.reading import parse_saved, read_bytes
from advisor.recording.seal import sealed
from advisor.recording.watch import size_of
from advisor.writing import replace_file

#: Within the folder of baselines.
RUNS = "runs"
#: The folder of baselines, unless the user names another; its history is meant for git.
HOME = ".advisor"
_HISTORY = "!/history/\n!/history/**\n"
RECORD, PLAN, DIAGNOSIS = "run.json", "plan.json", "diagnosis.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: What a run keeps for good; the rest, its captures, is large.
_KEPT = (RECORD, PLAN, DIAGNOSIS)
_GIT_S = 10
#: Where git's configuration is not that of the repository.
_OF_THE_USER = ("system", "global")


@contextmanager
def new(folder: Path, name: str | None) -> Iterator[Path]:
    """An empty folder for a run of this name, else of the next number, which no other process removes or
    takes captures out of inside. Raises InputError where it exists or cannot be made."""
    made = _made(folder, name)
    with locked(made):
        yield made


def _made(folder: Path, name: str | None) -> Path:
    runs = folder / RUNS
    if name is not None and not _NAME.fullmatch(name):
        raise InputError(f"'{name}' cannot name a run: use letters, digits, dots, dashes and underscores")
    try:
        runs.mkdir(parents=True, exist_ok=True)
        _keep_from_git(folder)
        numbers = [read_int(p.name[4:]) or 0 for p in runs.glob("run-*")]
        number = max(numbers, default=0) + 1
        while True:
            made = runs / (name or f"run-{number}")
            try:
                made.mkdir(mode=0o700)
            except FileExistsError:
                if name is not None:
                    raise InputError(f"a run '{name}' exists; see 'advisor runs', or remove it") from None
                number += 1  # another recording began meanwhile
                continue
            return made
    except OSError as error:
        raise InputError(f"{runs}: cannot be made ({error.strerror or error})") from error


def _keep_from_git(folder: Path) -> None:
    """Keep git from taking what runs record, unless somebody has said what it should take. In a folder that
    the user named, where other files may be, this concerns the runs alone."""
    ours = folder.name == HOME
    path = (folder if ours else folder / RUNS) / ".gitignore"
    if not path.exists():
        path.write_text(f"*\n{_HISTORY if ours else ''}", encoding="utf-8")


def save(folder: Path, run: Run) -> None:
    """Write its record, sealed."""
    write(folder / RECORD, f"{sealed(run).model_dump_json(indent=2)}\n".encode())


def write(path: Path, data: bytes) -> None:
    """Replace a file of a run whole. Raises InputError."""
    try:
        replace_file(path, (data,))
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def read(folder: Path) -> Run:
    """The record of a run. Raises InputError where it is damaged."""
    try:
        run = Run.model_validate(parse_saved(read_bytes(folder / RECORD)))
        return run.replaced(name=folder.name)  # paths are made from it
    except (OSError, ValueError, ValidationError, json.JSONDecodeError) as error:
        why = " ".join(str(error).split())[:120]
        raise InputError(f"{folder}: not a run that can be read ({why})") from None


def records(folder: Path) -> dict[Path, Run | None]:
    """The folder and the record of each run, None for a damaged one; damaged ones first, then the oldest."""
    found: dict[Path, Run | None] = {}
    for path in (folder / RUNS).glob(f"*/{RECORD}"):
        try:
            found[path.parent] = read(path.parent)
        except InputError:
            found[path.parent] = None
    return dict(sorted(found.items(), key=lambda f: ("" if f[1] is None else f[1].begun, f[0].name)))


def named(name: str | None, folder: Path) -> Path:
    """The folder of a run; of the last without a name. Raises InputError."""
    known = [*records(folder)]
    if not known:
        raise InputError(f"{folder / RUNS}: no runs yet; record one: advisor run -- COMMAND")
    if name is None:
        return known[-1]
    for path in known:
        if path.name == name:
            return path
    raise InputError(f"no run '{name}'; {near(name, [p.name for p in known])}")


def remove(path: Path) -> None:
    """Delete a run with all that is in its folder. Raises InputError, too for one that still records."""
    try:
        with locked(path, wait_s=0):
            shutil.rmtree(path)
    except InUse:
        raise InputError(f"{path}: still being recorded or diagnosed; end that first") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be removed ({error.strerror or error})") from error


def drop_captures(folder: Path, keep: int) -> Iterator[tuple[Path, int]]:
    """Delete what is large of all but the `keep` newest runs; each with the bytes that it freed. Runs that
    are still recorded or diagnosed stay; where there are no locks, those that are not recorded yet."""
    for path, run in [*records(folder).items()][: -keep or None]:
        with suppress(InUse), locked(path, wait_s=0) as sure:
            if not sure and run is not None and run.state == "begun":
                continue
            if freed := _drop(path):
                yield path, freed


def _drop(path: Path) -> int:
    """Delete what is large of a run; the bytes that this freed."""
    size = size_of(path)
    large = [p for p in path.iterdir() if p.name not in _KEPT]
    for each in large:
        whole = each.is_dir() and not each.is_symlink()
        shutil.rmtree(each) if whole else each.unlink(missing_ok=True)
    return size - size_of(path) if large else 0


def revision() -> tuple[str | None, bool | None]:
    """The git commit of the current folder, and whether files that git knows differ from it; None if
    there is no repository or no git. No program is started that the repository names."""
    try:
        commit = _git("rev-parse", "HEAD").strip()
        listed = _git("config", "--null", "--show-scope", "--name-only", "--includes", "--list").split("\0")
        own = [
            key for scope, key in zip(listed[::2], listed[1::2], strict=False) if scope not in _OF_THE_USER
        ]
        filters = {key.rpartition(".")[0] for key in own if key.startswith("filter.")}
        if any("=" in name for name in filters):  # -c cannot switch it off
            return commit, None
        off = [f"{name}.{key}=" for name in filters for key in ("clean", "process", "required")]
        words = ("--porcelain", "--untracked-files=no", "--ignore-submodules=all")
        return commit, bool(_git("status", *words, configured=off).strip())
    except (OSError, subprocess.SubprocessError):
        return None, None


def _git(*words: str, configured: Sequence[str] = ()) -> str:
    options = [word for each in ("core.fsmonitor=false", *configured) for word in ("-c", each)]
    done = subprocess.run(
        ["git", "--no-optional-locks", *options, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_GIT_S,
        check=True,
        text=True,
        errors="replace",
    )
    return done.stdout
