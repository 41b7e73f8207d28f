"""YAML with places: files become plain data, and every error knows its line.

A small resolver of our own replaces YAML 1.1's: ``no`` stays a text, ``12:30`` is not 750, ``010``
is not 8, ``1e-5`` is a number. Duplicate keys, anchors, aliases and tags are refused.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from advisor.engine.load import MOST_OF_A_FILE, Loc, Problem, Source
from advisor.errors import InputError, near
from advisor.model.checks import fields_of
from advisor.model.records import Frozen
from advisor.reading import MOST_WRITTEN_BYTES, read_text

M = TypeVar("M", bound=Frozen)

MAX_DEPTH = 50
_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_INT = re.compile(r"\A[-+]?(0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"\A[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?\Z")
_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}
_TAGS = frozenset(f"tag:yaml.org,2002:{t}" for t in ("str", "seq", "map"))


def read(path: Path) -> Source:
    """Parse one file; its faults are in ``problems``, never raised."""
    shown = str(path)
    try:
        text = read_text(path, MOST_WRITTEN_BYTES)
    except InputError as exc:
        return Source(shown, "", problems=[Problem(shown, 0, str(exc).removeprefix(f"{shown}: "))])
    except (OSError, UnicodeDecodeError) as exc:
        why = "not UTF-8 text" if isinstance(exc, UnicodeDecodeError) else exc.strerror or str(exc)
        return Source(shown, "", problems=[Problem(shown, 0, f"cannot be read ({why}); fix the file")])
    return parse(text, shown)


def parse(text: str, path: str) -> Source:
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
    source._root = root
    source.data = _build(root, source, set())
    source._root = None  # nodes are many; composed again only for an error
    return source


def validate(source: Source, model: type[M]) -> M | None:
    """The data as `model`, or None with the reasons added to ``source.problems``."""
    if source.problems:
        return None
    try:
        return model.model_validate(source.data)
    except ValidationError as exc:
        source.problems.extend(_explain(exc, source, model))
        return None


#: Substitutes for keys that are missing or wrong, so that the names in the rest can be checked.
_STAND_IN: dict[str, Any] = {
    "schema": 1, "code": "AAA000", "cause": "any", "title": "any", "kind": "cause", "scope": "device",
    "lifecycle": "preview", "when": {"all": [{"cause": "any"}]}, "message": "any", "effort": "low",
    "confidence": {"method": "measured", "base": 0.5}, "action": "any", "id": "any", "expect": "present",
    "docs": {"what": "any", "why": "any", "harmless_when": "any"}, "unit": "ratio", "origin": "measured",
    "base": 0.5, "method": "measured", "default": 1, "factor": 1.0, "text": "any", "because": "any",
    "reason": "any", "reply": "no", "flag": "any", "severity": "low",
    "what": "any", "why": "any", "harmless_when": "any",
}  # fmt: skip


def draft(source: Source, model: type[M]) -> M | None:
    """Data refused by `validate` without its mistakes, to judge names only; None if too little is left."""
    for _ in range(MAX_DEPTH):
        try:
            return model.model_validate(source.data)
        except ValidationError as exc:
            if not all(_left_out(source.data, e) for e in exc.errors(include_url=False)):
                return None
    return None


def _left_out(data: Any, error: Any) -> bool:
    """Take one mistake out of plain data; false if that is not possible."""
    loc = [step for step in error["loc"] if not str(step).startswith("=")]
    holder = None
    for step in loc[:-1]:
        holder = data
        if not isinstance(data, dict | list) or (isinstance(data, dict) and step not in data):
            return True  # removed with another mistake
        data = data[step]
    last = loc[-1] if loc else None
    at = data[last] if isinstance(data, list) and isinstance(last, int) else data
    if isinstance(at, dict) and "fact" in at and (at is not data or last in ("op", "value", "param")):
        at.update(op="known", value=True)
        at.pop("param", None)
    elif isinstance(data, dict) and last in _STAND_IN and error["type"] != "extra_forbidden":
        data[last] = _STAND_IN[last]
    elif isinstance(data, dict) and last in data:
        del data[last]
    elif isinstance(holder, dict):  # a required key is missing: the object goes
        del holder[loc[-2]]
    else:
        return False
    return True


def line_of(source: Source, loc: Loc) -> int:
    """The 1-based line of a place; of the nearest enclosing one where it does not exist."""
    if source._root is None and source.text and not _too_deep(source.text):
        source._root = _compose(source.text)
    node: yaml.Node | None = source._root
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


def _build(node: yaml.Node, source: Source, seen: set[int]) -> Any:
    """Plain data of a node; problems are collected and the walk goes on."""

    def wrong(at: yaml.Node, text: str) -> None:
        source.problems.append(Problem(source.path, at.start_mark.line + 1, text))

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


#: What is wrong at a place, by pydantic's type of error; for any other, the type that it should have.
_FAULTS = {
    "missing": " is missing; add it",
    "value_error": ": {error}",
    "condition": ": {wanted}",
    "literal_error": " is {given}; use {expected}",
    "string_pattern_mismatch": " is {given}; it must match {pattern}",
    "too_short": " has {actual_length} items; give at least {min_length}",
    "too_long": " has {actual_length} items; give at most {max_length}",
}


def _explain(exc: ValidationError, source: Source, model: type[Frozen]) -> Iterator[Problem]:
    """Pydantic's errors in the project's words, one a place."""
    found = exc.errors(include_url=False)
    # Looking up lines in the whole file takes long for thousands of problems; the rest is only counted.
    for number in range(MOST_OF_A_FILE, len(found)):
        yield Problem(source.path, sys.maxsize, str(number))
    for error in found[:MOST_OF_A_FILE]:
        loc = error["loc"]
        where = dotted(loc) or "the document"
        kind, given = error["type"], error.get("input")
        if kind in ("extra_forbidden", "unexpected_keyword_argument"):
            known = _keys(model)
            hint = "remove it" if loc[-1] in known else near(str(loc[-1]), sorted(known), "remove it")
            text = f"{where} is an unknown key; {hint}"
        else:
            wanted = error["msg"].removeprefix("Input should be ")
            values = {"error": wanted, **error.get("ctx", {}), "given": _short(given), "wanted": wanted}
            text = f"{where}{_FAULTS.get(kind, ' is {given}; expected {wanted}').format(**values)}"
        yield source.problem(loc, text)


def dotted(loc: Loc) -> str:
    """``("when", "any", 0, "=fact", "op")`` -> ``when.any[0].op``."""
    out = ""
    for step in loc:
        if isinstance(step, int):
            out += f"[{step}]"
        elif not step.startswith("=") and step != "[key]":
            out += f".{step}" if out else step
    return out


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _keys(model: type[Frozen], seen: set[type[Frozen]] | None = None) -> set[str]:
    """Every key that may appear anywhere in the model, for "did you mean"."""
    seen = set() if seen is None else seen
    if model in seen:
        return set()
    seen.add(model)
    found: set[str] = set()
    for field in fields_of(model):
        found.add(field.key)
        for inner in _types(field.annotation):
            if issubclass(inner, Frozen):
                found |= _keys(inner, seen)
            elif is_dataclass(inner):
                found.update(f.name for f in fields(inner))
    return found


def _types(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _types(inner)
