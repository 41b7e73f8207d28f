"""Writes the generated documentation: rules, facts, engines, command line, and the outputs in other pages.

    python docs/build.py            write what has changed
    python docs/build.py --check    write nothing; name the files that are out of date, exit 1

What is written by hand (definitions, confidence, own_rules, the words of the tour and of how_it_decides, and
json but for its list of keys) is not touched. The pictures of the tour are drawn by docs/pictures.py.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import engine_pages
import json_keys
import outputs
import pages

ROOT = Path(__file__).resolve().parents[1]


def build() -> dict[Path, str]:
    """Every generated file with its text."""
    facts, cli, limits = (ROOT / f"docs/{name}.md" for name in ("facts", "cli", "limits"))
    files = {**pages.rule_pages(), **engine_pages.engine_pages(), limits: pages.limits()}
    files |= {facts: pages.facts(), cli: pages.cli()}
    readme, examples = ROOT / "README.md", ROOT / "examples/README.md"
    files[readme] = outputs.with_block(readme, "output", outputs.readme_output())
    files[examples] = outputs.with_block(examples, "table", outputs.examples_table(examples))
    guide = ROOT / "CONTRIBUTING.md"
    files[guide] = outputs.with_block(guide, "folders", pages.folders())
    checked = ROOT / "benchmarks/knowledge.md"
    files[checked] = outputs.with_block(checked, "releases", pages.releases())
    security = ROOT / "docs/security.md"
    files[security] = outputs.with_block(security, "options", pages.reaches())
    keys = ROOT / "docs/json.md"
    files[keys] = outputs.with_block(keys, "keys", json_keys.json_keys())
    for name in ("docs/tour.md", "docs/how_it_decides.md", "tests/reports/printed.md"):
        page = ROOT / name
        files[page] = outputs.with_outputs(page)
    return files


# --- writing ---------------------------------------------------------------------------------


def stale(files: dict[Path, str]) -> list[Path]:
    """Files that differ from what would be written, and pages of rules that are gone."""
    changed = [
        path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    folders = (ROOT / "docs/rules", ROOT / "docs/engines")
    left = [path for folder in folders for path in folder.glob("*.md") if path not in files]
    return sorted([*changed, *left])


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail on drift")
    args = parser.parse_args(argv)
    files = build()
    changed = stale(files)
    for path in changed:
        name = path.relative_to(ROOT).as_posix()
        if args.check:
            print(f"{name} is out of date; run python docs/build.py", file=sys.stderr)
            continue
        if path in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], encoding="utf-8")
        else:
            path.unlink()
        print(f"{'wrote' if path in files else 'removed'} {name}")
    return int(args.check and bool(changed))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
