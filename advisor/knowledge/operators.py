"""`knowledge/operators.yaml`: what operators of PyTorch compute and move, by declared formulas."""

from __future__ import annotations

import ast
import json
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from msgspec import field
from msgspec.structs import replace

from advisor.knowledge.files import shipped
from advisor.knowledge.shapes import Data, Family, File, Precision, Text
from advisor.model.file_content import Constraint

Number = int | float

_OPERATIONS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
        ast.FloorDiv: operator.floordiv,
        ast.Pow: operator.pow,
    }
)
_FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType({"min": min, "max": max})
#: Names of the elements of an argument and of the bytes of one.
_OF_ARGUMENT = re.compile(r"[ne]\d+$")
#: Largest exponent of a formula: beyond it there are no tokens.
_MAX_POWER = 1e7


@cache
def parsed(formula: str) -> ast.expr:
    """The expression of a formula. Raises ValueError for anything but numbers, names, + - * / // **, min,
    max."""
    try:
        tree = ast.parse(formula, mode="eval").body
    except SyntaxError as fault:
        raise ValueError(f"bad formula {formula!r}: {fault.msg}") from fault
    for node in ast.walk(tree):
        known = isinstance(node, ast.BinOp | ast.Name | ast.Load | ast.operator)
        known |= isinstance(node, ast.Constant) and type(node.value) in (int, float)
        if isinstance(node, ast.Call):
            known = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and not node.keywords
        if isinstance(node, ast.BinOp):
            known = type(node.op) in _OPERATIONS
        if not known:
            raise ValueError(f"bad formula {formula!r}: expected numbers, names, + - * / // **, min or max")
    return tree


def evaluated(tree: ast.expr, names: Mapping[str, Number]) -> Number:
    """The value of a formula. Raises KeyError for an unknown name, ArithmeticError if it has no value."""
    if isinstance(tree, ast.Constant):
        return tree.value  # type: ignore[return-value]
    if isinstance(tree, ast.Name):
        return names[tree.id]
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        value: Number = _FUNCTIONS[tree.func.id](*(evaluated(a, names) for a in tree.args))
        return value
    assert isinstance(tree, ast.BinOp)
    left, right = evaluated(tree.left, names), evaluated(tree.right, names)
    if isinstance(tree.op, ast.Pow) and abs(right) > _MAX_POWER:
        raise OverflowError("the exponent is too large")
    result: Number = _OPERATIONS[type(tree.op)](left, right)
    return result


def _is_formula(text: str) -> str:
    parsed(text)
    return text


Formula = Annotated[str, Constraint(check=_is_formula, max_length=160)]


#: Names of numbers and the position of their argument.
Values = dict[Text, Annotated[int, Constraint(ge=0, le=40)]]


class OtherCall(Data, frozen=True, kw_only=True):
    """Operators that have their numbers in other places."""

    names: Annotated[list[Text], Constraint(min_length=1)]
    values: Values


class OperatorEntry(Data, frozen=True, kw_only=True):
    """One way in which some operators are called: names of dimensions and numbers, and what they come to."""

    names: Annotated[list[Text], Constraint(min_length=1)]
    family: Family
    matrix: bool = False
    sizes: list[str]
    values: Values = field(default_factory=dict)
    also: list[OtherCall] = field(default_factory=list)
    where: dict[Text, Formula] = field(default_factory=dict)
    flop: Formula
    bytes: Formula | None = None
    type: Annotated[int, Constraint(ge=0, le=40)] = 0
    precision: Precision | None = None
    source: Text

    def __post_init__(self) -> None:
        known = {"out", "eo", "all_bytes", *_FUNCTIONS}
        known |= {name.removeprefix("*") for text in self.sizes for name in text.split()}
        known |= {name for text in self.values for name in text.split()}
        if any(set(other.values) != set(self.values) for other in self.also):
            raise ValueError("`also` names other numbers than `values`")
        for name, formula in [*self.where.items(), ("flop", self.flop), ("bytes", self.bytes or "0")]:
            used = {n.id for n in ast.walk(parsed(formula)) if isinstance(n, ast.Name)}
            unknown = sorted(n for n in used - known if not _OF_ARGUMENT.match(n))
            if unknown:
                raise ValueError(f"`{name}` has an unknown name '{unknown[0]}'")
            known.add(name)


class OperatorFile(File, frozen=True, kw_only=True):
    operators: Annotated[list[OperatorEntry], Constraint(min_length=1)]


@cache
def operator_entries() -> Mapping[str, tuple[OperatorEntry, ...]]:
    """The entries of each operator, in the order of the file."""
    found: dict[str, list[OperatorEntry]] = {}
    for entry in shipped("operators.yaml", OperatorFile).operators:
        for name in entry.names:
            found.setdefault(name, []).append(entry)
        for other in entry.also:
            for name in other.names:
                found.setdefault(name, []).append(replace(entry, values=other.values))
    return MappingProxyType({name: tuple(entries) for name, entries in found.items()})


@cache
def operators_with_values() -> frozenset[str]:
    """Operators whose numbers (`Concrete Inputs`) are needed."""
    return frozenset(n for n, entries in operator_entries().items() if any(e.values for e in entries))


#: Bytes of an element by its type in a trace, in lower case, and the precision of products with it.
_TYPES: Mapping[str, tuple[float, Precision | None]] = MappingProxyType(
    {
        "c10::bfloat16": (2, "bf16"),
        "c10::half": (2, "fp16"),
        "float": (4, "fp32"),
        "double": (8, None),
        "c10::float8_e4m3fn": (1, "fp8"),
        "c10::float8_e5m2": (1, "fp8"),
        "c10::float8_e4m3fnuz": (1, "fp8"),
        "c10::float8_e5m2fnuz": (1, "fp8"),
        "c10::float8_e8m0fnu": (1, None),
        "c10::float4_e2m1fn_x2": (1, "fp4"),
        "signed char": (1, "int8"),
        "char": (1, "int8"),
        "unsigned char": (1, None),
        "bool": (1, None),
        "short int": (2, None),
        "int": (4, None),
        "long int": (8, None),
        "long": (8, None),
        "c10::complex<float>": (8, None),
        "c10::complex<double>": (16, None),
    }
)


class OperatorWork(NamedTuple):
    """What one call does at least: operations, bytes (None: unknown), and the precision of its operands
    (None: unknown or without a rate). `matrix`: tensor cores do it. `shape`: the sizes in words."""

    family: Family
    matrix: bool
    flop: float
    bytes: float | None
    precision: Precision | None
    shape: str


class _Call(NamedTuple):
    """The recorded arguments: sizes (of lists of tensors one for each), types, strides and numbers."""

    sizes: Sequence[Any]
    types: Sequence[Any]
    strides: Sequence[Any]
    numbers: Sequence[Any]


def recorded_parts(recorded: str) -> list[Any]:
    """The lists that stand one behind the other in what a trace keeps of the arguments of a call: sizes,
    types, and for some calls strides and numbers. Raises ValueError."""
    decoder, at, found = json.JSONDecoder(), 0, []
    while at < len(recorded):
        part, at = decoder.raw_decode(recorded, at)
        found.append(part)
        at += recorded[at : at + 1] == " "
    return found


@cache
def operator_work(name: str, recorded: str) -> OperatorWork | None:
    """The work of an operator (``aten::addmm``) with recorded arguments; None for operators that are not
    listed, and for sizes that do not fit."""
    entries = operator_entries().get(name)
    if not entries:
        return None
    try:
        call = _Call(*[*recorded_parts(recorded), [], [], [], []][:4])
    except (ValueError, TypeError):
        return None
    for entry in entries:
        try:
            work = _work(entry, call)
        except (KeyError, IndexError, TypeError, ValueError, ArithmeticError, SyntaxError):
            continue
        if work is not None:
            return work
    return None


def _work(entry: OperatorEntry, call: _Call) -> OperatorWork | None:
    names: dict[str, Number] = {}
    for text, size in zip(entry.sizes, call.sizes, strict=False):
        if text and not _name_dimensions(text.split(), size, names):
            return None
    if len(entry.sizes) > len(call.sizes):
        return None
    for text, at in entry.values.items():
        _name_numbers(text.split(), call.numbers[at], names)
    tensors = _tensors(call)
    for i in range(len(call.sizes)):
        names[f"n{i}"] = names[f"e{i}"] = 0
    for i, (elements, _, width, _) in tensors.items():
        names[f"n{i}"] = elements
        if width is None:
            del names[f"e{i}"]
        else:
            names[f"e{i}"] = width
    names["out"] = _broadcast([size for _, size, _, wrapped in tensors.values() if not wrapped])
    widths = [width for _, _, width, wrapped in tensors.values() if not wrapped]
    if all(width is not None for width in widths) and widths:
        names["eo"] = max(width for width in widths if width is not None)
        names["all_bytes"] = sum(n * (width or 0) for n, _, width, wrapped in tensors.values() if not wrapped)
    for name, formula in entry.where.items():
        names[name] = evaluated(parsed(formula), names)
    flop = evaluated(parsed(entry.flop), names)
    moved = _bytes(entry, names)
    if not math.isfinite(flop) or flop < 0 or not (flop or moved):
        return None
    precision = entry.precision or _precision(call.types, entry.type)
    return OperatorWork(entry.family, entry.matrix, flop, moved, precision, _shape(entry, call))


def _bytes(entry: OperatorEntry, names: Mapping[str, Number]) -> float | None:
    """None if a type is not recorded."""
    if entry.bytes is None:
        return None
    try:
        moved = evaluated(parsed(entry.bytes), names)
    except KeyError:
        return None
    return moved if math.isfinite(moved) and moved > 0 else None


def _name_dimensions(texts: list[str], size: Any, names: dict[str, Number]) -> bool:
    """Take the dimensions of one argument over into `names`; False if they do not fit."""
    size = [int(n) for n in size]
    many = next((i for i, text in enumerate(texts) if text.startswith("*")), None)
    if many is not None:
        end = len(size) - (len(texts) - many - 1)
        if end < many or not size:
            return False
        size = [*size[:many], math.prod(size[many:end]), *size[end:]]
    if len(size) != len(texts) or min(size, default=0) < 1:
        return False
    return all(names.setdefault(t.removeprefix("*"), n) == n for t, n in zip(texts, size, strict=True))


def _name_numbers(texts: list[str], recorded: Any, names: dict[str, Number]) -> None:
    """Take numbers over into `names`: of a list one for each, of one number the same for all. Raises
    ValueError where they do not fit."""
    value = ast.literal_eval(str(recorded)) if recorded != "" else None
    numbers = [float(v) if isinstance(v, float) else int(v) for v in _listed(value)]
    if len(numbers) == 1:
        numbers *= len(texts)
    if len(numbers) != len(texts):
        raise ValueError("another number of values")
    names.update(zip(texts, numbers, strict=True))


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _tensors(call: _Call) -> dict[int, tuple[int, list[int], float | None, bool]]:
    """By position of the argument: elements, sizes, bytes of an element (None: unknown), and whether it is a
    number that only PyTorch makes a tensor of. A list of tensors is one tensor of all their elements."""
    found: dict[int, tuple[int, list[int], float | None, bool]] = {}
    for i, size in enumerate(call.sizes):
        kind = str(call.types[i]).lower() if i < len(call.types) else None
        if kind in ("", "scalar", "scalarlist") or not isinstance(size, list):
            continue
        if size and all(isinstance(s, list) for s in size):
            width = None if kind is None else 0.0
            found[i] = sum(math.prod(map(int, s)) for s in size), [], width, True
            continue
        width = None if kind is None else _TYPES.get(kind, (None, None))[0]
        stride = call.strides[i] if i < len(call.strides) else []
        dims = [int(n) for n in size]
        held = [1 if j < len(stride) and stride[j] == 0 else n for j, n in enumerate(dims)]
        found[i] = math.prod(held), dims, width, not dims
    return found


def _broadcast(sizes: Sequence[Sequence[int]]) -> int:
    """The elements of what tensors of these sizes give when they are broadcast against each other."""
    rank = max(map(len, sizes), default=0)
    padded = ([1] * (rank - len(size)) + list(size) for size in sizes)
    return math.prod(max(dims) for dims in zip(*padded, strict=True)) if rank else 0


def _precision(types: Sequence[Any], at: int) -> Precision | None:
    kind = str(types[at]).lower() if at < len(types) else ""
    return _TYPES.get(kind, (None, None))[1]


def _shape(entry: OperatorEntry, call: _Call) -> str:
    """``8944x1024, 1024x2816``: the sizes that count, else those of all tensors."""
    counted = [s for text, s in zip(entry.sizes, call.sizes, strict=False) if text]
    sizes = counted or [s for s in call.sizes if s]
    flat = [part for size in sizes for part in (size if size and isinstance(size[0], list) else [size])]
    words = ["x".join(map(str, size)) for size in flat[:4]]
    return ", ".join(words) + (f" and {len(flat) - 4} more" if len(flat) > 4 else "")
