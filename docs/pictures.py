"""Draws the pictures of the documentation again: pages of the demo capture and of a comparison, and the
workbook of a review.

python docs/pictures.py          needs Chromium, LibreOffice and poppler (pdftoppm)
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
CAPTURE = "examples/captures/decode_eager_bs1.sqlite.xz"
AFTER = "examples/captures/decode_graph_bs1.sqlite.xz"
WIDTH, HEIGHT = 1280, 1500


def main() -> int:
    missing = [name for name in ("chromium", "soffice", "pdftoppm") if shutil.which(name) is None]
    if missing:
        print(f"not found: {', '.join(missing)}", file=sys.stderr)
        return 2
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="advisor-pictures-") as folder:
        work = Path(folder)
        html, xlsx = work / "report.html", work / "review.xlsx"
        _run(sys.executable, "-m", "advisor", CAPTURE, "-q", "--html", html, "--xlsx", xlsx)
        _screenshot(html, PICTURES / "report.png")
        page = work / "compare.html"
        _run(sys.executable, "-m", "advisor", "compare", CAPTURE, AFTER, "-q", "--html", page)
        _screenshot(page, PICTURES / "compare.png")
        _first_page(xlsx, work, PICTURES / "workbook.png")
    return 0


def _screenshot(page: Path, picture: Path) -> None:
    _run(
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--window-size={WIDTH},{HEIGHT}",
        f"--screenshot={picture}",
        page.as_uri(),
    )


def _first_page(workbook: Path, work: Path, picture: Path) -> None:
    """The first sheet as it would be printed."""
    _run("soffice", "--headless", "--convert-to", "pdf", "--outdir", work, workbook)
    pdf, name = workbook.with_suffix(".pdf"), picture.with_suffix("")
    _run("pdftoppm", "-r", "110", "-f", "1", "-l", "1", "-singlefile", "-png", pdf, name)


def _run(*command: str | Path) -> None:
    subprocess.run([str(c) for c in command], check=True, cwd=ROOT, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
