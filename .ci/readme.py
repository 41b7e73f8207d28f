"""Prints the Nth command of the README that uses the environment `.venv`: `python .ci/readme.py N`."""

import re
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def commands() -> list[str]:
    """The commands as printed, in their order."""
    blocks: list[str] = re.findall(r"```sh\n(.+?)\n```", README.read_text(encoding="utf-8"), re.DOTALL)
    return [block for block in blocks if ".venv/bin/" in block]


if __name__ == "__main__":
    print(commands()[int(sys.argv[1]) - 1])
