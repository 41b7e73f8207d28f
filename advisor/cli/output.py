"""Standard output: pages of text and finished documents, there or in a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.reports.files import write_atomic

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from advisor.reports.layout import Page

MAX_WIDTH = 120
STDOUT = Path("-")


def make_console() -> Console:
    """A console that takes text as it is; 80 columns in a pipe, at most 120 on a terminal."""
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 80
    console.width = min(console.width, MAX_WIDTH)
    return console


def print_lines(console: Console, lines: Sequence[Text]) -> None:
    """Styled lines on stdout, with the colours that this stream can show."""
    from advisor.reports import layout

    # Written by us: rich answers a closed pipe with exit code 1, which has a meaning here.
    with console.capture() as capture:
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
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence()


def write_bytes(data: bytes, output: Path | None, force: bool = False) -> None:
    """A finished document, in a file or on stdout."""
    if output is not None and output != STDOUT:
        write_atomic(output, data, force)
        return
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        silence()


def silence() -> None:
    """The reader has gone: write what is left nowhere, and keep the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
