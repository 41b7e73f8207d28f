"""A command line without private data: of values only those stay that are known to be harmless.

`knowledge/redaction.yaml` lists the options whose values stay, and words that mean the same in every program.
Numbers stay too, except behind options that name a person; so do programs and scripts by their last part, and
models by their name on a hub. Everything else may be anything (a prompt, the name of a customer), and goes.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from advisor.capture.redact_text import MARK, SECRET_NAME, Scrubber, credentials
from advisor.knowledge.verb_files import redaction

#: Numbers, lists of numbers, and numbers with a unit: 8000, 1,2,4, 0.9, 8k, 24GiB, 1e-5.
_NUMBER = re.compile(r"[-+]?[\d.][\d.,:]{0,99}(?:[eE]-?\d{1,3})?(?:[kKMGTP]i?[bB]?|[mun]?s|min|[hxB%])?")
#: Of more digits in a row a number counts nothing: it is a telephone number, or the number of a card.
_LONG = re.compile(r"\d{10}")
_HUB = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
_SCRIPTS = frozenset({"py", "pyc", "sh", "so", "exe", "ipynb", "jar", "js", "ts", "rb", "pl", "lua"})
_OPTION = re.compile(r"--?[A-Za-z][\w.-]{0,79}")
_SIGNS = re.compile(r"[&|;<>()\\]{1,3}")
_VARIABLE = re.compile(r"\+{0,2}[A-Za-z_][\w.-]{0,79}")
_COUNT = re.compile(r"token-(?:num|count|threshold|budget|limit|size|len|length|ratio|id)s?$")
_PROMPT = re.compile(r"(?:^|[-.])(?:prompt|message|query|question|input|text)s?$")
_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
#: Words that are looked at before one for what announces a credential.
BEFORE = 6


def clean(words: Sequence[str], scrubber: Scrubber) -> list[str]:
    """The words of a command line, as many as before, without private values."""
    out: list[str] = []
    option, plain = "", ""  # the option before the word; the words since the last one
    for number, word in enumerate(words):
        before = words[max(number - BEFORE, 0) : number]
        if number == 0:
            out.append(scrubber.program(word))
        elif plain in _SHELLS and re.fullmatch(r"-[a-z]{0,4}c", word):
            option = "c"
            out.append(word)
            continue
        elif _is_option(word):
            option, kept = _option(word, scrubber)
            out.append(kept)
            continue
        elif option == "c" and plain in _SHELLS:
            out.append(_shell(word, scrubber))
        elif option:
            out.append(_value(option, word, before, scrubber))
        else:
            out.append(_word(word, before, scrubber))
        option, plain = "", re.split(r"[/\\]", word)[-1]
    return out


def kept_words(words: Sequence[str]) -> Iterator[str]:
    """Those of a cleaned command line that are more than a number or the name of an option."""
    known = redaction().words
    for word in words:
        value = word.partition("=")[2] if _OPTION.match(word) else word
        harmless = value.lower() in known or _is_number(value) or _SIGNS.fullmatch(value)
        if value and MARK not in value and not harmless and not _OPTION.fullmatch(value):
            yield word


def named(words: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Values of options that name people and machines, and (True) secrets: to look for anywhere."""
    option = ""
    for word in words[1:]:
        name, sign, value = word.partition("=")
        if sign and _VARIABLE.fullmatch(name.lstrip("-")):
            option, word = _bare(name), value
        elif _is_option(word):
            option = _bare(word)
            continue
        if option and word and (secret := is_secret(option, word)) is not None:
            yield word, secret
        option = ""


def is_secret(name: str, value: str) -> bool | None:
    """Whether a setting or an option of this name holds a secret; False if its value names a person or a
    machine, None if neither."""
    option = _bare(name.rpartition(":")[2])
    if _is_number(value):
        return None
    # A prompt of one word may be any word.
    if _of_secret(option) or (_PROMPT.search(option) and re.search(r"\s", value)):
        return True
    return False if _of_person(option) else None


def without_credential(word: str, before: Sequence[str]) -> str:
    """A word of a command line without a credential that its shape, name or the words before give away."""
    last = before[-1] if before else ""
    if last.startswith("-") and "=" not in last and _of_secret(_bare(last)):
        return MARK
    name, sign, value = word.partition("=")
    if sign and value and _of_secret(_bare(name)):
        return f"{name}={MARK}"
    clean = credentials(word)
    hidden = clean == word and last[1:][-1:] != "=" and before
    if hidden and not credentials(f"{' '.join(before)} {word}").endswith(f" {word}"):
        return MARK
    return clean


def _is_option(word: str) -> bool:
    return word[:1] == "-" and len(word) > 1 and not _is_number(word)


def _bare(name: str) -> str:
    return name.lstrip("-+").replace("_", "-").lower()


def _is_number(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text)) and not _LONG.search(text)


def _of_secret(option: str) -> bool:
    return bool(SECRET_NAME.search(option)) and not _COUNT.search(option)


def _of_person(option: str) -> bool:
    """`user`, `tenant-id`, `db.user-name`: a part of the name says so."""
    parts = re.split(r"[-.]", option)
    if len(parts) > 1 and parts[-1] in ("id", "name", "key"):
        parts.pop()
    people = redaction().people
    if parts[-2:-1] == ["per"]:  # nproc-per-node counts
        return False
    return parts[-1] in people or option in people


def _is_listed(option: str, names: frozenset[str]) -> bool:
    """The option itself, or the last part of a name with dots, such as `profiler-config.profiler`."""
    return option in names or option.rpartition(".")[2] in names


def _option(word: str, scrubber: Scrubber) -> tuple[str, str]:
    """The option whose value follows, empty if none does; and the word without private data."""
    known = redaction()
    name, sign, value = word.partition("=")
    if not _OPTION.fullmatch(name):
        return "", word if set(word) == {"-"} else MARK
    bare = _bare(name)
    if sign:
        return "", f"{name}={_value(bare, value, (), scrubber)}" if value else word
    if bare in known.flags:
        return "", word
    if name[1] != "-" and len(name) > 2 and not _is_listed(bare, known.single_dash | known.options):
        return "", word if _is_number(name[2:]) else f"{name[:2]}{MARK}"  # -O3, but -pPASSWORD
    return bare, word if scrubber.text(word) == word else f"--{MARK}"


def _value(option: str, value: str, before: Sequence[str], scrubber: Scrubber) -> str:
    """The value of an option, or what takes its place."""
    known = redaction()
    if _of_secret(option) or _of_person(option):
        return MARK
    if _is_number(value):
        return scrubber.text(without_credential(value, before))
    if _PROMPT.search(option):
        return MARK
    if value[:1] in ("{", "["):
        return _document(value, option, scrubber)
    if value.lower() in known.words:
        return value
    if _is_listed(option, known.options) and not re.search(r"\s", value):
        return scrubber.text(without_credential(value, before))
    return MARK


def _word(word: str, before: Sequence[str], scrubber: Scrubber) -> str:
    """A word that belongs to no option."""
    name, sign, value = word.partition("=")
    if sign and _VARIABLE.fullmatch(name):
        return f"{name}={_value(_bare(name), value, (), scrubber)}" if value else word
    if _is_number(word) or word.lower() in redaction().words:
        return scrubber.text(without_credential(word, before))
    if _SIGNS.fullmatch(word) or not word:
        return word
    if re.search(r"\s", word):
        return MARK
    # The text of a path has no folders any more; of another word it is what it was.
    stem, _, ending = word.rpartition(".")
    script = bool(stem) and ending in _SCRIPTS
    if script or _HUB.fullmatch(word) or word[:1] in ("/", "~", ".") or ":\\" in word[:3]:
        return scrubber.text(without_credential(word, before))
    return word if re.fullmatch(r"[a-z][\w.-]{0,40}==[\d.]{1,20}", word) else MARK


def _shell(line: str, scrubber: Scrubber) -> str:
    """The words of a command line in one word, as a shell takes it."""
    try:
        words = shlex.split(line)
    except ValueError:
        return MARK
    return shlex.join(["sh", *clean(["sh", *words], scrubber)[1:]][1:])


def _document(text: str, option: str, scrubber: Scrubber) -> str:
    """JSON, each value judged by its key."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return MARK
    return json.dumps(_judged(document, option, scrubber), ensure_ascii=False)


def _judged(value: Any, option: str, scrubber: Scrubber) -> Any:
    if isinstance(value, dict):
        return {
            k if _VARIABLE.fullmatch(k) and scrubber.text(k) == k else MARK: _judged(v, _bare(k), scrubber)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [_judged(v, option, scrubber) for v in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        kept = _value(option, str(value), (), scrubber)
        return value if kept == str(value) else MARK
    return _value(option, value, (), scrubber)
