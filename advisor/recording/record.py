"""One recording: `nsys profile` with the options of a plan, again without what this machine refuses, then
the report and its export."""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from msgspec import Struct
from msgspec.structs import replace

from advisor.capture.nsys_options import apart, joined, name_of
from advisor.errors import InputError
from advisor.model.run import ending
from advisor.numerals import read_float
from advisor.recording.nsys import Nsys
from advisor.recording.watch import (
    Ended,
    Limits,
    MayRepeat,
    NothingRecorded,
    Notify,
    Watched,
    code_of,
    size_of,
)

OUTPUT = "capture"
LOG = "output.txt"
#: What nsys says where counters may not be read (developer.nvidia.com/ERR_NVGPUCTRPERM), or cannot be.
_REFUSED = re.compile(
    r"ERR_NVGPUCTRPERM|[Ii]nsufficient privilege|Illegal --gpu-metrics|"
    r"GPU [Mm]etrics.{0,200}(?:not supported|not available|failed)|None of the installed GPUs"
)
#: Lines that follow an error of the command line.
_USAGE = re.compile(r"usage:|\t|Try 'nsys ")
#: What it says of an option, or a value of one, that its release does not have.
_UNKNOWN = re.compile(r"(?:unrecogni[sz]ed option '|Illegal )(--[\w-]+)(?:=\S*)?(?:'| argument:? '?([\w-]+))")
#: What it says where it fails by itself: its exit code is no program's then.
_FAULT = re.compile(
    r"QuadDCommon::|Agent launcher failed|Failed to (?:start|write|create)|"
    r"unrecogni[sz]ed option '|Illegal --"
)
COUNTERS = ("--gpu-metrics-device", "--gpu-metrics-devices", "--gpu-metrics-frequency", "--gpu-metrics-set")
_CONFINED = ("--delay", "--duration", "--capture-range", "--capture-range-end", "--kill")
#: SIGINT and SIGTERM as the shell reports them: a recording that is over ends the program by one of them.
_ENDED_BY_US = (130, 143)
#: Lines of nsys itself among the output of the program.
OF_NSYS = re.compile(
    r"\s*(?:Generat(?:ing|ed)\b.*|Processing \[.*|Exporting .*|Saved report file to .*|"
    r"Collecting data\.*|\[\d/\d\] .*|"
    r"Importer error status: .*|Unable to retrieve the importer version: .*|/\S+\.(?:nsys-rep|qdstrm|sqlite)|"
    r"Failed to create .*: File .*|WARNING: .*|)"
)
#: Conversions of a report have no limits, and end at once with Ctrl-C: the report stays.
_CONVERTING = Limits(full_disk=False, flush_s=0)


class Wanted(Struct, frozen=True):
    """What to record: the options and variables of a plan, the command, and the limits."""

    options: Sequence[str]
    command: Sequence[str]
    variables: Mapping[str, str] = {}
    limits: Limits = Limits()


class Recorded(Struct, frozen=True):
    """What became of it. `captures` are the exports, or reports that could not be exported; `code` is that
    of the program, None if the recording ended it; `notes` say what was done otherwise than planned."""

    options: tuple[str, ...]
    captures: tuple[Path, ...]
    code: int | None
    stopped: str | None
    interrupted: bool
    seconds: float
    size: int
    last: tuple[str, ...]
    notes: tuple[str, ...]
    from_start: bool = False
    refused: tuple[str, ...] = ()
    versions: Mapping[str, str] = {}
    unprofiled_ms: float | None = None


def record(
    wanted: Wanted, nsys: Nsys, folder: Path, notify: Notify, echo: IO[bytes] | None, may_repeat: MayRepeat
) -> Recorded:
    """Record into `folder`. The program is run again only if `may_repeat` allows it; where nsys refuses its
    own options it was not run. Raises InputError where nothing could be recorded."""
    folder = folder.absolute()  # nsys's agent works in a folder of its own
    asked = [o for o in wanted.options if o != "--delay=0" and not o.startswith("--export")]
    options, too_new = nsys.known(asked)
    notes = [f"left out: {text}; this is {nsys.version}" for text in too_new]
    refused: tuple[str, ...] = ()
    limits = _with_deadline(wanted.limits, options)
    while True:
        ended = _profile(wanted, limits, options, nsys, folder, notify, echo)
        reports, unread = _reports(nsys, folder, notify)
        text = "\n".join(ended.last)
        counted = [o for o in options if name_of(o) in COUNTERS]
        if counted and not reports and ended.stopped is None and _REFUSED.search(text):
            if ended.code == 0 and not may_repeat("there is no permission for the GPU's counters"):
                raise NothingRecorded(_nothing(ended, wanted, unread, folder), None)
            options = [o for o in options if o not in counted]
            refused = ("counters",)
            notes.append("no permission for the GPU's counters: recorded again without them")
            continue
        kept = _known(options, text)
        if kept != options and not reports and ended.code:
            left = " ".join(o for o in options if o not in kept)
            notes.append(f"left out what {nsys.version} does not know of {left}")
            options = kept
            continue
        confined = [o for o in options if name_of(o) in _CONFINED]
        if confined and not reports and not unread and ended.stopped is None and ended.code == 0:
            why = f"ended after {ended.seconds:.1f} s, before the recording began ({' '.join(confined)})"
            if not may_repeat(f"it {why}"):
                command = shlex.join(wanted.command)[:60]
                raise NothingRecorded(f"{command}: {why}; record it from its start: --delay 0", None)
            options, limits = [o for o in options if o not in confined], wanted.limits
            notes.append(f"the program {why}: recorded again from its start")
            continue
        break
    if ended.killed:
        notes.append("nsys did not end by itself and was killed")
    if not reports:
        own = None if _FAULT.search(text) and not ended.interrupted else code_of(ended)
        raise NothingRecorded(_nothing(ended, wanted, unread, folder), own)
    captures, faults = _exports(nsys, reports, folder, notify)
    ours = ended.stopped is not None or (ended.code in _ENDED_BY_US and bool(confined))
    over = _clock_s(options)
    # Some releases report 0 for a program that they have ended.
    ours = ours or (ended.code == 0 and over is not None and ended.seconds >= over)
    planned = any(name_of(o) in _CONFINED for o in asked)
    return Recorded(
        refused=refused,
        from_start=planned and not any(name_of(o) in _CONFINED for o in options),
        options=tuple(options),
        captures=captures,
        code=None if ours else ended.code,
        stopped=ended.stopped,
        interrupted=ended.interrupted,
        seconds=ended.seconds,
        size=size_of(folder),
        last=tuple(line for line in ended.last if not OF_NSYS.fullmatch(line)),
        notes=(*notes, *faults),
    )


def _known(options: list[str], text: str) -> list[str]:
    """The options without those that nsys calls unknown; of --trace without the source."""
    for name, value in _UNKNOWN.findall(text):
        if name == "--trace" and value:
            options = joined([one for o in options for one in apart(o) if one != f"--trace={value}"])
        else:
            options = [o for o in options if name_of(o) != name]
    return options


def _clock_s(options: Sequence[str]) -> float | None:
    """When nsys ends the program by the clock, in seconds after its start; None if it does not."""
    by_name = dict(o.split("=", 1) for o in options if o.startswith(("--delay=", "--duration=", "--kill=")))
    if "--duration" not in by_name or "--kill" in by_name:
        return None
    return (read_float(by_name.get("--delay")) or 0.0) + (read_float(by_name["--duration"]) or 0.0)


def _with_deadline(limits: Limits, options: Sequence[str]) -> Limits:
    """The limits of a recording by the clock: nsys ends the program after it, and then itself, unless it
    hangs."""
    if (over := _clock_s(options)) is None:
        return limits
    most = over + limits.flush_s
    return limits if limits.seconds is not None and limits.seconds < most else replace(limits, seconds=most)


def _profile(
    wanted: Wanted,
    limits: Limits,
    options: Sequence[str],
    nsys: Nsys,
    folder: Path,
    notify: Notify,
    echo: IO[bytes] | None,
) -> Ended:
    """Run nsys. What it writes while it records goes into the folder too, so that it counts and nothing stays
    elsewhere; the program keeps the temporary folder that it would have."""
    scratch = folder / "tmp"
    scratch.mkdir(exist_ok=True)
    own = [o for o in options if not o.startswith("--env-var=")]
    given = [o.removeprefix("--env-var=") for o in options if o.startswith("--env-var=")]
    own.append(f"--env-var={','.join([*given, f'TMPDIR={tempfile.gettempdir()}'])}")
    words = nsys.profile(own, folder / OUTPUT, wanted.command)
    environment = {**wanted.variables, "TMPDIR": str(scratch)}
    try:
        running = Watched(words, folder, folder / LOG, environment, echo, None)
        skipped = [read_float(o.removeprefix("--delay=")) or 0.0 for o in options if o.startswith("--delay=")]
        waits = any(o.startswith("--capture-range=") for o in options)
        doing = "recording when the program starts it" if waits else "recording"
        return running.wait(limits, notify, doing, sum(skipped))
    finally:
        _save_streams(folder, scratch)
        shutil.rmtree(scratch, ignore_errors=True)


def _save_streams(folder: Path, scratch: Path) -> None:
    """What nsys had not moved to its place yet when it was killed."""
    if not [*folder.glob(f"{OUTPUT}*")]:
        for number, left in enumerate(sorted(scratch.glob("nsys-report-*.*"))):
            left.rename(folder / f"{OUTPUT}{f'.{number}' if number else ''}{left.suffix}")


def _reports(nsys: Nsys, folder: Path, notify: Notify) -> tuple[list[Path], str | None]:
    """The reports that were written, converted where nsys did not, and else why they cannot be."""
    fault = None
    for stream in sorted(folder.glob(f"{OUTPUT}*.qdstrm")):
        if not (report := stream.with_suffix(".nsys-rep")).exists():
            words = nsys.importer(stream)
            if words is None:
                fault = (
                    f"nsys left {stream.name}; QdstrmImporter of {nsys.version}, which reads it, is missing"
                )
                continue
            done = Watched(words, folder, folder / LOG).wait(_CONVERTING, notify, "converting the report")
            if not report.exists():
                fault = f"QdstrmImporter: {_last(done)}"
                continue
        stream.unlink()
    return sorted(p for p in folder.glob(f"{OUTPUT}*.nsys-rep") if p.stat().st_size), fault


def _exports(
    nsys: Nsys, reports: Sequence[Path], folder: Path, notify: Notify
) -> tuple[tuple[Path, ...], list[str]]:
    """Each report as SQLite, or itself where nsys cannot export it."""
    found, faults = [], []
    for report in reports:
        target = report.with_suffix(".sqlite")
        words = nsys.export(report, target)
        done = Watched(words, folder, folder / LOG).wait(_CONVERTING, notify, "exporting the report")
        if done.interrupted:
            raise KeyboardInterrupt
        if done.code == 0 and target.is_file():
            found.append(target)
            continue
        target.unlink(missing_ok=True)
        faults.append(f"{report}: nsys could not export it ({done.stopped or _last(done)})")
    if not found:
        raise InputError(f"{faults[0]}; the report is kept: {shlex.join(words)}")
    return tuple(found), faults


def _nothing(ended: Ended, wanted: Wanted, unread: str | None, folder: Path) -> str:
    """Why there is no report, and what there is."""
    command = shlex.join(wanted.command)[:60]
    if unread is not None:
        return f"{unread}; it is kept in {folder}"
    if ended.killed:
        return f"{command}: nsys did not end and wrote no report; its output is in {folder / LOG}"
    if ended.stopped is not None:
        return f"{command}: stopped before anything was recorded ({ended.stopped})"
    if ended.code:
        why = f"ended ({ending(ended.code)}) after {ended.seconds:.1f} s"
        return f"{command}: {why}, and nsys wrote no report: {_last(ended)}"
    return f"{command}: nsys wrote no report: {_last(ended)}"


def _last(ended: Ended) -> str:
    """The last line that says something."""
    printed = [line.strip() for line in ended.last if line.strip() and not _USAGE.match(line)]
    return printed[-1][:160] if printed else ending(ended.code)
