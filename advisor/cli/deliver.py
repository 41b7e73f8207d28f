"""Output of a verb, in the requested format, on stdout or in a file; progress and notes on stderr."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from advisor.cli.messages import message, standard_output
from advisor.cli.paths import hold_pipes
from advisor.model.options import Flag, Kind, format_names, format_writer, one_of
from advisor.numerals import read_int
from advisor.reading import READING
from advisor.reports.output_file import STDOUT, check_suffix, check_targets, write_atomic

if TYPE_CHECKING:
    from advisor.config import Settings
    from advisor.model.records import Frozen
    from advisor.pipeline.inputs import Capture, Pair, Served
    from advisor.reports.blocks import Block, Report
    from advisor.reports.layout import Page

#: Columns of text: for a pipe, and the limits for a terminal (or COLUMNS).
WIDTH, MIN_WIDTH, MAX_WIDTH = 80, 20, 120


def formats(help: str, kind: Kind = "document") -> Flag:
    """The flag for the formats of a kind of document."""
    return one_of(help, *format_names(kind))


def check_files(
    settings: Settings, inputs: Sequence[Path] = (), others: Mapping[str, Path | None] | None = None
) -> None:
    """Check that all files of a verb, and `others` by their option, can be written."""
    output = None if settings.output == STDOUT else settings.output
    files = {"-o": output, "--html": settings.html, "--xlsx": settings.xlsx, **(others or {})}
    check_targets(files, settings.force, inputs)


def settings_of(
    typed: Mapping[str, Any],
    names: Collection[str],
    keys: Collection[str],
    choices: Mapping[str, Sequence[str]],
) -> Settings:
    """The settings of a verb with the flags `names`, of which `typed` were given."""
    from advisor.config import settle

    settings = settle(typed, None, keys, choices)
    if settings.output is not None and "format" in choices:
        written = {*choices["format"], *(f"--{name}" for name in names)}
        check_suffix(settings.output, settings.format, written, typed.get("format") is not None)
    return settings


def check_traces(settings: Settings, traces: Sequence[Path]) -> None:
    """Check the outputs of a verb that reads captures, and read pipes among these."""
    hold_pipes(traces)
    check_files(settings, traces)


def with_pair(settings: Settings, traces: Sequence[Path]) -> tuple[Sequence[Path], Settings]:
    """The captures of a verb that also answers about a job; with --together the first of two recordings of
    one program, and settings that name the other."""
    if not settings.pair:
        return traces, settings
    from advisor.pipeline.inputs import pair_of

    pair = pair_of(traces)
    return [pair.path], pair.options(settings)


def one_trace(settings: Settings, traces: Sequence[Path]) -> Capture | Pair | Served:
    """The capture of a verb that reads one, its outputs checked. Raises InputError for the ranks of a job,
    which names the command for one of them."""
    import click

    from advisor.pipeline.inputs import one_capture

    check_traces(settings, traces)
    return one_capture(traces, settings.pair, click.get_current_context().command_path)


def deliver(report: Report, settings: Settings) -> None:
    """Print the report in the format of the settings, or write it to their output."""
    if settings.format == "text" and settings.output in (None, STDOUT):
        show(report.blocks)
    else:
        save(report, settings.format, settings.output or STDOUT, settings.force)


def deliver_one(
    document: Frozen, blocks: Callable[..., Iterable[Block]], title: str, settings: Settings, *more: Any
) -> None:
    """Deliver one document; its `blocks`, which may take `more`, do not depend on the width of the page."""
    from advisor.reports.blocks import Report

    deliver(Report((document,), lambda _: blocks(document, *more), title), settings)


def save(report: Report, format: str, path: Path | None, force: bool) -> None:
    """Write the report to a file as well, if one was requested."""
    if path is not None:
        write_bytes(format_writer(format)(report), path, force)


def name_files(settings: Settings, review: bool = True) -> None:
    """Say on stderr what was written beside the report, and how it is read; `review`: the workbook holds
    decisions, which a later one takes over."""
    back = f": fill in the decisions, and keep them with --review {settings.xlsx}" if review else ""
    for path, how in ((settings.html, ": open it in a browser"), (settings.xlsx, back)):
        if path not in (None, STDOUT) and not settings.quiet:
            message(f"wrote {path}{how}")


def show(blocks: Iterable[Block] | Callable[[int], Iterable[Block]]) -> None:
    """Blocks as text on stdout, in the columns and colours of the terminal."""
    from advisor.reports.text import write

    write_page(lambda page: write(page, blocks(page.width) if callable(blocks) else blocks))


def write_page(write: Callable[[Page], None], output: Path | None = None, force: bool = False) -> None:
    """Print the page that `write` fills, or write it to a file as plain text of 80 columns."""
    from advisor.reports.layout import Page, print_lines

    # Whether output may have colours, by rich's rules; importing rich takes longer than writing a plain
    # page.
    forced = os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE") == "1"
    if output not in (None, STDOUT):
        write(page := Page())
        text = "".join(f"{line.plain}\n" for line in page.lines)
        write_bytes(text.encode("utf-8", "replace"), output, force)
        return
    asked = os.environ.get("COLUMNS", "")
    width = max(read_int(asked) or 0, 0)
    if forced or sys.stdout.isatty():
        from rich.console import Console

        console = Console(markup=False, highlight=False, emoji=False)
        known = width or (WIDTH if asked else console.width)
        console.width = min(max(known, MIN_WIDTH), MAX_WIDTH)
        page = Page(console.width, console.encoding.lower().startswith("utf"))
        write(page)
        with standard_output(), console.capture() as capture:
            print_lines(console, page.lines)
        text = capture.get()
    else:
        width, encoding = min(max(width or WIDTH, MIN_WIDTH), MAX_WIDTH), sys.stdout.encoding or "utf-8"
        write(page := Page(width, encoding.lower().startswith("utf")))
        text = "".join(f"{line.plain}\n" for line in page.lines)
    # Written here: rich answers a closed pipe with exit code 1, which has a meaning here.
    with standard_output():
        sys.stdout.write(text)
        sys.stdout.flush()


def write_bytes(data: bytes | Iterable[bytes], output: Path | None, force: bool = False) -> None:
    """Write a finished document to a file or stdout, whole or in pieces."""
    if output is not None and output != STDOUT:
        write_atomic(output, data, force)
        return
    with standard_output():
        sys.stdout.flush()
        sys.stdout.buffer.writelines((data,) if isinstance(data, bytes) else data)
        sys.stdout.buffer.flush()


class Notes(logging.Handler):
    """Prints what the package logs, each line once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._shown: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._shown:
            self._shown.add(text)
            message(f"note: {text}")


@contextmanager
def notes_printed() -> Iterator[None]:
    """Prints the notes logged inside."""
    notes = Notes()
    logging.getLogger("advisor").addHandler(notes)
    try:
        yield
    finally:
        logging.getLogger("advisor").removeHandler(notes)


#: Nothing is shown during the first; then the line is refreshed at the second interval.
PATIENCE_S, EVERY_S = 1.0, 0.5


class Progress:
    """Shows ``name: reading kernels, 120 MiB, 12 s`` on one line that is wiped at the end."""

    def __init__(self, name: str) -> None:
        from advisor.reports.output_file import clean

        self._name = clean(name)[-30:]
        self._stage = "reading"
        self._begun = monotonic()
        self._before = READING.count
        self._ended = Event()
        self._thread = Thread(target=self._show, daemon=True) if sys.stderr.isatty() else None

    def __call__(self, stage: str) -> None:
        """Name the current stage."""
        self._stage = stage

    def __enter__(self) -> Progress:
        READING.doing = self._stage
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self) -> None:
        if self._ended.wait(PATIENCE_S):
            return
        while True:
            sys.stderr.write(f"\r\x1b[K{self.line()[:79]}")
            sys.stderr.flush()
            if self._ended.wait(EVERY_S):
                break
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()

    def line(self) -> str:
        """The stage, or what is being read or measured; bytes read, and time since the beginning."""
        from advisor.model.numbers import value_text

        doing = READING.doing if self._stage == "reading" else self._stage[:36]
        count = READING.count - self._before
        parts = (doing, value_text(count, "bytes") if count else "")
        elapsed = f"{monotonic() - self._begun:.0f} s"
        return f"{self._name}: {', '.join(p for p in (*parts, elapsed) if p)}"
