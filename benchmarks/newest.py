"""What the newest releases changed for the knowledge: options that are gone, kernel names that nobody knows.

    python benchmarks/newest.py [ENGINE...] [--downloads FOLDER] [-o REPORT]

Runs options.py and names.py with the newest release of every engine of the package index and of the libraries
whose kernels they run, and writes a report in Markdown. Exit code 1 where a release is newer than the one in
knowledge/verified.yaml and lacks an option or cannot be downloaded, or where more kernel names are unknown
than `MOST_UNKNOWN`.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

import names
import options
from verification import verified

#: Packages whose kernel names are counted, and the share of them that may be unknown.
MOST_UNKNOWN = {"flashinfer-python": 0.03, "vllm": 0.07, "sglang": 0.07}
_VERSION = re.compile(r"\((\d[\w.+!-]*)\)")
_SHARE = re.compile(r"\((\d+)%\)")


def newest(package: str) -> str | None:
    """The newest release in the package index; None where it has none."""
    command = [sys.executable, "-m", "pip", "index", "versions", package]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    found = _VERSION.search(answer.stdout)
    return found[1] if found else None


def printed(run: object, argv: Sequence[str]) -> tuple[int, str]:
    """The exit code of a script's ``main`` and what it printed; 1 where a release cannot be downloaded."""
    out = io.StringIO()
    try:
        with redirect_stdout(out):
            code = run(argv)  # type: ignore[operator]
    except subprocess.CalledProcessError as error:
        return 1, f"{error.cmd[-1]} cannot be downloaded"
    return code, out.getvalue().rstrip()


def of_options(engine: str, downloads: str) -> tuple[bool, str]:
    """Whether the newest release lacks something, and what options.py says of it."""
    version = newest(options.PACKAGES.get(engine, engine))
    read = verified()[engine].releases
    if version is None or version in read:
        return False, f"{engine}: {read[-1]} is the newest release"
    code, text = printed(options.main, [engine, version, "--downloads", downloads])
    return code != 0, text


def of_names(package: str, downloads: str) -> tuple[bool, str]:
    """Whether too many kernel names of the newest release are unknown, and which those are."""
    version = newest(package)
    if version is None:
        return False, f"{package}: no release found"
    _, text = printed(names.main, [f"{package}=={version}", "--list", "--downloads", downloads])
    share = _SHARE.search(text)
    return share is None or int(share[1]) / 100 > MOST_UNKNOWN[package], text


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Check the knowledge against the newest releases.")
    parser.add_argument("engines", nargs="*", metavar="ENGINE")
    parser.add_argument("--downloads", default="/tmp/advisor-options")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args(argv)
    in_index = [e for e, told in verified().items() if told.releases and told.source is None]
    parts, changed = [], False
    for engine in given.engines or in_index:
        worse, text = of_options(engine, given.downloads)
        changed |= worse
        parts.append(f"### Options of {engine}\n\n```\n{text}\n```\n")
    for package in MOST_UNKNOWN if not given.engines else [e for e in given.engines if e in MOST_UNKNOWN]:
        worse, text = of_names(package, given.downloads)
        changed |= worse
        parts.append(f"### Kernel names of {package}\n\n```\n{text}\n```\n")
    report = "\n".join(parts)
    if given.output:
        given.output.write_text(report, "utf-8")
    print(report)
    return int(changed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
