"""What `advisor redact` took out: kinds, counts and tables, never a value."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.model.numbers import value_text
from advisor.reports.layout import Page


def report(
    page: Page,
    source: str,
    target: str,
    sizes: tuple[int, int],
    removed: Sequence[tuple[str, str, int]],
    kept: Sequence[str],
) -> None:
    """`removed` holds (what, table, count); `kept` names variables that stay."""
    before, after = (value_text(size, "bytes") for size in sizes)
    page.wrapped(f"{target} ({after}), from {source} ({before}), which is unchanged", style="bold")
    if removed:
        page.heading("Taken out or changed")
        page.table(
            ["what", "count", "table"],
            [
                ([what for what, _, _ in removed], False),
                ([f"{count:,}" for _, _, count in removed], True),
                ([table for _, table, _ in removed], False),
            ],
        )
    else:
        page.line("Nothing private was found.")
    if kept:
        page.labelled("kept", f"the numbers of {', '.join(kept)}, which tell the rank")
    page.blank()
    page.wrapped(
        "Kernel names and NVTX range texts stay, less paths and secrets in them: read those "
        "before you pass the copy on."
    )
    page.line(("Next: ", "dim"), (f"advisor {target}", "bold"))
