"""Known vulnerabilities of the releases in .ci/lock.txt, by `pip-audit` of .ci/lock-audit.txt.

Exit code 1 where there is one. Where no index of advisories can be reached, or it knows none of the
releases, nothing is known: one line says so, and the exit code is 0.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
#: For each of the two commands.
TIMEOUT_S = 180


def verdict(report: dict[str, Any]) -> tuple[int, str]:
    """Exit code, and what a report of `pip-audit --format json` says."""
    known = [d for d in report["dependencies"] if "vulns" in d]
    found = [(d, v) for d in known for v in d["vulns"]]
    if not known:
        skipped = [d["skip_reason"] for d in report["dependencies"] if "skip_reason" in d]
        return 0, f"not audited: {skipped[0] if skipped else 'nothing to look up'}"
    lines = [
        f"{d['name']} {d['version']}: {v['id']}, mended in {', '.join(v['fix_versions']) or 'no release yet'}"
        for d, v in found
    ]
    of = len(report["dependencies"])
    count = f"{len(found)} known vulnerabilities in {len(known)} of {of} releases looked up"
    return (1 if found else 0), "\n".join([*lines, count])


def audited(folder: Path) -> dict[str, Any] | str:
    """The report, or the reason why there is none."""
    venv.create(folder, with_pip=True)
    python = next(p for p in (folder / "bin" / "python", folder / "Scripts" / "python.exe") if p.exists())

    def run(module: str, *words: str, lock: str) -> subprocess.CompletedProcess[str]:
        command = [python, "-m", module, *words, "--require-hashes", "-r", HERE / lock]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)

    try:
        done = run("pip", "install", "--quiet", "--no-deps", lock="lock-audit.txt")
        if done.returncode == 0:
            done = run(
                "pip_audit", "--disable-pip", "--progress-spinner=off", "--format=json", lock="lock.txt"
            )
            if done.stdout.startswith("{"):
                return dict(json.loads(done.stdout))
    except subprocess.TimeoutExpired:
        return f"no answer within {TIMEOUT_S} s"
    return (done.stderr.strip().splitlines() or ["pip-audit printed nothing"])[-1]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = audited(Path(folder))
    code, text = (0, f"not audited: {report}") if isinstance(report, str) else verdict(report)
    print(text)
    return code


if __name__ == "__main__":
    sys.exit(main())
