"""Draws the pictures of the documentation again: pages of the demo capture and of a comparison, and the
workbook of a review. Beside each picture stand the numbers that it shows (`report.txt`), which
tests/docs/test_pictures.py compares with those of today and of the README.

python docs/pictures.py          needs Chromium, LibreOffice and poppler (pdftoppm)
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
CAPTURE = "examples/captures/decode_eager_bs1.sqlite.xz"
AFTER = "examples/captures/decode_graph_bs1.sqlite.xz"
WIDTH, HEIGHT = 1280, 1500
#: The headings up to which a picture shows its page.
UP_TO = {"report": "Findings", "compare": "Events"}
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


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
        _screenshot(html, "report")
        page = work / "compare.html"
        _run(sys.executable, "-m", "advisor", "compare", CAPTURE, AFTER, "-q", "--html", page)
        _screenshot(page, "compare")
        _first_page(xlsx, work, PICTURES / "workbook.png")
    return 0


class _Lines(HTMLParser):
    """The visible lines of a page, and which of them are headings."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[bool, str]] = []
        self._hidden = 0
        self._heading = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self._hidden += tag in ("script", "style", "title")
        self._heading = self._heading or tag == "h2"

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style", "title")
        self._heading = self._heading and tag != "h2"

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.lines.append((self._heading, " ".join(data.split())))


def numbers(page: str, up_to: str) -> list[str]:
    """The numbers of an HTML page as it is read, up to a heading. Raises ValueError if the page lacks it."""
    found = _Lines()
    found.feed(page)
    end = found.lines.index((True, up_to))
    return [n for _, line in found.lines[:end] for n in _NUMBER.findall(line)]


def _screenshot(page: Path, name: str) -> None:
    picture = PICTURES / f"{name}.png"
    shown = numbers(page.read_text(encoding="utf-8"), UP_TO[name])
    picture.with_suffix(".txt").write_text("\n".join(shown) + "\n")
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
    _run("pdftotext", "-f", "1", "-l", "1", "-layout", pdf, work / "page.txt")
    text = (work / "page.txt").read_text(encoding="utf-8")
    picture.with_suffix(".txt").write_text("\n".join(_NUMBER.findall(text)) + "\n", encoding="utf-8")


def _run(*command: str | Path) -> None:
    subprocess.run([str(c) for c in command], check=True, cwd=ROOT, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
