"""YAML with places: files become plain data, and every error knows its line.

A small resolver of our own replaces YAML 1.1's: ``no`` stays a text, ``12:30`` is not 750, ``010``
is not 8, ``1e-5`` is a number; keys are texts. Duplicate keys and tags are refused, anchors and aliases in
files of users, where few lines could become any amount of data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from msgspec import Struct, field

from advisor.errors import InputError, one_line
from advisor.reading import MOST_WRITTEN_BYTES, read_text

MAX_DEPTH = 50
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_INT = re.compile(r"\A[-+]?(0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"\A[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?\Z")
_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}
_TAGS = frozenset(f"tag:yaml.org,2002:{t}" for t in ("str", "seq", "map"))

#: A place in a document: keys and positions from the outside to the inside.
Loc = Sequence[int | str]
#: Number of problems listed for one file: the first have to be fixed before others are read.
MOST_OF_A_FILE = 50


class Problem(NamedTuple):
    """One thing that is wrong: where, what, and what to do. Line 0 is the file or folder itself."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{one_line(self.path)}{f':{self.line}' if self.line else ''}: {self.text}"


class Source(Struct):
    """One file: its data, the problems found on the way, and the line of any place in it."""

    path: str
    #: None until it is needed: of our own files only the data are read.
    text: str | None = None
    data: Any = None
    problems: list[Problem] = field(default_factory=list)
    #: True for data that come with the package: tests have checked them.
    known_right: bool = False
    _root: yaml.Node | None = None  # nodes are many: composed for the first error

    def line(self, loc: Loc = ()) -> int:
        """The 1-based line of a place; of the nearest enclosing one where it does not exist."""
        if self.text is None:
            self.text = read_text(Path(self.path), MOST_WRITTEN_BYTES)
        if self._root is None and self.text and not _too_deep(self.text):
            self._root = _compose(self.text)
        return _line(self._root, loc)

    def problem(self, loc: Loc, text: str) -> Problem:
        return Problem(self.path, self.line(loc), text)


def read(path: Path, *, aliases: bool = False) -> Source:
    """Parse one file; its faults are in ``problems``, never raised."""
    shown = str(path)
    try:
        text = read_text(path, MOST_WRITTEN_BYTES)
    except InputError as exc:
        return Source(shown, "", problems=[Problem(shown, 0, str(exc).removeprefix(f"{shown}: "))])
    except (OSError, UnicodeDecodeError) as exc:
        why = "not UTF-8 text" if isinstance(exc, UnicodeDecodeError) else exc.strerror or str(exc)
        return Source(shown, "", problems=[Problem(shown, 0, f"cannot be read ({why}); fix the file")])
    return parse(text, shown, aliases=aliases)


def parse(text: str, path: str, *, aliases: bool = False) -> Source:
    """The same for text in hand."""
    source = Source(path, text)
    try:
        root = None if (deep := _too_deep(text)) else _compose(text)
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None) or getattr(exc, "context_mark", None)
        line = 1 if mark is None else mark.line + 1
        what = " ".join(str(getattr(exc, "problem", None) or exc).split())
        source.problems.append(Problem(path, line, f"not valid YAML: {what}; correct the syntax"))
        return source
    if root is None:
        what = "nested too deeply; flatten the document" if deep else "the file is empty; write one document"
        source.problems.append(Problem(path, 1, what))
        return source
    source.data = _build(root, source, None if aliases else set())
    return source


def _line(node: yaml.Node | None, loc: Loc) -> int:
    """The line of a place below the root of a document."""
    line = 1
    for at, step in enumerate(loc):
        if isinstance(step, str) and step.startswith("="):
            continue  # the tag of a union member, not a key
        if isinstance(node, yaml.MappingNode):
            pair = next((p for p in node.value if p[0].value == step), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            if step >= len(node.value):
                break
            node = node.value[step]
            line = node.start_mark.line + 1
        elif at == 0:
            break
    return line


def _too_deep(text: str) -> bool:
    """Composing recurses in C, in older releases without a limit: it would crash the process."""
    depth = 0
    loader = _LOADER(text)
    try:
        while (event := loader.get_event()) is not None:
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    return True
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except yaml.YAMLError as exc:
        if "nesting depth" in str(exc):  # of libyaml, since PyYAML 6.0.4
            return True
        raise
    finally:
        loader.dispose()
    return False


def _compose(text: str) -> yaml.Node | None:
    loader = _LOADER(text)
    try:
        node: yaml.Node | None = loader.get_single_node()
        return node
    finally:
        loader.dispose()


def _build(node: yaml.Node, source: Source, seen: set[int] | None) -> Any:
    """Plain data of a node; problems are collected and the walk goes on. `seen` are the nodes so far, None if
    aliases may name them again."""

    def wrong(at: yaml.Node, text: str) -> None:
        source.problems.append(Problem(source.path, at.start_mark.line + 1, text))

    if seen is not None:
        if id(node) in seen:
            wrong(node, "anchors and aliases are not supported; write the value out")
            return None
        seen.add(id(node))
    if node.tag not in _TAGS:
        wrong(node, f"the tag {node.tag.rsplit(':', 1)[-1]} is not supported; remove it")
        return None
    if isinstance(node, yaml.ScalarNode):
        return node.value if node.style else _scalar(node.value)
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, source, seen) for item in node.value]
    built: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            wrong(key_node, "a key must be plain text; write one")
            continue
        if key_node.value in built:
            wrong(key_node, f"the key `{key_node.value}` appears twice; keep one")
        built[key_node.value] = _build(value_node, source, seen)
    return built


def _scalar(text: str) -> Any:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.match(text):
        return int(text) if len(text) < 40 else float("inf")
    return float(text) if _FLOAT.match(text) else text
