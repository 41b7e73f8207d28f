"""Plain words: messages, rules, knowledge and docs avoid the idiom that readers stumble over."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
NOT = "(?:alone )?(?:(?:do|does|can)(?: not|not) |cannot )?"
RECORD = "(?:capture|export|trace|log|sample|report|side|tracer|recorder)s?"

#: Pattern -> what to write in its place.
PATTERNS = {
    rf"\b{RECORD} {NOT}tells?\b(?! .* (?:apart|from))": "the capture does not record ...",
    r"\b(?:is|are) told\b(?! (?:apart|from))": "is reported, is shown",
    r"\btold (?:by|as)\b": "inferred from, detected by",
    r"(?:'|`|\}) is no \w": "'x' is not a ...; or unknown ... 'x'",
    r"(?:'|`|\}) is none of\b": "invalid value 'x'; expected one of ...",
    r"\bthere is no (?:fact|parameter|action|part|format|what-if|entity) (?:\{|'|`)": "unknown fact x",
    r"\bwhom\b": "which",
    r"\b(?:could|can|cannot) (?:not )?look\b(?! alike)": "could not be judged",
    r"\bfound well\b": "in order",
    r"\bmend(?:ed|ing)?\b": "fix",
    r"\bthat which\b": "what, the one that",
    r"\(confidence \d": "86 % sure",
    r"\bheld against\b": "compared with",
    r"\bwithout saying so\b": "implicitly",
    r"\bnow for one of them\b": "take turns",
    r"\bkernels? of (?:its|their) own (?:read|widen|quantis|concatenat)": "separate kernels",
    r"\bnot the same thing\b": "do not measure the same workload",
    r"\bto another place of its\b|\bfrom one place of its\b": "within its own ...",
    r"\b(?:board|memory)'s\b": "the ... of the board: what owns nothing has no possessive",
    r"\bha(?:s|ve) most to do\b": "has the most work",
    r"\bin turns\b": "alternately, one after another, take turns",
    r"\blost its heads\b": "is missing its header row",
    r"\bis said to be\b": "is reported as",
    r"\b(?:seed|peers?)[- ]\d": "the title of the source, not its key in knowledge/references.yaml",
    r"\b(?-i:None|True|False|MISSING|NaN) where\b": "None if ...",
    r"\bsa(?:y|ys|id) (?:nothing|little|much|something) of\b": "about",
    r"\b(?:nothing|little) can be said\b": "nothing is known about, nothing can be concluded",
    r"(?<!to )\bspeaks? of\b": "is about, covers, shows",
    r"\bbelongs? into\b": "belongs in",
    r"\bnext to all\b": "nearly all",
    r"\bleft unsaid\b": "not reported",
    r"\bat a (?:rate|tick) of its own\b": "at a fixed rate, on a timer",
    r"\bto and fro\b": "back and forth",
    r"\bfor who(?:ever)?\b": "for anyone who",
    r"\b(?:cannot|could|can) be told\b(?! apart)": "is unknown",
    r"\blooks? (?:whether|who|which)\b": "check whether, find out which",
    r"\bwhatever (?:the|its|it|else)\b": "at any ..., with any ...",
    r"\bpays? from\b": "pays off from",
    r"\bidle that the profiler\b": "idle time that the profiler",
    r"\bsee that (?:transfers|collectives|all|the|every)\b": "make sure that",
    r"\bhave most to do\b|\bso they wait so\b": "have the most work",
    r"\bat (?:most|least) so (?:many|much|few)\b|\bso (?:many|few) at (?:most|least)\b": "at most this many",
}
#: Texts that may stay, with the reason.
ALLOWED = {"tell a slow one from a typical one": "to distinguish", "can look cheap": "to seem"}
CHECKED = {re.compile(pattern, re.I): instead for pattern, instead in PATTERNS.items()}


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of a module's comments, docstrings and other string literals, f-strings as one text."""
    source = path.read_text(encoding="utf-8")
    for number, line in enumerate(source.splitlines(), 1):
        if "#" in line:  # inside a string it is a text as well
            yield number, line[line.index("#") :]
    tree = ast.parse(source)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            texts = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
            yield node.lineno, "".join(map(str, texts))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


#: Words that no name of ours has: they say who speaks, not what a value is.
ODD_NAMES = frozenset(["said", "told", "tell", "tells", "telling", "whom", "wish", "sight", "needy", "board"])


def odd_names(source: str) -> list[tuple[int, str]]:
    """Line and name of what a module defines (functions, classes, parameters, variables) in odd words."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                pass
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case _:
                continue
        words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
        if ODD_NAMES & {word.lower() for word in words}:
            found.append((getattr(node, "lineno", 0), name))
    return found


def of_yaml(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key not in ("source", "references"):
                yield from of_yaml(value)
    elif isinstance(node, list):
        for value in node:
            yield from of_yaml(value)
    elif isinstance(node, str):
        yield node


def odd(text: str) -> list[str]:
    """What to write instead of each pattern in a text."""
    plain = " ".join(text.split())
    for kept in ALLOWED:
        plain = plain.replace(kept, "")
    return [f"'{hit[0]}': write {instead}" for p, instead in CHECKED.items() if (hit := p.search(plain))]


def modules() -> list[Path]:
    return sorted((ROOT / "advisor").rglob("*.py"))


def test_messages_docstrings_and_comments() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {problem}"
        for path in modules()
        for line, text in literals(path)
        for problem in odd(text)
    ]
    assert found == []


def test_names() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in modules()
        for line, name in odd_names(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_what_names_are_odd() -> None:
    source = "class Board: ...\ndef _said(told, retold): worth_telling = 1\nself.tell = untold = 2"
    assert [name for _, name in sorted(odd_names(source))] == [
        "Board",
        "_said",
        "told",
        "worth_telling",
        "tell",
    ]


@pytest.mark.parametrize("folder", ["rules", "knowledge"])
def test_rules_and_knowledge(folder: str) -> None:
    found = []
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for path in sorted((ROOT / folder).rglob("*.yaml")):
        for document in yaml.load_all(path.read_text(encoding="utf-8"), loader):
            found += [f"{path.relative_to(ROOT)}: {p}" for text in of_yaml(document) for p in odd(text)]
    assert found == []


def test_docs() -> None:
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    found = []
    for path in sorted(pages):
        for paragraph in path.read_text(encoding="utf-8").split("\n\n"):
            found += [f"{path.relative_to(ROOT)}: {problem}" for problem in odd(paragraph)]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "the capture does not tell its world size",
        "'x' is no report; choose from",
        "'x' is none of text, json",
        "26 checked and found well",
        "what is wrong is told at once",
        "there is no fact {}; did you mean",
        "12 rules could not look",
        "80 % of what is achievable (peers-18)",
        "that which the profiler adds",
        "LLM decode (confidence 82 %)",
        "start-up says little of the steps",
        "no other finding speaks of it",
        "for whoever reads reports",
        "look whether the data has to leave",
        "read once a step whatever the batch",
        "it ends when the late rank is mended",
    ],
)
def test_what_the_patterns_find(text: str) -> None:
    assert odd(text)


@pytest.mark.parametrize(
    "text",
    ["One rank alone cannot tell transfer from waiting", "there is no step time to predict", "is no longer"],
)
def test_plain_sentences_pass(text: str) -> None:
    assert odd(text) == []
