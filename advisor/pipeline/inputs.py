"""What paths and names stand for, found out here and nowhere else: captures, two recordings of one program,
the ranks of a job, saved diagnoses. Each has its reader.

`several` takes the words of `advisor diagnose` and `checklist`, `as_job` says whether those are one job,
`of_one` takes those of verbs that answer about one thing, be it a job, `one_capture` those of verbs that
read one capture, `named` a source of a comparison, `job` the paths of `advisor.ranks`. Pipes are read
before, and kept under their names (`advisor.reading.hold`). Which format a capture has, that of a log among
them, `RECOGNISERS` in `advisor/sources/open.py` say when it is opened.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from shutil import which
from typing import NamedTuple, TypeVar

from advisor.comparison.store import find, names, read
from advisor.errors import InputError, OtherTimeError
from advisor.jobs.recognise import recognise
from advisor.model.findings import Diagnosis
from advisor.model.options import Options
from advisor.pipeline.diagnose import Progress, diagnose
from advisor.pipeline.ranks import diagnose_ranks
from advisor.reading import SAVED, STDIN, held, similar
from advisor.sources.open import (
    as_captures,
    in_folder,
    is_export_folder,
    is_profiler_json,
    kind_of,
    peek,
    searched,
)

_log = logging.getLogger(__name__)
Chosen = TypeVar("Chosen", bound=Options)
#: Shows the stages of what is read, by its name.
Watch = Callable[[str], AbstractContextManager[Progress]]


def unwatched(_name: str) -> AbstractContextManager[Progress]:
    """Shows nothing."""
    return nullcontext(lambda _stage: None)


class How(NamedTuple):
    """How inputs are read. `drawn` keeps the events that a page shows; `jobs` and `dask` say where the ranks
    of a job are read."""

    options: Options = Options()
    drawn: bool = False
    jobs: int = 0
    dask: str | None = None
    watch: Watch = unwatched


class Read(NamedTuple):
    """The diagnoses, and one line on each capture that could not be read."""

    diagnoses: Sequence[Diagnosis]
    lost: Sequence[str] = ()


class Capture(NamedTuple):
    """One capture in any format: a file, a folder that nsys exported, printed tables, a log."""

    path: Path

    def options(self, chosen: Chosen) -> Chosen:
        return chosen

    def read(self, how: How) -> Read:
        with how.watch(self.path.name) as progress:
            return Read([diagnose(self.path, self.options(how.options), progress, how.drawn)])


class Pair(NamedTuple):
    """A capture, and the PyTorch trace of the same program beside it."""

    path: Path
    beside: Path

    def options(self, chosen: Chosen) -> Chosen:
        return dataclasses.replace(chosen, together=self.beside)

    def read(self, how: How) -> Read:
        return Capture(self.path).read(how._replace(options=self.options(how.options)))


class Served(NamedTuple):
    """Samples of a GPU, and the log of the server that it served meanwhile."""

    path: Path
    log: Path

    def options(self, chosen: Chosen) -> Chosen:
        return dataclasses.replace(chosen, log=self.log)

    def read(self, how: How) -> Read:
        """As one thing; as two, with a remark, if they are of different times."""
        try:
            return Capture(self.path).read(how._replace(options=self.options(how.options)))
        except OtherTimeError as fault:
            _log.warning("%s", fault)
            each = [Capture(path).read(how) for path in (self.log, self.path)]
            return Read(
                [d for read in each for d in read.diagnoses], [line for read in each for line in read.lost]
            )


class Saved(NamedTuple):
    """A document with diagnoses that `--format json` wrote."""

    path: Path

    def read(self, how: How) -> Read:
        """Options of the analysis do not change it, but for `redact`, which is refused."""
        return Read(read(self.path, how.options.redact))


class Job(NamedTuple):
    """The captures of the ranks of one job, in their order; the number of a rank is None if only the order
    gives it."""

    ranks: tuple[tuple[int | None, Path], ...]

    def read(self, how: How) -> Read:
        from advisor.pipeline.workers import runner

        lost: list[str] = []
        with how.watch(f"{len(self.ranks)} ranks") as progress:
            run = runner(how.jobs, how.dask, lambda n, of: progress(f"{n} of {of} read"))
            found = diagnose_ranks(self.ranks, how.options, run, lost.append)
        return Read([found], lost)


Paths = str | Path | Sequence[str | Path]
#: What one path, or two for a pair, stands for.
Input = Capture | Pair | Served | Saved


class Given(NamedTuple):
    """What was given to a verb of several captures. `many`: they are named in reports, also if it is one."""

    inputs: tuple[Input, ...]
    many: bool = False

    @property
    def paths(self) -> list[Path]:
        return [each.path for each in self.inputs]


def several(paths: Sequence[Path], pair: bool = False) -> Given:
    """Files, folders of captures and saved diagnoses; with `pair` two recordings of one program, or sums of
    one that were printed into several files. Raises InputError."""
    files = expand(paths, pair)
    inputs: tuple[Input, ...]
    if pair and not (len(files) == 1 < len(paths)):
        inputs = (pair_of(files),)
    else:
        served = _served(files) if len(files) == len(paths) == 2 else None
        single = tuple(Saved(path) if is_saved(path) else Capture(path) for path in files)
        inputs = single if served is None else (served,)
    # A folder exported by nsys is one capture; any other one stands for those in it.
    read = [each.path for each in inputs]
    return Given(inputs, len(read) > 1 or any(path not in read and path.is_dir() for path in paths))


def _served(files: Sequence[Path]) -> Served | None:
    """Two files that show one thing twice, the log of a server and samples of its GPU; None for others."""
    by_kind = {kind_of(path): path for path in files}
    return Served(by_kind["samples"], by_kind["server"]) if by_kind.keys() == {"samples", "server"} else None


def pair_of(paths: Sequence[Path]) -> Pair:
    """Two recordings of one program, in either order. What is wrong with a file is for its reader to say.
    Raises InputError for another number of paths."""
    if len(paths) != 2:
        raise InputError(f"--together takes two recordings of one program, not {len(paths)}")
    one, other = paths
    return Pair(other, one) if is_profiler_json(one) and not is_profiler_json(other) else Pair(one, other)


def listed(paths: Paths) -> list[Path]:
    """One path or several, as several."""
    return [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]


def quietly(options: Options, progress: Progress | None = None, jobs: int = 1) -> How:
    """How the functions of Python read: `progress` gets the stages."""
    watch = unwatched if progress is None else lambda _name: nullcontext(progress)
    return How(options, jobs=jobs, watch=watch)


def of_one(paths: Sequence[Path], pair: bool = False) -> Input | Job:
    """What is one thing to answer about: a capture, two recordings of one program, a saved diagnosis, or the
    ranks of one job, as `several` takes them. Raises InputError for captures that are several things."""
    given = several(paths, pair).inputs
    if not pair and (ranks := as_job(given)) is not None:
        return ranks
    if len(given) != 1:
        raise InputError(_several_of(paths, given[0].path, len(given)))
    return given[0]


def _several_of(paths: Sequence[Path], example: Path, count: int) -> str:
    """Why these are not one thing."""
    if len(paths) > 1:
        return f"takes one capture, not {count}; for two recordings of one program add --together"
    return f"{paths[0]}: {count} captures, which are no ranks of one job; name one, such as {example}"


def one_capture(paths: Sequence[Path], pair: bool = False, verb: str = "") -> Capture | Pair | Served:
    """One capture, or two recordings of one program, for what reads a trace. Raises InputError for the ranks
    of a job, of which it names one, as it is typed after `verb`."""
    given = of_one(paths, pair)
    if isinstance(given, Job):
        first = shlex.quote(str(given.ranks[0][1]))
        way = f"{verb} {first}" if verb else f"name one, such as {first}"
        count = len(given.ranks)
        raise InputError(f"{paths[0]}: {count} ranks of one job, and this reads one capture: {way}")
    # A reader of captures says what a saved diagnosis is.
    return Capture(given.path) if isinstance(given, Saved) else given


def named(text: str, folder: Path) -> Capture | Job | Saved:
    """A source of a comparison: a capture, a folder of the ranks of a job, a saved diagnosis, or the name of
    one in `folder`. Raises InputError."""
    path = located(text, folder)
    if path != Path(text) or is_saved(path):
        return Saved(path)
    if not _is_searched(path):
        return Capture(path)
    if (found := as_job(several([path]).inputs)) is None:
        raise InputError(f"{text}: a folder whose captures are no ranks of one job; name a capture in it")
    return found


def located(text: str, folder: Path, lead: str = "") -> Path:
    """The file that `text` names: an existing path, else a baseline of `folder`, or of the folder in
    front of the name. Raises InputError, which lists the existing names."""
    path = Path(text)
    if held(path) is not None:
        return path
    if path == STDIN:
        raise InputError(f"{lead}-: standard input is not read here; save it to disk first")
    if path.exists():
        return path
    found = find(text, folder) or find(path.name, path.parent)
    if found is None:
        known = ", ".join(names(folder))
        hint = f" (saved in {folder}: {known})" if known else f" in {folder}"
        raise InputError(f"{lead}{text}: no such file, and no baseline of that name{hint}{similar(path)}")
    return found


def as_job(inputs: Sequence[Input], ranks: bool = False, independent: bool = False) -> Job | None:
    """The job whose ranks these captures are; None for independent ones, and beside a saved diagnosis. The
    user may have said so: `ranks`, `independent`. Raises InputError if both are true."""
    if any(isinstance(each, Saved) for each in inputs):
        return None
    if ranks and independent:
        raise InputError("--ranks and --independent contradict each other; give one of them")
    forced = True if ranks else False if independent else None
    plan, hint = recognise([each.path for each in inputs], peek, forced)
    if hint is not None:
        _log.warning("%s", hint)
    return None if plan is None else Job(plan.files)


def job(paths: Iterable[str | Path]) -> Job:
    """The ranks of one job. Raises InputError for fewer than two captures."""
    plan, _ = recognise([Path(path) for path in paths], peek, forced=True)
    if plan is None:
        raise InputError("ranks takes the captures of at least two ranks")
    return Job(plan.files)


def is_saved(path: Path) -> bool:
    """Whether a file looks like a saved diagnosis rather than a capture."""
    if (content := held(path)) is not None:
        return SAVED.match(content[:200]) is not None
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return SAVED.match(file.read(200)) is not None
    except OSError:
        return False  # the reader of captures says what is wrong with it


# --- folders ---------------------------------------------------------------------------------------


def expand(paths: Sequence[Path], together: bool = False) -> list[Path]:
    """The captures: files as given, folders as all captures below them, each once. A missing file among
    several stays: its reader reports it, and the others are diagnosed."""
    found: list[Path] = []
    for path in paths:
        if len(paths) == 1 and held(path) is None:
            check_exists(path)
        if _is_searched(path):
            found += _searched(path)
        else:
            found.append(path)
    return as_captures(list(dict.fromkeys(found)), together)


def check_exists(path: Path, of_folder: str = "") -> None:
    """Raise InputError for a path that does not exist, with the nearest name beside it; with `of_folder`
    for a folder, too, which then says what to name instead."""
    if path == STDIN:
        raise InputError("-: standard input is not read here; save it to disk first")
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path}: no such file or folder{similar(path)}") from None
    except OSError as error:  # links in a circle, a name that is too long
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if of_folder and path.is_dir():
        raise InputError(f"{path} is a folder; name one {of_folder}")


def _is_searched(path: Path) -> bool:
    """Whether it is a folder that stands for the captures below it."""
    return held(path) is None and path.is_dir() and not is_export_folder(path)


def _searched(root: Path) -> list[Path]:
    """The captures in a folder and below it. Raises InputError if there are none."""
    try:
        inside = _inside(root, list(_folders(root)))
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be read ({error.strerror})") from error
    if not inside:
        report = next(root.rglob("*.nsys-rep"), "REPORT.nsys-rep")
        raise InputError(
            f"{root}: no captures (exports and traces *{', *'.join(searched())}) in this folder "
            f"or below it; make one with 'nsys export --type sqlite {report}'"
        )
    return inside


def _folders(root: Path) -> Iterator[Path]:
    """The folder and all below it, without hidden ones and folders that are one capture."""

    def refuse(error: OSError) -> None:
        raise error

    for place, below, _ in os.walk(root, onerror=refuse):
        folder = Path(place)
        yield folder
        below[:] = sorted(n for n in below if n[0] != "." and not is_export_folder(folder / n))


def _inside(root: Path, folders: Sequence[Path]) -> list[Path]:
    """The captures in the folders, with the files and empty folders that belong to a series by name: a rank
    that cannot be read must not go unnoticed."""
    found: list[Path] = []
    others: list[Path] = []
    for folder in folders:
        entries = sorted(folder.iterdir())
        captures = [each for each in entries if in_folder(each)]
        others += [e for e in entries if e not in captures and e.name.endswith(searched()) and not e.is_dir()]
        found += captures + _reports(folder, captures)
    series = {_series(root, path) for path in found}
    known = {p for path in found for p in (*path.parents, path.parent / path.name.partition(".")[0])}
    others += [folder for folder in folders if folder not in known and re.search(r"\d", folder.name)]
    series |= {name.partition(".")[0] for name in series} | {_series(root, path.parent) for path in found}
    found += [path for path in others if _series(root, path) in series]
    order = {folder: i for i, folder in enumerate(folders)}
    return sorted(found, key=lambda path: order[path.parent])


def _series(root: Path, path: Path) -> str:
    """The name without its numbers: equal for the files of one recording."""
    name = str(path.relative_to(root)).removesuffix(".gz").removesuffix(".xz")
    return re.sub(r"\d+", "#", name)


def _reports(folder: Path, captures: Sequence[Path]) -> list[Path]:
    """Reports of nsys that are not exported yet, if nsys is installed; otherwise a note names them."""
    exported = {path.name.partition(".")[0] for path in captures}
    found = [p for p in sorted(folder.glob("*.nsys-rep")) if p.name.partition(".")[0] not in exported]
    if not found or which("nsys"):
        return found
    for path in found:
        _log.warning("%s: left out, there is no nsys to export it: nsys export --type sqlite %s", path, path)
    return []
