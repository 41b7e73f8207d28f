"""Options that several verbs take, worded once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Text = str | None
Texts = list[str] | None

Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the result here.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write an HTML report as well.")]
Xlsx = Annotated[Path | None, typer.Option("--xlsx", metavar="FILE", help="Write a workbook as well.")]
Together = Annotated[
    bool, typer.Option("--together", help="TRACE is two recordings of one program: nsys' and PyTorch's.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing FILE.")]
