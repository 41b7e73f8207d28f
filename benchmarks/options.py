"""Looks for what knowledge/engines names in the releases of an engine, without importing it.

    python benchmarks/options.py ENGINE [VERSION...] [--package NAME[==VERSION]...]
                                 [--source PATH] [--downloads FOLDER] [--write]

Options are looked for in argument parsers and in the fields that parsers are made of; variables,
calls, keys and ranges among the identifiers and texts of the sources. VERSIONs (default: those of
knowledge/verified.yaml) are downloaded from the package index with ``pip download --no-deps``; other
packages that the engine is built on are searched for what the engine itself lacks. A `--source` is
a wheel, an sdist or a folder instead, or the git directory of a repository, in which VERSION is the tag
or branch v1.2 or r1.2.
Prints what is missing where `since` and `until` say that a release has it, what is deprecated, and
what nobody verified; `--write` records the answers in knowledge/verified.yaml. Exit code 1 where
anything is missing.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from packages import download, files
from verification import RANGE, Item, Verification, faults, items

from advisor.knowledge.engine_signs import engines
from advisor.knowledge.shapes import release

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "knowledge" / "verified.yaml"
#: The package of an engine where it is not called as the engine.
PACKAGES = {"native": "llama-cpp-python", "pytorch": "torch", "dynamo": "ai-dynamo", "xdit": "xfuser"}
TEXT = (".proto", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".rs", ".go", ".yaml", ".sh")
_WORD = re.compile(r"[A-Za-z_]\w+")
_DEPRECATED = re.compile(r"(?i)\W*(?:\w+ ){0,2}deprecated")


class Index:
    """Where one release has what is wanted: name -> file. A file is parsed only where it holds a
    wanted text at all."""

    def __init__(self, source: Path, wanted: Iterable[str], version: str = "HEAD") -> None:
        self.found: dict[str, str] = {}
        self.deprecated: set[str] = set()
        self._left = set(wanted)
        for name, content in files(source, (".py", *TEXT), version):
            text = content.decode("utf-8", "replace")
            lower = text.lower()
            if hits := [w for w in self._left if any(part in lower for part in _spellings(w))]:
                self._confirm(name, text, hits)

    def _confirm(self, name: str, text: str, wanted: Sequence[str]) -> None:
        """Keeps what the file's code has: comments and docstrings do not count."""
        has = {w for w in wanted if _in_text(w, name, text)}
        if name.endswith(".py"):
            try:
                code = _Code(ast.parse(text))
            except (SyntaxError, ValueError):
                return
            has = {w for w in wanted if code.has(w)}
            self.deprecated |= has & code.deprecated
        self.found |= dict.fromkeys(has, name)
        self._left -= has


def _in_text(wanted: str, name: str, text: str) -> bool:
    """As a whole word; an option of Rust's clap is named after its field, as may be one of Python."""
    if wanted.startswith(RANGE):
        return True
    spellings = [rf"(?<![\w-]){re.escape(wanted)}(?![\w-])"]
    if wanted.startswith("--") and name.endswith((".py", ".rs")):
        typed = r"\s*:\s*(?:A|Annotated)\[" if name.endswith(".py") else r"\s*:"
        spellings.append(rf"(?m)^\s*{wanted[2:].replace('-', '_')}{typed}")
    return any(re.search(s, text) for s in spellings)


def _spellings(wanted: str) -> list[str]:
    """Texts in lower case one of which a file must hold that has the item."""
    if wanted.startswith(RANGE):
        return wanted.removeprefix(RANGE).split(" | ")
    field = [wanted[2:].replace("-", "_")] if wanted.startswith("--") else []
    return [wanted.lower(), *field]


class _Code:
    """Options, identifiers and texts of one Python file."""

    def __init__(self, tree: ast.AST) -> None:
        self.options: set[str] = set()
        self.deprecated: set[str] = set()
        self.words: set[str] = set()
        self.texts: list[str] = []
        docs = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and re.search(r"(?i)arg|option", _called(node.func)):
                self._parser_call(node)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.annotation, ast.Subscript):
                self._field(node)
            self.words.update(_identifiers(node))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                self.texts.append(node.value.lower())
                self.words.update(_WORD.findall(node.value))

    def has(self, wanted: str) -> bool:
        if wanted.startswith(RANGE):
            literals = wanted.removeprefix(RANGE).split(" | ")
            return any(literal in text for literal in literals for text in self.texts)
        return wanted in (self.options if wanted.startswith("-") else self.words)

    def _parser_call(self, node: ast.Call) -> None:
        """``add_argument("--x", ...)``, ``click.option("--x")``, ``Arg(aliases=["--x"])``."""
        texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        given = [text for a in node.args if (text := _text(a))]
        aliases = [k.value for k in node.keywords if k.arg in ("aliases", "alias", "flag_name", "cli")]
        given += [str(n.value) for k in aliases for n in ast.walk(k) if isinstance(n, ast.Constant)]
        action = " ".join(_called(k.value) for k in node.keywords if k.arg == "action")
        for option in given:
            if option.startswith("-"):
                self._option(option, ["Deprecated"] if "eprecat" in action else texts)

    def _field(self, node: ast.AnnAssign) -> None:
        """``x_y: A[int, "help"]``: the field of a class that a parser is made of."""
        assert isinstance(node.annotation, ast.Subscript)
        if isinstance(node.target, ast.Name) and _called(node.annotation.value) in ("A", "Annotated"):
            texts = [str(n.value) for n in ast.walk(node.annotation) if isinstance(n, ast.Constant)]
            self._option(f"--{node.target.id.replace('_', '-')}", texts)

    def _option(self, option: str, texts: Iterable[str]) -> None:
        """An option with the texts of its declaration, which say where it is deprecated."""
        self.options.add(option)
        if any(_DEPRECATED.match(text) for text in texts):
            self.deprecated.add(option)


def _text(node: ast.AST) -> str:
    """A text; an f-string without its values, ``f"--{prefix}policy"`` as ``--policy``."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(str(p.value) for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str))


def _called(node: ast.AST) -> str:
    """The last name of what is called: ``add_argument`` of ``group.add_argument``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _identifiers(node: ast.AST) -> Iterator[str]:
    for attribute in ("id", "attr", "arg", "name"):
        value = getattr(node, attribute, None)
        if isinstance(value, str):
            yield from _WORD.findall(value)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Check the knowledge of an engine against its releases.")
    parser.add_argument("engine", choices=sorted(engines()))
    parser.add_argument("versions", nargs="*", metavar="VERSION")
    parser.add_argument("--package", action="append", default=[], metavar="NAME==VERSION")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--downloads", type=Path, default=Path("/tmp/advisor-options"))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(argv)
    before = yaml.safe_load(RESULT.read_text("utf-8")) if RESULT.exists() else {"schema": 1, "engines": {}}
    entry: dict[str, Any] = before["engines"].get(given.engine, {"items": {}})
    name = PACKAGES.get(given.engine, given.engine)
    versions = sorted(given.versions or entry.get("releases", []), key=lambda v: release(v) or ())
    if "source" in entry and not (given.source or given.package):
        parser.error(f"{given.engine} is not in the package index; give --source ({entry['source']})")
    wanted = items(engines()[given.engine])
    names = sorted({item.name for item in wanted})
    if given.source:
        indexes = {v: Index(given.source, names, v) for v in versions or ["HEAD"]}
    else:
        indexes = {v: Index(download(name, v, given.downloads), names) for v in versions}
    others = given.package or entry.get("packages", [])
    left = [n for n in names if not all(n in index.found for index in indexes.values())]
    beside = {p: Index(download(*p.split("=="), given.downloads), left) for p in others}

    answers = {item.name: _answer(item, indexes, beside, entry["items"]) for item in wanted}
    known = {n: Verification.from_data(a) for n, a in answers.items() if a}
    wrong = faults(wanted, known, list(indexes))
    for version, index in indexes.items():
        old = sorted(i.name for i in wanted if i.name in index.deprecated)
        print(f"{given.engine} {version}: {len(wanted)} items; deprecated: {', '.join(old) or 'none'}")
    for text in wrong:
        print(f"  {text}")
    if given.write:
        told = {"read": datetime.now(UTC).date(), "packages": others, "releases": list(indexes)}
        told |= {k: entry[k] for k in ("source",) if k in entry}
        kept = {n: a for n, a in sorted(answers.items()) if a}
        before["engines"][given.engine] = {**told, "items": kept}
        _write(before)
    return 1 if wrong else 0


def _answer(
    item: Item, indexes: dict[str, Index], beside: dict[str, Index], known: dict[str, Any]
) -> dict[str, Any] | None:
    """Where an item was found; a document or an excuse that somebody wrote down stays."""
    found = {v: w for v, index in indexes.items() if (w := index.found.get(item.name))}
    if not found or any(item.expected_in(v) for v in indexes.keys() - found.keys()):
        for package, index in beside.items():
            if witness := index.found.get(item.name):
                return {"witness": f"{package.replace('==', ' ')}: {witness}"}
    if found:
        return {"found": list(found), "witness": found[list(found)[-1]]}
    told = known.get(item.name)
    return told if told and not told.get("found") else None


def _write(data: dict[str, Any]) -> None:
    lines = [
        "# What of knowledge/engines was found in which release: written by benchmarks/options.py.",
        "# An item has a `witness` (a file of the newest release in `found`, a file of another package,",
        "# or a document) or an `excuse` why none was looked for; those without `found` are kept.",
        f"schema: {data['schema']}",
        "engines:",
    ]
    for engine, told in sorted(data["engines"].items()):
        lines.append(f"  {engine}:")
        for key, value in told.items():
            if key != "items" and value not in ([], None):
                lines.append(f"    {key}: {_flow(value)}")
        lines.append("    items:")
        lines += [f"      {_flow(name)}: {_flow(answer)}" for name, answer in told["items"].items()]
    RESULT.write_text("\n".join(lines) + "\n", "utf-8")


def _flow(value: Any) -> str:
    """One line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    return text.strip().removesuffix("...").strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
