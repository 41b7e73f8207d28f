"""How many kernel names of released packages knowledge/kernel_families.yaml knows.

    python benchmarks/names.py [--list] PACKAGE==VERSION|WHEEL|FOLDER...

Names are those of Triton functions (``@triton.jit``) and of CUDA kernels (``__global__``) in the
sources; one that only the catch-all takes (`other`) counts as not known, whether or not its own name
settles what it does. `--list` prints those.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from packages import download, files

from advisor.knowledge.files import kernel_families

CUDA = (".cu", ".cuh", ".h", ".hpp", ".inl", ".jinja")
#: What stands between ``void`` and the name, with arguments that may hold parentheses three deep.
_ATTRIBUTE = r"\w*(?:__|LAUNCH_BOUNDS)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\s*"
#: A name in capitals alone is a macro, and what it stands for is not there to be read.
_GLOBAL = re.compile(
    rf"__global__[\w\s]*?\bvoid\s+(?:{_ATTRIBUTE})*(?!\w*(?:__|LAUNCH_BOUNDS)\s*\()(?![A-Z][A-Z0-9_]*\s*\()([A-Za-z_]\w*)\s*\("
)


def triton_functions(text: str) -> Iterator[str]:
    """Functions that Triton compiles and that are called as kernels are: their names say so."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and "kernel" in node.name:
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            if "triton" in decorators or "jit" in decorators:
                yield node.name


def kernel_names(source: Path) -> set[str]:
    found: set[str] = set()
    for name, content in files(source, (".py", *CUDA)):
        if name.endswith(".py"):
            if b"triton" in content:
                found.update(triton_functions(content.decode("utf-8", "replace")))
        elif b"__global__" in content:
            found.update(_GLOBAL.findall(content.decode("utf-8", "replace")))
    return found


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Coverage of kernel names in released packages.")
    parser.add_argument("packages", nargs="+", metavar="PACKAGE")
    parser.add_argument("--list", action="store_true", help="print the names that are not known")
    parser.add_argument("--downloads", type=Path, default=Path("/tmp/advisor-options"))
    given = parser.parse_args(argv)
    for package in given.packages:
        source = Path(package)
        if not source.exists():
            source = download(*package.split("=="), given.downloads)
        names = sorted(kernel_names(source))
        families = Counter(k.family for k in kernel_families().classify(names))
        unknown = families.pop("other", 0)
        print(f"{package}: {len(names)} names, {unknown} not known ({unknown / max(len(names), 1):.0%})")
        print("  " + ", ".join(f"{family} {count}" for family, count in families.most_common()))
        if given.list:
            known = kernel_families().classify(names)
            print(*(f"  {n}" for n, k in zip(names, known, strict=True) if k.family == "other"), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
