"""Standard output: pages of text and finished documents, there or in a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.errors import InputError
from advisor.reports.files import STDOUT, write_atomic

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from advisor.reports.layout import Page

#: Columns of text: what a pipe gets, and the bounds of what a terminal (or COLUMNS) may ask for.
WIDTH, MIN_WIDTH, MAX_WIDTH = 80, 20, 120


def make_console() -> Console:
    """A console that takes text as it is; 80 columns in a pipe, at most 120 on a terminal."""
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    asked = os.environ.get("COLUMNS", "")
    if not (asked.isdigit() and int(asked)) and (asked or not console.is_terminal):
        console.width = WIDTH  # also where COLUMNS is 0 or no number
    console.width = min(max(console.width, MIN_WIDTH), MAX_WIDTH)
    return console


def print_lines(console: Console, lines: Sequence[Text]) -> None:
    """Styled lines on stdout, with the colours that this stream can show."""
    from advisor.reports import layout

    # Written by us: rich answers a closed pipe with exit code 1, which has a meaning here.
    with _standard_output(), console.capture() as capture:
        layout.print_lines(console, lines)
    write_text(capture.get())


def make_page() -> Page:
    """An empty page of the console's width, for the verbs that print text of their own."""
    from advisor.reports.layout import Page

    console = make_console()
    return Page(console.width, console.encoding.lower().startswith("utf"))


def print_page(page: Page) -> None:
    """Print a page on stdout."""
    print_lines(make_console(), page.lines)


def write_page(write: Callable[[Page], None], output: Path | None, force: bool = False) -> None:
    """What `write` puts on a page, on stdout or as plain text of 80 columns in a file."""
    if output is None or output == STDOUT:
        page = make_page()
        write(page)
        print_page(page)
        return
    from advisor.reports.layout import Page

    page = Page()
    write(page)
    text = "".join(f"{line.plain}\n" for line in page.lines)
    write_bytes(text.encode("utf-8", "replace"), output, force)


def write_text(text: str) -> None:
    """Text on stdout; once the reader has gone the rest goes nowhere."""
    with _standard_output():
        sys.stdout.write(text)
        sys.stdout.flush()


def write_bytes(data: bytes | Iterable[bytes], output: Path | None, force: bool = False) -> None:
    """A finished document, in a file or on stdout; in one or in pieces."""
    if output is not None and output != STDOUT:
        write_atomic(output, data, force)
        return
    with _standard_output():
        sys.stdout.flush()
        sys.stdout.buffer.writelines((data,) if isinstance(data, bytes) else data)
        sys.stdout.buffer.flush()


@contextmanager
def _standard_output() -> Iterator[None]:
    """A reader that has gone away is not an error; a full disk or a closed stream is one. Either way
    what is still buffered goes nowhere: it would be written again at exit."""
    try:
        yield
    except BrokenPipeError:
        silence()
    except OSError as error:
        silence()
        raise InputError(
            f"standard output: cannot be written ({error.strerror}); redirect it or use -o FILE"
        ) from error


def silence() -> None:
    """The reader has gone: write what is left nowhere, and keep the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
