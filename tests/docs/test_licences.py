"""Everything in the repository that was recorded or taken over is listed with its source and licence."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

from tests.docs.scripts import ROOT

PLACES = ("examples", "tests/data")
#: Written for this project by hand; everything else was recorded, printed by another program, or taken over.
OWN = {".md", ".yml", ".sh"}


def listed() -> dict[str, tuple[str, str]]:
    """Path (or pattern) from the root -> source and licence, from the table of the page."""
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    part = page.partition("\n## Sources and licences\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \| ([^|]+) \|$", part, re.MULTILINE)
    return {
        path: (source, licence) for paths, source, licence in rows for path in re.findall("`([^`]+)`", paths)
    }


def committed() -> set[str]:
    found = (p for place in PLACES for p in (ROOT / place).rglob("*") if p.is_file())
    return {p.relative_to(ROOT).as_posix() for p in found if p.suffix not in OWN}


def test_every_capture_is_listed_once_with_source_and_licence() -> None:
    known = listed()
    assert len(committed()) > 20
    by_file = {f: [path for path in known if fnmatch(f, path)] for f in committed()}
    assert {f: paths for f, paths in by_file.items() if len(paths) != 1} == {}
    assert [path for path in known if not any(fnmatch(f, path) for f in committed())] == []
    assert all(source.strip() and re.search("Apache-2.0|MIT", licence) for source, licence in known.values())


def test_what_is_not_ours_has_its_licence_beside_it() -> None:
    foreign = [path for path, (_, licence) in listed().items() if "Apache-2.0" not in licence]
    assert len(foreign) == 4
    for path in foreign:
        texts = [
            p.read_text(encoding="utf-8")
            for p in Path(ROOT / path).parent.iterdir()
            if p.suffix not in (".gz", ".xz")
        ]
        assert any("Permission is hereby granted, free of charge" in text for text in texts), path
