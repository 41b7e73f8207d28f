"""Bytes that grow towards code not reached yet: coverage-guided fuzzing with atheris, where that installs.

usage: python benchmarks/fuzz_bytes.py KIND [-max_total_time=600] [-runs=N] [CORPUS]

KIND is a reader (see `SEEDS`); the rest are options and folders of libFuzzer. Each input is run as a command
line in this process; what `fuzz.py` calls a failure ends the run, and the input is kept as `crash-...` in the
current folder.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

#: Kind -> the valid input that it begins with, and the command line that reads it.
SEEDS = {
    "nsys": ("good.sqlite", "{}"),
    "kineto": ("seed.json", "{}"),
    "log": ("seed.csv", "{}"),
    "dmon": ("seed.dmon", "{}"),
    "saved": ("saved.json", "compare {} saved.json"),
    "workbook": ("review.xlsx", "review import {}"),
    "report": ("bench.json", "moe {} bench.json"),
    "answers": ("answers.yaml", "checklist --no-input --answers {}"),
    "rule": ("rule.yaml", "rules check own"),
    "settings": ("advisor.toml", "good.sqlite"),
}


def fuzz(kind: str, options: list[str], folder: Path) -> None:
    """Runs until libFuzzer ends the process."""
    seed, line = SEEDS[kind]
    name = {"rule": "own/rule.yaml", "settings": seed}.get(kind, f"t{Path(seed).suffix}")
    args = line.format(name).split()
    with atheris.instrument_imports(include=["advisor"]):  # most modules are imported where they are needed
        from benchmarks.fuzz import judged
        from benchmarks.fuzz_inputs import make_seeds, quietly

        make_seeds(folder)
        (folder / "own").mkdir()
        (folder / "corpus").mkdir()
        shutil.copy(folder / seed, folder / "corpus")
        if name != seed:
            shutil.copy(folder / seed, folder / name)
        quietly(args, folder)

    def run(data: bytes) -> None:
        (folder / name).write_bytes(data)
        if wrong := judged(*quietly(args, folder)):
            raise RuntimeError(wrong)

    atheris.Setup([sys.argv[0], *options, str(folder / "corpus")], run)
    atheris.Fuzz()


def main() -> int:
    kind, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        pid = os.fork()
        if pid == 0:
            fuzz(kind, options, Path(folder))
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    sys.exit(main())
