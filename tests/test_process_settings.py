"""Settings of the process: memory of the C library; without glibc nothing happens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAP = """
from advisor import process

process.set_up()
process.expect(3 << 30)
huge = used = 0
parts = open("/proc/self/smaps").read().split("VmFlags:")
for part, after in zip(parts, parts[1:]):
    values = dict(line.split(":", 1) for line in part.splitlines() if " kB" in line)
    if "[heap]" in part and "hg" in after.splitlines()[0].split():
        huge, used = huge + int(values["Size"].split()[0]), used + int(values["Rss"].split()[0])
print(huge, used)
"""


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="a system without huge pages"
)
def test_what_is_expected_lies_in_huge_pages_and_takes_no_memory_yet() -> None:
    ran = subprocess.run([sys.executable, "-c", HEAP], capture_output=True, text=True, check=True)
    huge, used = map(int, ran.stdout.split())  # KiB
    assert huge > 0.99 * (3 << 20)  # kept, although glibc would trim as much
    assert used < 32 << 10


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor import process

    class Other:
        """Without any of glibc's own functions."""

    monkeypatch.setattr("ctypes.CDLL", lambda _: Other())
    process.set_up()
    process.expect(1 << 20)
    process.give_back()
