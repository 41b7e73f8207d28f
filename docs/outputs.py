"""Real output in pages that are written by hand: README, tour, examples."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from headings import anchor, row

ROOT = Path(__file__).resolve().parents[1]
DEMO = "examples/captures/decode_eager_bs1.sqlite.xz"
WIDTH = 80
CUT = "[…]"


@cache
def diagnosed(capture: str) -> Any:
    """The diagnosis of a capture of this repository, by its path from the root."""
    from advisor.pipeline.diagnose import diagnose

    with contextlib.chdir(ROOT):
        return diagnose(Path(capture))


def readme_output() -> str:
    """What `advisor CAPTURE` prints."""
    from advisor.reports.diagnosis_blocks import report
    from advisor.reports.text import document

    return f"```text\n{document(report([diagnosed(DEMO)])).decode().rstrip()}\n```"


def examples_table(readme: Path) -> str:
    """Capture, first finding, what proves it, share: one row a capture of the walk-through."""
    from advisor.model.numbers import condition_text, percent

    lines = ["| capture | first finding | what proves it | share |", "|---|---|---|---|"]
    for heading in re.findall(r"^## (.+)$", readme.read_text(encoding="utf-8"), re.MULTILINE):
        name = heading.split(":")[0]
        if not (ROOT / f"examples/captures/{name}.sqlite.xz").is_file():
            continue
        found = diagnosed(f"examples/captures/{name}.sqlite.xz").findings[0]
        numbers = sorted((c for c in found.conditions if ":" not in c.fact), key=_margin)
        proof = [f"`{condition_text(c)}`" for c in numbers[:2]]
        share = found.impact.share if found.impact is not None else None
        lines.append(
            row(
                (
                    f"[{name}](#{anchor(heading)})",
                    f"[{found.code}](../docs/rules/{found.code}.md) {found.cause}",
                    ", ".join(proof),
                    "" if share is None else percent(share),
                )
            )
        )
    return "\n".join(lines)


def _margin(condition: Any) -> float:
    """How far a number lies from its threshold: the closest one decides."""
    value, threshold = condition.value, condition.threshold
    if not all(isinstance(n, int | float) for n in (value, threshold)):
        return 1.0
    return float(abs(value - threshold) / max(abs(value), abs(threshold), 1e-9))


def with_block(path: Path, name: str, text: str) -> str:
    """The file with what lies between `<!-- name -->` and `<!-- /name -->` replaced."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    head, mark, rest = path.read_text(encoding="utf-8").partition(begin)
    _, last, tail = rest.partition(end)
    if not (mark and last):
        raise SystemExit(f"{path.relative_to(ROOT)}: no {begin} ... {end}")
    return f"{head}{begin}\n{text}\n{end}{tail}"


# --- commands and what they print ------------------------------------------------------------

#: ``<!-- $ advisor demo -q | paragraphs 1-2,5 | exit -->`` ... ``<!-- /$ -->``
COMMAND = re.compile(
    r"<!-- \$ (?P<line>advisor [^|\n]+?)"
    r"(?: \| paragraphs (?P<kept>[\d,-]+))?(?P<exit> \| exit)? -->\n.*?<!-- /\$ -->",
    re.DOTALL,
)


def with_outputs(path: Path) -> str:
    """The page with what its commands print today between `<!-- $ ... -->` and `<!-- /$ -->`."""
    return COMMAND.sub(_ran, path.read_text(encoding="utf-8"))


def _ran(block: re.Match[str]) -> str:
    code, text = run(block["line"])
    if block["kept"]:
        text = _paragraphs(text, block["kept"])
    ending = f"$ echo $?\n{code}\n" if block["exit"] else ""
    mark = block[0].split("\n", 1)[0]
    return f"{mark}\n```console\n$ {block['line']}\n{text}{ending}```\n<!-- /$ -->"


def run(line: str) -> tuple[int, str]:
    """Exit code and output (both streams, 80 columns) of a command line in this repository."""
    from advisor.cli.main import main

    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    with (
        contextlib.chdir(ROOT),
        mock.patch.dict(os.environ, {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}),
        contextlib.redirect_stdout(stream),
        contextlib.redirect_stderr(stream),
    ):
        code = main(shlex.split(line)[1:])
    text = raw.getvalue().decode("utf-8")
    return code, "".join(f"{each.rstrip()}\n" for each in text.rstrip("\n").split("\n"))


def _paragraphs(text: str, kept: str) -> str:
    """Some of the paragraphs, counted from 1; what is left out between them shows as a mark."""
    all_ = text.strip("\n").split("\n\n")
    shown: list[str] = []
    last = 0
    for part in kept.split(","):
        first, _, final = part.partition("-")
        begin, end = int(first), int(final or first)
        if end > len(all_):
            raise SystemExit(f"paragraph {end} of {len(all_)}: {all_[0][:60]}")
        shown += [CUT] * (begin > last + 1) + all_[begin - 1 : end]
        last = end
    shown += [CUT] * (last < len(all_))
    return "\n\n".join(shown) + "\n"
