"""Comparisons and experiments as they are delivered: their blocks and their workbook."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.model.comparison import Comparison, ContextScaling, FrameworkTable, RouterExperiment
from advisor.reports.blocks import Block, Report
from advisor.reports.compare_blocks import comparison
from advisor.reports.experiment_blocks import context, frameworks, router

#: What the page is called.
TITLES = {
    "comparison": "Before against after",
    "context-scaling": "Short against long context",
    "frameworks": "Serving engines side by side",
    "moe-router": "Learned against perfect routing",
}

Document = Comparison | ContextScaling | FrameworkTable | RouterExperiment


def report(document: Document, verbosity: int = 0) -> Report:
    """A document of this family; HTML has every row."""
    return Report(
        (document,),
        lambda _: blocks_of(document, verbosity),
        TITLES[document.kind],
        whole=lambda: blocks_of(document, 1),
    )


def blocks_of(document: Document, verbosity: int = 0) -> Iterator[Block]:
    if isinstance(document, Comparison):
        return comparison(document, verbosity)
    if isinstance(document, ContextScaling):
        return context(document, verbosity)
    if isinstance(document, FrameworkTable):
        return frameworks(document, verbosity)
    return router(document, verbosity)


def workbook(document: Document) -> bytes:
    """The numbers as sheets."""
    from advisor.reports.workbook.experiments import render

    return render(document, TITLES[document.kind])
