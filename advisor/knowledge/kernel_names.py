"""The parts of a kernel's name: the function's own name, its template arguments, its words.

Parameter lists and return types name the data that a kernel takes, not what it does with them, so neither
is part of any answer here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from advisor.model.file_content import OwnType
from advisor.numerals import read_int

_ANONYMOUS = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\(anonymous\)|_GLOBAL__N_\w{0,200})::")
#: The part after the function in names of kernels that CuTe DSL builds: its operands.
_OPERANDS = re.compile(r"_object_at_.*", re.DOTALL)
_SUFFIX = re.compile(r"(?:\s{0,9}\[clone [^\]]{0,200}\]|\.kd|\s{1,9}const|@[\w.]{1,200}){1,9}$")
#: CamelCase -> words: before a capital after a small letter, before the last capital of several
#: that a small letter follows, and before a capitalised word after a digit.
_HUMPS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[0-9])(?=[A-Z][a-z]{2})")
_NOT_WORD = re.compile(r"[^A-Za-z0-9]+")
#: One step of an Itanium mangled name. A literal (Li4E) is a value, never a name.
_MANGLED = re.compile(
    r"(?P<literal>L[a-z]n?\w*?E)|(?P<length>\d+)|(?P<open>[NIJXFLZ])|(?P<close>E\d*_?)"
    r"|(?P<other>S[tasbiod]|[ST]\d*[A-Z]?_|D[a-z]|.)",
    re.DOTALL,
)


class FunctionName(NamedTuple):
    """`own` is the qualified name, `arguments` its template arguments without parameter lists."""

    own: str
    arguments: str

    @property
    def function(self) -> str:
        """The innermost name: without namespaces and classes."""
        return self.own.rpartition("::")[2]

    @property
    def full(self) -> str:
        return f"{self.own}<{self.arguments}>" if self.arguments else self.own


def function_name(name: str) -> FunctionName:
    """The function of a kernel's name: demangled by nsys or the PyTorch profiler, mangled, or bare."""
    if name.startswith("_Z"):
        return _of_mangled(name)
    text = _without_parameters(_ANONYMOUS.sub("", _OPERANDS.sub("", name)))
    own, arguments = _split_arguments(_SUFFIX.sub("", text).strip())
    return FunctionName(own or name, arguments)


def words(text: str) -> str:
    """The words of a name in lower case, joined by underscores: FusedAddRMSNorm and
    fused_add_rms_norm are both ``fused_add_rms_norm``."""
    return _NOT_WORD.sub("_", _HUMPS.sub("_", text)).strip("_").lower()


def _without_parameters(text: str) -> str:
    """`text` without lists in parentheses right after a name, `>` or `)`; casts such as ``(int)128`` stay."""
    if "(" not in text:
        return text
    out: list[str] = []
    skipped = 0
    before = ""
    for char in text:
        if skipped:
            skipped += (char == "(") - (char == ")")
        elif char == "(" and (before.isalnum() or before in ("_", ">", ")", "]", "}")):
            skipped = 1
        else:
            out.append(char)
        before = char
    return "".join(out)


def _split_arguments(text: str) -> tuple[str, str]:
    """The name outside angle brackets, without a return type, and the text inside."""
    if "<" not in text and ">" not in text:
        return text.rpartition(" ")[2], ""
    own: list[str] = []
    inside: list[str] = []
    depth = 0
    for i, char in enumerate(text):
        if char == " " and depth == 0:  # everything so far was a return type
            own.clear()
            inside.clear()
            continue
        if char == "<":
            depth += 1
            if depth == 1:
                inside.append(", " if inside else "")
                continue
        elif char == ">" and text[i - 1] != "-":
            depth = max(depth - 1, 0)
            if depth == 0:
                continue
        (inside if depth else own).append(char)
    return "".join(own), "".join(inside)


def _of_mangled(name: str) -> FunctionName:
    """Namespaces and the function of a mangled name, and the names in its template arguments."""
    own: list[str] = []
    inside: list[str] = []
    opened: list[str] = []
    at = 2
    while at < len(name):
        step = _MANGLED.match(name, at)
        assert step  # the last alternative takes any character
        at = step.end()
        if length := step["length"]:
            if opened and opened[-1] == "L":
                continue  # the value of a literal of a named type
            size = read_int(length) or 0
            part = name[at : at + size]
            at += size
            (inside if "I" in opened else own).append(part)
        elif step["open"]:
            opened.append(step["open"])
        elif step["close"] and opened:
            opened.pop()
        if own and not opened and (length or step["close"]) and name[at : at + 1] != "I":
            break  # the rest is the return type and the parameters
    kept = [part for part in own if not part.startswith("_GLOBAL__N_")]
    return FunctionName("::".join(kept) or name, ", ".join(inside))


# --- ordered patterns of the knowledge, searched without trying (or compiling) every one of them ---
# Most patterns match only texts that contain some literal (``nvjet``, ``rms_norm``). These literals are
# indexed, so a text is searched for few of hundreds of patterns, and a pattern is compiled when it is
# first tried.

#: Letters of a literal that are indexed; patterns without a literal of this length are always
#: tried.
_GRAM = 3
#: Number of characters of a text that are searched: more than any informative name has.
LONGEST = 8_192
#: This many literals are searched for one by one.
_FEW = 20
#: At most this many alternatives (letters of a class, too) are taken with the text ahead of them.
_FEW_PARTS = 4

Literals = frozenset[str]


def search(pattern: str, text: str) -> re.Match[str] | None:
    """A pattern of the knowledge in a text, as far as texts are searched."""
    return re.search(pattern, text[:LONGEST])


class Patterns(OwnType):
    """Patterns in order, each compiled when it is first tried, in the place of ``{}`` of `around`."""

    @classmethod
    def of_data(cls, data: Any) -> Patterns:
        """Of a text or a list of texts."""
        texts = [data] if isinstance(data, str) else data
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError("expected a pattern or a list of patterns")
        return cls(texts)

    def __init__(self, texts: Iterable[str], around: str = "{}") -> None:
        self.texts = tuple(texts)
        self._around = around
        self._compiled: list[re.Pattern[str] | None] = [None] * len(self.texts)

    @cached_property
    def _index(self) -> tuple[list[int], dict[str, list[tuple[str, int]]]]:
        """Positions of the patterns without literals, and (literal, position) by how literals begin."""
        always: list[int] = []
        by_gram: dict[str, list[tuple[str, int]]] = {}
        for i, text in enumerate(self.texts):
            literals = required_literals(text)
            if not literals:
                always.append(i)
            for literal in literals:
                by_gram.setdefault(literal[:_GRAM], []).append((literal, i))
        return always, by_gram

    def first(self, text: str) -> tuple[int, re.Match[str]] | None:
        """Position and match of the first pattern that is found in the text."""
        text = text[:LONGEST]
        for i in self._candidates(text):
            if hit := self._compile(i).search(text):
                return i, hit
        return None

    def all(self, text: str) -> list[tuple[int, re.Match[str]]]:
        """Position and match of every pattern that is found in the text."""
        text = text[:LONGEST]
        return [(i, m) for i in self._candidates(text) if (m := self._compile(i).search(text))]

    def found(self, text: str) -> bool:
        """True if any pattern is found in the text."""
        return self.first(text) is not None

    __call__ = found

    def among(self, texts: tuple[str, ...]) -> list[str]:
        """The texts in which any pattern is found, in order; one search of all excludes most patterns."""
        if not texts:
            return []
        together = _lowered(texts)
        possible = range(len(self.texts)) if together is None else self._possible(together)
        searches = [self._compile(i).search for i in possible]
        return (
            [text for text in texts if any(search(text[:LONGEST]) for search in searches)] if searches else []
        )

    def _compile(self, i: int) -> re.Pattern[str]:
        if (done := self._compiled[i]) is None:
            done = self._compiled[i] = re.compile(self._around.replace("{}", self.texts[i]))
        return done

    def _candidates(self, text: str) -> Iterable[int]:
        """Positions of the patterns that may be found, in order."""
        if not text.isascii():  # some letters outside ASCII equal an ASCII letter under (?i)
            return range(len(self.texts))
        return self._possible(text.lower())

    def _possible(self, lower: str) -> list[int]:
        always, by_gram = self._index
        grams: Iterable[str] = by_gram
        if len(by_gram) > _FEW:
            grams = by_gram.keys() & _grams(lower)
        found = set(always)
        for gram in grams:
            for literal, i in by_gram[gram]:
                if literal in lower:
                    found.add(i)
        return sorted(found)


@lru_cache(maxsize=4)
def _grams(lower: str) -> frozenset[str]:
    return frozenset(lower[i : i + _GRAM] for i in range(len(lower) - _GRAM + 1))


@lru_cache(maxsize=4)
def _lowered(texts: tuple[str, ...]) -> str | None:
    """The texts as one in lower case; None if letters outside ASCII may equal others."""
    together = "\n".join(texts)
    return together.lower() if together.isascii() else None


def required_literals(text: str) -> Literals:
    """Lower-case texts of three characters or more, at least one of which occurs in every text that the
    pattern matches; empty if there are none. The pattern must be valid."""
    if text.isidentifier() and len(text) >= _GRAM and text.isascii():  # half of them are a word
        return Literals((text.lower(),))
    if not text.isascii() or _OTHER.search(text):
        return Literals()
    return _literals([_Group(_alternatives(_PART.finditer(text)))])


class _Group(NamedTuple):
    """Alternatives, of which one is matched: each its parts in order."""

    parts: list[list[Any]]


#: Comments, conditions, names of groups and blanks that mean nothing: of such a pattern no literal is taken.
_OTHER = re.compile(r"\(\?(?!P<|>|<?[=!]|[a-wyz]+\)|[a-wyz]*(?:-[a-z]+)?:)")
#: One part of a pattern; several letters at once where no repetition follows.
_PART = re.compile(
    r"""
    (?P<flags> \(\?[a-z]+\) )
    | (?P<around> \(\?<?[=!] )
    | (?P<open> \( (?: \?(?: P<\w+> | > | [a-z]*(?:-[a-z]+)?: ) )? )
    | (?P<close> \) )
    | (?P<bar> \| )
    | (?P<repeat> (?: [*+?] | \{ (?P<least>\d*) (?:,\d*)? (?<!\{) \} ) [?+]? )
    | \[ (?P<set> \^?\]? (?: \\. | [^\]\\] )*+ ) \]
    | \\ (?: x.. | u.{4} | U.{8} | N\{[^}]*\} | \d{1,3} | [a-zA-Z] | (?P<escaped>.) )
    | (?P<letters> [^][()|\\.^$*+?{}]+ (?![*+?{]) | [^.^$] )
    | .
    """,
    re.DOTALL | re.VERBOSE,
)


def _alternatives(parts: Iterator[re.Match[str]]) -> list[list[Any]]:
    """The alternatives up to the end of a group, or of the pattern."""
    found: list[list[Any]] = [[]]
    for part in parts:
        here, kind = found[-1], part.lastgroup
        if kind == "close":
            break
        if kind == "bar":
            found.append([])
        elif kind == "open":
            here.append(_Group(_alternatives(parts)))
        elif kind == "around":
            _alternatives(parts)
            here.append(None)
        elif kind == "repeat":
            required = part["repeat"][0] == "+" or int(part["least"] or 0)
            here[-1] = _Group([[here[-1]]]) if required else None
        elif kind == "set":
            letters = part["set"].replace("\\]", "]")
            plain = len(letters) <= _FEW_PARTS and not set(letters) & set("^-\\")
            here.append(_Group([[letter] for letter in letters]) if plain else None)
        elif kind != "flags":
            here.append(part["escaped"] or part["letters"])
    return found


def _literals(items: Sequence[Any]) -> Literals:
    """The same for a sequence of parts. It drops a literal in case of doubt."""
    best, run = Literals(), ""
    for item in (*items, None):
        if isinstance(item, str):
            run += item
            continue
        if len(run) >= _GRAM:
            best = _better(best, Literals((run.lower(),)))
        parts = item.parts if item is not None else []
        ahead = run if len(parts) <= _FEW_PARTS else ""
        of_each = [_literals((ahead, *part)) for part in parts]
        if of_each and all(of_each):
            best = _better(best, Literals().union(*of_each))
        run = ""
    return best


def _better(one: Literals, other: Literals) -> Literals:
    """The literals of which the shortest is longer."""
    shortest = min(map(len, other), default=0)
    return other if shortest >= _GRAM and shortest > min(map(len, one), default=0) else one
