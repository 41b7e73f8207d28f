"""Short names of kernels: what tells one from another, in the words of its own name.

Of a template that is the function, its functor or operation and the type of its numbers; of a matrix
product the library, tile, cluster, schedule and layout. The full name stays in documents.
"""

from __future__ import annotations

import re
from functools import lru_cache

#: What only names of functions on the device look like.
_KERNEL = re.compile(
    r"^(?:void |nvjet_|cudnn_generated|std::enable_if<)|^(?=[\w:]+?::)\S*[<(]|^\w+<.*>(?:\(.*)?$"
    r"|^(?=\w*kernel)\w+\(",
    re.IGNORECASE,
)
#: The type that such a function returns, up to its name.
_ENABLED = re.compile(r"^(?:typename )?std::enable_if(?:_t)?<.*?>(?:::type)? (?=[\w:]+[<(…])")
_ANONYMOUS = re.compile(r"(?:\(anonymous namespace\)|<unnamed>|\(anonymous\)|(?<!\w)_GLOBAL__N_\w*)::")
_CAST = re.compile(r"\((?:int|bool|unsigned int|unsigned long|long|[\w:]+)\)(?=-?\d)")
_WORD = re.compile(r"[A-Za-z_][\w:]*")
#: Types of numbers, as names spell them.
_TYPES = {
    "BFloat16": "bf16",
    "__nv_bfloat16": "bf16",
    "bfloat16_t": "bf16",
    "nv_bfloat16": "bf16",
    "Half": "fp16",
    "__half": "fp16",
    "half": "fp16",
    "half_t": "fp16",
    "float": "fp32",
    "double": "fp64",
    "Float8_e4m3fn": "fp8",
    "Float8_e5m2": "fp8",
    "__nv_fp8_e4m3": "fp8",
    "long": "int64",
    "int": "int32",
    "signed char": "int8",
    "int8_t": "int8",
}
#: A name in template arguments that says what is computed: a functor, an operation, a kernel it wraps.
_OPERATION = re.compile(
    r"^(?:(?>\w*?Functor)\w*|\w+Ops?|op_\w+|Reduce(?:Add|Max|Min|Mul)|\w+_kernel_cuda|\w+_kernel(?:_impl)?"
    r"|\w+_cuda_out|(?>\w*?(?:softmax|norm|silu|gelu))\w*)",
    re.IGNORECASE,
)
#: Names around it that all of these kernels share.
_WRAPPERS = re.compile(
    r"^(?:gpu_kernel\w*|gpu_index_kernel|[AB]?UnaryFunctor|BinaryFunctor|ReduceOp|func_wrapper_t|opmath_\w+"
    r"|.*OffsetCalculator.*)$"
)
_ENDING = re.compile(r"(?:_?kernel)?(?:_impl|_cuda|_cuda_out|_out)?$|Functor$", re.IGNORECASE)
_NVJET = re.compile(r"nvjet_(?:sm\d+_)?(?P<types>[a-z]+)_(?P<rest>\d.*)")
_TILE = re.compile(r"(?<!\d)\d+x\d+(?:x\d+)?")
#: Functions that only run what their first argument names.
_GENERIC = frozenset(("device_kernel", "kentry", "Kernel", "Kernel2", "kernel"))
#: A value of this many bytes whose type does not matter.
_OPAQUE = re.compile(r"OpaqueType<(\d+)")
#: The schedule of a product that is written in every name.
_USUAL = frozenset(("v", "h", "bz"))


@lru_cache(maxsize=4096)
def kernel_label(name: str) -> str:
    """``nvjet 128x8 64x12 4x1 TNT``, ``elementwise Mul fp32``; another text than a kernel's name as it is."""
    if not _KERNEL.search(name):
        return name
    if found := _NVJET.match(name):
        parts = found["rest"].split("_")
        return " ".join(("nvjet", *(p for p in parts if p not in _USUAL)))
    if name.startswith("cudnn_generated"):
        return _of_cudnn(name)
    text = _CAST.sub("", _ANONYMOUS.sub("", _ENABLED.sub("", name.removeprefix("void "))))
    function, arguments = _split(text)
    if not arguments:
        return function
    words = [w.split("::")[-1] for w in _WORD.findall(arguments)]
    wanted = [w for w in words if _OPERATION.fullmatch(w) and not _WRAPPERS.match(w)]
    base = _ENDING.sub("", function) or function
    label = [base.removeprefix("vectorized_").removeprefix("unrolled_") if wanted else base]
    if not wanted and function in _GENERIC:
        wanted = [w for w in words if re.match(r"[A-Z]\w*[a-z]", w) and w not in _TYPES][:1]
    label += [_operation(wanted[0])] if wanted else []
    opaque = _OPAQUE.search(arguments)
    label += [f"{opaque[1]} B"] if opaque else [t for t in (_type(words, wanted[:1]),) if t]
    if not wanted:
        label += re.findall(r"(?<![\w.])\d+(?![\w.])", _WORD.sub("", arguments))[:2]
    elif "vectorized_" in function:
        label.append("vec")
    return " ".join(label)


def _split(text: str) -> tuple[str, str]:
    """The innermost name of the function, without return type, and all of its template arguments."""
    at = next((i for i, c in enumerate(text) if c in "<("), len(text))
    while (cut := text.rfind(" ", 0, at)) >= 0 and at < len(text):
        text, at = text[cut + 1 :], at - cut - 1
    own = text[:at]
    if text[at : at + 1] != "<":
        return own.rpartition("::")[2] or own, ""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == "<") - (text[i] == ">" and text[i - 1] != "-")
        if depth == 0:
            rest = text[i + 1 :]
            if rest.startswith("::"):  # a method of a class template
                inner, more = _split(rest[2:])
                return f"{own.rpartition('::')[2]}::{inner}", text[at + 1 : i] + more
            return own.rpartition("::")[2] or own, text[at + 1 : i]
    return own.rpartition("::")[2] or own, text[at + 1 :]


def _operation(word: str) -> str:
    kept = _ENDING.sub("", _ENDING.sub("", word))
    return kept.removeprefix("CUDAFunctor_").removeprefix("op_") or word


def _type(words: list[str], operation: list[str]) -> str:
    """The type behind the operation, else the first one."""
    after = words[words.index(operation[0]) :] if operation else []
    return next((_TYPES[w] for w in (*after, *words) if w in _TYPES), "")


def _of_cudnn(name: str) -> str:
    """``cudnn sdpa flash_fprop f16 16x128x64``"""
    head = name.split("_knob_")[0].removeprefix("cudnn_generated_fort_native_")
    kept = [w for w in head.split("_") if not re.fullmatch(r"sm\d+|wmma|wgmma", w)]
    return " ".join(("cudnn", *kept, *_TILE.findall(name)[:1]))
