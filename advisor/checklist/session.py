"""A session: answers of a person or a file, kept in a file that is complete after every answer; questions
at a terminal have the same keys everywhere: back, quit, help."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any, Literal

import yaml
from msgspec import Struct

from advisor.checklist.items import command_of
from advisor.errors import InputError, invalid_choice, near
from advisor.knowledge.verb_files import checklist_items
from advisor.locks import locked
from advisor.model.review import ANSWERS, WORDS, Answer, CheckEntry, Checklist, Stage
from advisor.reading import MOST_WRITTEN_BYTES, leads_out, parse_json, read_text, similar
from advisor.reports.blocks import Block
from advisor.reports.output_file import write_atomic
from advisor.reports.review_blocks import question

#: Accepted spellings of answers; YAML reads a bare yes as true.
_SPELLINGS: dict[str, Answer] = {
    "y": "yes",
    "true": "yes",
    "n": "no",
    "false": "no",
    "na": "not_applicable",
    "n/a": "not_applicable",
    "not applicable": "not_applicable",
    "skip": "later",
    **{a: a for a in ANSWERS},
}


class Reply(Struct, frozen=True):
    """A person's answer to one question."""

    answer: Answer
    note: str = ""


def parse(value: Any, where: str) -> Reply:
    """``yes``, ``{answer: no, note: ...}``; raises InputError for anything else."""
    note: Any = ""
    if isinstance(value, Mapping):
        if unknown := set(value) - {"answer", "note"}:
            raise InputError(f"{where}: unknown key '{min(map(str, unknown))}'; answer and note")
        value, note = value.get("answer"), value.get("note") or ""
    if isinstance(value, list | dict):  # never printed: aliases of YAML can make it huge
        value = f"a {type(value).__name__}"
    text = str(value).strip().lower()
    found = _SPELLINGS.get(text) or _SPELLINGS.get(text.replace("-", " ").replace("_", " "))
    if found is None:
        raise invalid_choice(where, value, ANSWERS)
    return Reply(found, str(note).strip())


def read_answers(path: Path, known: Checklist) -> dict[str, Reply]:
    """The answers of a file, by id: YAML or JSON, plain, of a session or of a review."""
    content = load(path)
    given = content.get("answers", content.get("checklist", content))
    if isinstance(given, list):
        # The checklist of `review import`: only people's answers.
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
            hint = near(str(name), ids, "see 'advisor checklist --list'")
            raise InputError(f"{path}: no question '{name}'; {hint}")
    return {name: parse(value, f"{path}: {name}") for name, value in given.items()}


def load(path: Path) -> dict[str, Any]:
    """The table that a YAML or JSON file holds."""
    try:
        text = read_text(path, MOST_WRITTEN_BYTES)
        # A session is YAML under any name.
        json = path.suffix == ".json" and text.lstrip().startswith(("{", "["))
        content = parse_json(text) if json else yaml.safe_load(text)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file{similar(path)}") from None
    except (OSError, UnicodeDecodeError) as fault:
        raise InputError(f"{path}: cannot be read ({fault})") from fault
    except (ValueError, RecursionError, yaml.YAMLError) as fault:
        line = " ".join(str(fault).split())[:120]
        raise InputError(f"{path}: neither YAML nor JSON ({line})") from fault
    if not isinstance(content, dict):
        raise InputError(f"{path}: must be a table of id and answer")
    return content


def answered(entry: CheckEntry, reply: Reply) -> CheckEntry:
    """The entry with a person's answer; the capture's evidence stays beside it."""
    return entry.replaced(answer=reply.answer, by="person", note=reply.note)


def with_replies(checklist: Checklist, replies: Mapping[str, Reply]) -> Checklist:
    """The checklist with all these answers."""
    entries = tuple(answered(e, replies[e.id]) if e.id in replies else e for e in checklist.entries)
    return checklist.replaced(entries=entries)


SCHEMA = 1
SUFFIX = ".checklist.yaml"
DEFAULT = "advisor"
_NAME = re.compile(r"[\w-]+")


def path_of(name: str | None, folder: Path | None = None) -> Path:
    """``review`` is the file review.checklist.yaml of this folder; anything else is a path. Raises InputError
    where that file is a link out of the folder."""
    if name is None or _NAME.fullmatch(name):
        return _inside(folder or Path(), f"{name or DEFAULT}{SUFFIX}")
    return Path(name)


def _inside(folder: Path, name: str) -> Path:
    if leads_out(folder / name, folder) is not None:
        raise InputError(f"{name}: a link out of this folder; if you trust it: --session ./{name}")
    return folder / name


def resume_command(path: Path) -> str:
    """The command that continues this session."""
    name = path.name.removesuffix(SUFFIX)
    plain = path.parent == Path() and path.name.endswith(SUFFIX) and _NAME.fullmatch(name)
    return f"advisor checklist --resume --session {name if plain else path}"


def find(name: str | None, folder: Path | None = None) -> Path:
    """The session to resume: the named one, else the only one in this folder."""
    path = path_of(name, folder)
    if path.is_file():
        return path
    if name is None:
        here = sorted((folder or Path()).glob(f"*{SUFFIX}"))
        if len(here) == 1:
            return _inside(folder or Path(), here[0].name)
        if here:
            names = ", ".join(p.name.removesuffix(SUFFIX) for p in here)
            raise InputError(f"several sessions in this folder ({names}); add --session NAME")
    raise InputError(f"{path}: no such session; start one without --resume")


def save(path: Path, checklist: Checklist) -> None:
    """Write the session, whole or not at all."""
    write_atomic(path, _document(path, checklist), force=True)


def _document(path: Path, checklist: Checklist) -> bytes:
    people: dict[str, Any] = {}
    measured: dict[str, Any] = {}
    for entry in checklist.entries:
        if entry.by == "person" and entry.answer is not None:
            note = {"note": entry.note} if entry.note else {}
            people[entry.id] = {"answer": entry.answer, **note}
        if entry.measured is not None or entry.proof:
            measured[entry.id] = {"answer": entry.measured, "proof": entry.proof}
    content = {
        "schema": SCHEMA,
        "captures": list(checklist.captures),
        "serving_engine": checklist.serving_engine,
        "answers": people,
        "measured": measured,
    }
    head = f"# A checklist of advisor; go on with: {resume_command(Path(checklist.session or path))}\n"
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=100)
    return (head + text).encode("utf-8", "replace")


def start(path: Path, checklist: Checklist, force: bool) -> None:
    """Write a session that is new, or with `force` starts over. Raises InputError where another process has
    started it meanwhile."""
    with locked(path):
        if path.exists() and not force:
            raise exists(path)
        save(path, checklist)


def exists(path: Path) -> InputError:
    """The error for a session that would be replaced."""
    return InputError(f"{path} exists; add --resume to go on, or --force to start over")


class Shared:
    """A session that this process writes, and others may as well. `warn` is given a line about each question
    that two of them answered otherwise: of two answers the last counts."""

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self._path, self._warn = path, warn
        self._seen: dict[str, Reply] = {}  # in the session
        self._given: dict[str, Reply] = {}  # by this process

    def keep(self, checklist: Checklist, own: Mapping[str, Reply]) -> Checklist:
        """Save the answers of this process (`own`), and return the checklist with those that others saved
        meanwhile. The lock is held for the writing alone."""
        warnings = []
        with locked(self._path):
            there = self._path.exists()
            theirs = _replies(self._path, read(self._path), checklist) if there else {}
            new = {name: reply for name, reply in own.items() if reply != self._given.get(name)}
            for name, reply in own.items():
                other = theirs.get(name)
                if other is not None and other != reply and other != self._seen.get(name):
                    lost, kept = (other, reply) if name in new else (reply, other)
                    warnings.append(
                        f"{name}: answered {_shown(lost)} and {_shown(kept)} by two sessions at once; "
                        f"{_shown(kept)} is kept"
                    )
            merged = with_replies(restore(self._path, checklist) if there else checklist, new)
            save(self._path, merged)
        self._seen, self._given = theirs | new, dict(own)
        for line in warnings:
            self._warn(line)
        return merged


def _shown(reply: Reply) -> str:
    return f"'{reply.answer}' ({reply.note})" if reply.note else f"'{reply.answer}'"


def read(path: Path) -> dict[str, Any]:
    """The contents of a session; raises InputError for any other file."""
    content = load(path)
    if content.get("schema") != SCHEMA or not isinstance(content.get("answers"), dict):
        raise InputError(f"{path}: not a session of advisor checklist")
    return content


def restore(path: Path, fresh: Checklist) -> Checklist:
    """The checklist with the answers of a session.

    If `fresh` comes from captures its numbers are used; else those of the session.
    """
    content = read(path)
    restored = fresh if fresh.captures else _with_measured(fresh, content)
    return with_replies(restored, _replies(path, content, fresh))


def _replies(path: Path, content: dict[str, Any], fresh: Checklist) -> dict[str, Reply]:
    """The answers of persons; those to questions that this release no longer asks are dropped."""
    ids = {entry.id for entry in fresh.entries}
    return {str(k): parse(v, f"{path}: {k}") for k, v in content["answers"].items() if k in ids}


def _with_measured(fresh: Checklist, content: dict[str, Any]) -> Checklist:
    captures = tuple(map(str, content.get("captures") or ()))
    commands = {i.id: command_of(i, captures) for i in checklist_items().items}
    measured = content.get("measured") or {}
    entries = []
    for entry in fresh.entries:
        changes: dict[str, Any] = {"command": commands[entry.id]}
        if isinstance(kept := measured.get(entry.id), dict):
            changes["proof"] = str(kept.get("proof") or "")
            if kept.get("answer") is not None:
                answer = parse(kept["answer"], entry.id).answer
                changes |= {"answer": answer, "by": "capture", "measured": answer}
        entries.append(entry.replaced(**changes))
    engine = fresh.serving_engine or content.get("serving_engine")
    return fresh.replaced(entries=tuple(entries), captures=captures, serving_engine=engine)


# --- questions ------------------------------------------------------------------------------------

BACK: Literal["back"] = "back"
#: None leaves the question open, BACK returns to the previous one.
Answered = Reply | Literal["back"] | None


#: Asks a person one question, by its number and how many there are.
Ask = Callable[[CheckEntry, Checklist, int, int], Answered]


def shortened(checklist: Checklist) -> Checklist:
    """The questions of the eight steps, in their order."""
    steps = sorted((e for e in checklist.entries if e.step is not None), key=lambda e: e.step or 0)
    return checklist.replaced(entries=tuple(steps))


def walk(
    checklist: Checklist,
    ask: Ask | None,
    keep: Callable[[Checklist, Mapping[str, Reply]], Checklist],
    also: frozenset[str] = frozenset(),
    short: bool = False,
    replies: Mapping[str, Reply] | None = None,
) -> Checklist:
    """Ask the open questions and those in `also`, or the eight steps; the `replies` of a file come first.
    `keep` is called after every answer, with all that were given here, and returns the checklist with those
    given elsewhere."""
    own: dict[str, Reply] = {}
    left = dict(replies or {})  # used once: after going back the question is asked again
    asked = shortened(checklist).entries if short else checklist.entries
    order = [e.id for e in asked if e.open or e.id in also]
    at = 0
    while at < len(order):
        entry = next(e for e in checklist.entries if e.id == order[at])
        reply: Answered = left.pop(entry.id, None)
        if reply is None and ask is not None:
            reply = ask(entry, checklist, at + 1, len(order))
        if reply == BACK:
            at = max(at - 1, 0)
            continue
        if isinstance(reply, Reply):
            own[entry.id] = reply
            checklist = keep(with_replies(checklist, own), own)
        at += 1
    return checklist


#: Key of each answer.
KEYS: dict[Answer, str] = {"yes": "y", "no": "n", "not_applicable": "x", "later": "l"}

_QUIT, _HELP = "quit", "help"
HELP = (
    "Press the key of a choice or move with the arrows, then Enter. b goes back to the question before, "
    "q or Ctrl-C stops, h shows this; in a line of text b, q and h stand alone."
)
#: Below the text of a choice, after the pointer and the key.
_INDENT = " " * len(" » 1) ")


def need_terminal(instead: str) -> None:
    """Fail without a terminal instead of blocking."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError(f"this asks questions and there is no terminal; {instead}")


def choose(
    ask: str, choices: Sequence[tuple[str, str, str | None]], default: str | None = None, first: bool = False
) -> str:
    """The chosen value of (value, text, key or None), or BACK unless `first`. KeyboardInterrupt: quit."""
    import questionary

    width = get_terminal_size().columns - len(_INDENT) - 1
    offered = [
        questionary.Choice(f"\n{_INDENT}".join(wrap(text, width)), value=value, shortcut_key=key)
        for value, text, key in choices
    ]
    before = next((c for c in offered if c.value == default), None)
    keys = (_QUIT, _HELP) if first else (BACK, _QUIT, _HELP)
    offered += [questionary.Choice(key, value=key, shortcut_key=key[0]) for key in keys]
    while True:
        picked = questionary.select(
            ask,
            choices=offered,
            default=before,
            use_shortcuts=True,
            use_arrow_keys=True,
            instruction="(key or arrows, then Enter)",
        ).unsafe_ask()
        if picked == _QUIT:
            raise KeyboardInterrupt
        if picked != _HELP:
            return str(picked)
        print(HELP)


def write(
    ask: str, default: str = "", empty: str = "", valid: Callable[[str], bool | str] | None = None
) -> str:
    """A line of text, or BACK; `empty` is the meaning of Enter alone, `valid` returns the fault of a line.
    Raises KeyboardInterrupt to quit."""
    import questionary

    keys = ", ".join([*([f"Enter: {empty}"] if empty else []), "b: back", "q: quit", "h: help"])
    check = (lambda text: text in ("b", "q", "h") or valid(text)) if valid is not None else None
    while True:
        asked = questionary.text(ask, default=default, instruction=f"({keys}) ", validate=check)
        text = str(asked.unsafe_ask()).strip()
        if text == "q":
            raise KeyboardInterrupt
        if text != "h":
            return BACK if text == "b" else text
        print(HELP)


def at_terminal(show: Callable[[Iterable[Block]], None]) -> Ask:
    """Asks a person; `show` prints blocks."""
    before: Stage | None = None

    def ask(entry: CheckEntry, checklist: Checklist, number: int, of: int) -> Answered:
        nonlocal before
        title = checklist.stages[entry.stage] if entry.stage != before else None
        before = entry.stage
        show(question(entry, number, of, title))
        choices = [(answer, WORDS[answer], key) for answer, key in KEYS.items()]
        while True:
            picked = choose("Answer", choices, entry.answer, first=number == 1)
            answer = next((a for a in KEYS if a == picked), None)
            if answer is None:
                return BACK
            note = "" if answer == "later" else write("Note", entry.note, "none")
            if note != BACK:
                return Reply(answer, note)

    return ask
