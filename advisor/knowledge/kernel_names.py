"""The parts of a kernel's name: the function's own name, its template arguments, its words.

Parameter lists and return types say which data a kernel takes, not what it does with them, so
neither is part of any answer here.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_ANONYMOUS = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\(anonymous\)|_GLOBAL__N_\w*)::")
#: What follows the function in names of kernels that CuTe DSL builds: its operands.
_OPERANDS = re.compile(r"_object_at_.*", re.DOTALL)
_SUFFIX = re.compile(r"(?:\s*\[clone [^\]]*\]|\.kd|\s+const|@[\w.]+)+$")
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
    """`own` is the qualified name without template arguments, `arguments` are these, without the
    parameter lists of functions among them."""

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
    """The function that a kernel's name names, in any spelling: demangled as nsys or the PyTorch
    profiler do it, mangled, or a bare name."""
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
    """`text` without parameter lists: what stands in parentheses right after a name, a template
    argument list or another such list. Casts such as ``(int)128`` stay."""
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
    """The name outside angle brackets, without a return type, and what stands inside."""
    own: list[str] = []
    inside: list[str] = []
    depth = 0
    for i, char in enumerate(text):
        if char == " " and depth == 0:  # so far it was a return type
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
            part = name[at : at + int(length)]
            at += int(length)
            (inside if "I" in opened else own).append(part)
        elif step["open"]:
            opened.append(step["open"])
        elif step["close"] and opened:
            opened.pop()
        if own and not opened and (length or step["close"]) and name[at : at + 1] != "I":
            break  # what follows are the return type and the parameters
    kept = [part for part in own if not part.startswith("_GLOBAL__N_")]
    return FunctionName("::".join(kept) or name, ", ".join(inside))
