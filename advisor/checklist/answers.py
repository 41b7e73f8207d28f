"""Answers that people gave: from a file, from a session, from a reviewed workbook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from advisor.errors import InputError, invalid_choice
from advisor.model.checklist import ANSWERS, Answer, CheckEntry, Checklist
from advisor.reading import MOST_WRITTEN_BYTES, parse_json, read_text

#: How answers may be spelled; YAML reads a bare yes as true.
_SPELLINGS: dict[str, Answer] = {
    "y": "yes", "true": "yes", "n": "no", "false": "no", "na": "not_applicable",
    "n/a": "not_applicable", "not applicable": "not_applicable", "skip": "later",
    **{a: a for a in ANSWERS},
}  # fmt: skip


@dataclass(frozen=True)
class Reply:
    """What a person says to one question."""

    answer: Answer
    note: str = ""


def parse(value: Any, where: str) -> Reply:
    """``yes``, ``{answer: no, note: ...}``; raises InputError for anything else."""
    note: Any = ""
    if isinstance(value, Mapping):
        if unknown := set(value) - {"answer", "note"}:
            raise InputError(f"{where}: unknown key '{min(map(str, unknown))}'; answer and note")
        value, note = value.get("answer"), value.get("note") or ""
    if isinstance(value, list | dict):  # never shown: aliases of YAML can make it huge
        value = f"a {type(value).__name__}"
    text = str(value).strip().lower()
    found = _SPELLINGS.get(text) or _SPELLINGS.get(text.replace("-", " ").replace("_", " "))
    if found is None:
        raise invalid_choice(where, value, ANSWERS)
    return Reply(found, str(note).strip())


def read(path: Path, known: Checklist) -> dict[str, Reply]:
    """The answers of a file, by id: YAML or JSON, plain, of a session or of a review."""
    content = load(path)
    given = content.get("answers", content.get("checklist", content))
    if isinstance(given, list):
        # The checklist of `review import`: only what people answered.
        given = {
            str(r.get("id")): {"answer": r.get("answer"), "note": r.get("note")}
            for r in given
            if isinstance(r, dict) and r.get("answer") and r.get("answer") != r.get("measured")
        }
    if not isinstance(given, dict):
        raise InputError(f"{path}: answers must be a table of id and answer")
    ids = [entry.id for entry in known.entries]
    for name in given:
        if name not in ids:
            near = get_close_matches(str(name), ids, 1)
            hint = f"did you mean '{near[0]}'?" if near else "see 'advisor checklist --list'"
            raise InputError(f"{path}: no question '{name}'; {hint}")
    return {name: parse(value, f"{path}: {name}") for name, value in given.items()}


def load(path: Path) -> dict[str, Any]:
    """The table that a YAML or JSON file holds."""
    try:
        text = read_text(path, MOST_WRITTEN_BYTES)
        content = parse_json(text) if path.suffix == ".json" else yaml.safe_load(text)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as fault:
        raise InputError(f"{path}: cannot be read ({fault})") from fault
    except (ValueError, RecursionError, yaml.YAMLError) as fault:
        line = " ".join(str(fault).split())[:120]
        raise InputError(f"{path}: neither YAML nor JSON ({line})") from fault
    if not isinstance(content, dict):
        raise InputError(f"{path}: must be a table of id and answer")
    return content


def answered(entry: CheckEntry, reply: Reply) -> CheckEntry:
    """The entry with a person's answer; what the capture says stays beside it."""
    return entry.model_copy(update={"answer": reply.answer, "by": "person", "note": reply.note})


def with_replies(checklist: Checklist, replies: Mapping[str, Reply]) -> Checklist:
    """The checklist with all these answers."""
    entries = tuple(answered(e, replies[e.id]) if e.id in replies else e for e in checklist.entries)
    return checklist.model_copy(update={"entries": entries})
