"""A session: the answers so far in a file that is whole after every answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from advisor.checklist.answers import Reply, load, parse, with_replies
from advisor.checklist.items import command_of
from advisor.errors import InputError
from advisor.knowledge.checklist import checklist_items
from advisor.model.checklist import Checklist
from advisor.reports.files import write_atomic

SCHEMA = 1
SUFFIX = ".checklist.yaml"
DEFAULT = "advisor"
_NAME = re.compile(r"[\w-]+")


def path_of(name: str | None, folder: Path | None = None) -> Path:
    """``review`` is the file review.checklist.yaml of this folder; anything else is a path."""
    if name is None or _NAME.fullmatch(name):
        return (folder or Path()) / f"{name or DEFAULT}{SUFFIX}"
    return Path(name)


def resume_command(path: Path) -> str:
    """What to type to go on with this session."""
    name = path.name.removesuffix(SUFFIX)
    plain = path.parent == Path() and path.name.endswith(SUFFIX) and _NAME.fullmatch(name)
    return f"advisor checklist --resume --session {name if plain else path}"


def find(name: str | None, folder: Path | None = None) -> Path:
    """The session to resume: the one named, else the only one in this folder."""
    path = path_of(name, folder)
    if path.is_file():
        return path
    if name is None:
        here = sorted((folder or Path()).glob(f"*{SUFFIX}"))
        if len(here) == 1:
            return here[0]
        if here:
            names = ", ".join(p.name.removesuffix(SUFFIX) for p in here)
            raise InputError(f"several sessions in this folder ({names}); add --session NAME")
    raise InputError(f"{path}: no such session; start one without --resume")


def save(path: Path, checklist: Checklist) -> None:
    """Write the session, whole or not at all."""
    people: dict[str, Any] = {}
    measured: dict[str, Any] = {}
    for entry in checklist.entries:
        if entry.by == "person" and entry.answer is not None:
            people[entry.id] = {"answer": entry.answer}
            if entry.note:
                people[entry.id]["note"] = entry.note
        if entry.measured is not None or entry.proof:
            measured[entry.id] = {"answer": entry.measured, "proof": entry.proof}
    content = {
        "schema": SCHEMA,
        "captures": list(checklist.captures),
        "serving_engine": checklist.serving_engine,
        "answers": people,
        "measured": measured,
    }
    head = f"# A checklist of advisor; go on with: {resume_command(path)}\n"
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)
    write_atomic(path, (head + text).encode("utf-8", "replace"), force=True)


def read(path: Path) -> dict[str, Any]:
    """What a session holds; raises InputError for any other file."""
    content = load(path)
    if content.get("schema") != SCHEMA or not isinstance(content.get("answers"), dict):
        raise InputError(f"{path}: not a session of advisor checklist")
    return content


def restore(path: Path, fresh: Checklist) -> Checklist:
    """The checklist with the answers of a session.

    Where `fresh` comes from captures its numbers hold; else those that the session kept.
    """
    content = read(path)
    ids = {entry.id for entry in fresh.entries}
    # Questions that this release no longer asks are left behind.
    replies = {str(k): parse(v, f"{path}: {k}") for k, v in content["answers"].items() if k in ids}
    restored = fresh if fresh.captures else _with_measured(fresh, content)
    return with_replies(restored, replies)


def _with_measured(fresh: Checklist, content: dict[str, Any]) -> Checklist:
    measured: dict[str, Reply | str] = {}
    for name, value in (content.get("measured") or {}).items():
        if not isinstance(value, dict):
            continue
        proof = str(value.get("proof") or "")
        answer = value.get("answer")
        measured[name] = proof if answer is None else Reply(parse(answer, name).answer, proof)
    captures = tuple(map(str, content.get("captures") or ()))
    commands = {i.id: command_of(i, captures) for i in checklist_items().items}
    entries = []
    for entry in fresh.entries:
        entry = entry.model_copy(update={"command": commands[entry.id]})
        kept = measured.get(entry.id)
        if isinstance(kept, Reply):
            changes: dict[str, Any] = {
                "answer": kept.answer,
                "by": "capture",
                "measured": kept.answer,
                "proof": kept.note,
            }
            entry = entry.model_copy(update=changes)
        elif kept:
            entry = entry.model_copy(update={"proof": kept})
        entries.append(entry)
    changes = {
        "entries": tuple(entries),
        "captures": captures,
        "serving_engine": fresh.serving_engine or content.get("serving_engine"),
    }
    return fresh.model_copy(update=changes)
