"""Texts as `nsys stats` prints them, made from rows: every format of every release."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.profiler_tables import html_table

SPREAD = ("Avg (ns)", "Med (ns)", "Min (ns)", "Max (ns)", "StdDev (ns)")
COUNTS = {"cuda_gpu_kern_sum": "Instances", "cuda_gpu_mem_time_sum": "Count", "nvtx_sum": "Instances"}
NAMES = {"cuda_gpu_mem_time_sum": "Operation", "nvtx_sum": "Range"}

#: name, count, average, median, least, most, standard deviation: times in ns
Line = tuple[str, int, float, float, int, int, float]


@dataclass(frozen=True)
class Printed:
    """One report: its name, headings and cells."""

    report: str
    head: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


def printed(report: str, *lines: Line, of: int | None = None) -> Printed:
    """A summary report of these lines; `of` is the total time where rows are left out."""
    total = of or sum(round(n * avg) for _, n, avg, *_ in lines)
    head = (
        "Time (%)",
        "Total Time (ns)",
        COUNTS.get(report, "Num Calls"),
        *SPREAD,
        NAMES.get(report, "Name"),
    )
    rows = tuple(
        (round(100 * n * avg / total, 1), round(n * avg), n, avg, med, lo, hi, dev, name)
        for name, n, avg, med, lo, hi, dev in lines
    )
    return Printed(report, head, rows)


def as_csv(p: Printed, delimiter: str = ",") -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows([p.head, *p.rows])
    script = f"/opt/nsight-systems/2023.2.3/reports/{p.report}.py"
    return f"Processing [/tmp/t.sqlite] with [{script}]... \n{out.getvalue()}"


def as_json(p: Printed) -> str:
    return json.dumps([dict(zip(p.head, row, strict=True)) for row in p.rows], indent=2)


def _texts(p: Printed, thousands: bool = False) -> list[list[str]]:
    def text(cell: object) -> str:
        return f"{cell:,}" if thousands and isinstance(cell, int | float) else str(cell)

    return [list(p.head), *([text(c) for c in row] for row in p.rows)]


def as_columns(p: Printed, thousands: bool = True) -> str:
    """nsys 2022 to 2024."""
    cells = _texts(p, thousands)
    widths = [max(len(r[i]) for r in cells) for i in range(len(p.head))]
    lines = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
    lines.insert(1, "  ".join("-" * w for w in widths))
    return f"\n ** A Summary ({p.report}):\n\n" + "\n".join(f" {line}" for line in lines) + "\n"


def as_boxes(p: Printed) -> str:
    """nsys 2025 and later; long names are cut."""
    cells = [[c if len(c) <= 60 else c[:59] + "…" for c in row] for row in _texts(p)]
    widths = [max(len(r[i]) for r in cells) for i in range(len(p.head))]
    rule = "+" + "+".join("-" * (w + 2) for w in widths) + "+"
    lines = ["| " + " | ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    return "\n".join([f" ** A Summary ({p.report}):", "", rule, lines[0], rule, *lines[1:], rule, ""])


def as_markdown(p: Printed) -> str:
    cells = _texts(p)
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([f"Here is {p.report}:", "", lines[0], "|---" * len(p.head) + "|", *lines[1:], ""])


def as_old(p: Printed) -> str:
    """nsys 2020 and 2021: no units, no median; its titles."""
    words = {
        "Total Time (ns)": "Total Time (ns)",
        "Time (%)": "Time(%)",
        "Avg (ns)": "Average",
        "Min (ns)": "Minimum",
        "Max (ns)": "Maximum",
        "StdDev (ns)": "StdDev",
    }
    kept = [i for i, h in enumerate(p.head) if h != "Med (ns)"]
    head = tuple(words.get(p.head[i], p.head[i]) for i in kept)
    title = "CUDA API Statistics:" if "api" in p.report else "CUDA Kernel Statistics:"
    return title + as_columns(Printed("", head, tuple(tuple(r[i] for i in kept) for r in p.rows)), False)


def as_chat(p: Printed) -> str:
    """Copied from a window that joins spaces."""
    return "\n".join(" ".join(" ".join(row).split()) for row in _texts(p)) + "\n"


#: Separators of thousands and of decimals.
LOCALES = {
    "en_US": (",", "."),
    "de_DE": (".", ","),
    "fr_FR": ("\u202f", ","),
    "fr_FR of 2017": ("\u00a0", ","),
    "de_CH": ("\u2019", "."),
    "pl_PL": (" ", ","),
    "es_ES": ("", ","),
    "C": ("", "."),
    "C'": ("'", "."),
}


def in_locale(p: Printed, thousands: str, decimal: str) -> Printed:
    """The same report with its numbers as a locale writes them."""

    def text(cell: object) -> object:
        if not isinstance(cell, int | float):
            return cell
        marks = str.maketrans({",": thousands, ".": decimal})
        return f"{cell:,}".translate(marks)

    return Printed(p.report, p.head, tuple(tuple(map(text, row)) for row in p.rows))


def as_html(p: Printed) -> str:
    """Copied from a page with its markup."""
    return f"<h2>{p.report}</h2>\n{html_table(_texts(p))}\n"


def wrapped(text: str, width: int, strip: bool = False) -> str:
    """As a terminal of this width shows it; a copy may lose the spaces at the ends of lines."""
    parts = (line[i : i + width] for line in text.splitlines() for i in range(0, max(len(line), 1), width))
    return "\n".join(part.rstrip() if strip else part for part in parts) + "\n"


FORMATS: dict[str, Callable[[Printed], str]] = {
    "csv": as_csv,
    "semicolons": lambda p: as_csv(p, ";"),
    "tabs": lambda p: as_csv(p, "\t"),
    "json": as_json,
    "columns": as_columns,
    "boxes": as_boxes,
    "markdown": as_markdown,
    "HTML": as_html,
    "chat": as_chat,
}


def pasted(reports: Sequence[Printed], form: str = "csv") -> str:
    """Several reports in one text."""
    return "\n\n".join(FORMATS[form](p) for p in reports)
