"""Settings of the process: Python's garbage collector, and memory of the C library; without glibc nothing
happens."""

from __future__ import annotations

import atexit
import gc
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

CIRCLES = """
from advisor import process

class Circle:
    alive = most = 0
    def __init__(self):
        self.own, Circle.alive = self, Circle.alive + 1
        Circle.most = max(Circle.most, Circle.alive)
    def __del__(self):
        Circle.alive -= 1
        if at_exit:
            print("freed at exit")

at_exit = False
process.set_up()
for _ in range({made}):
    Circle()
at_exit = True
print(Circle.most)
"""


def made_in_circles(made: int) -> list[str]:
    code = CIRCLES.replace("{made}", str(made))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ran.stdout.split("\n")


def test_circles_are_freed_neither_within_a_capture_nor_at_exit() -> None:
    assert made_in_circles(100_000) == ["100000", ""]


def test_circles_of_many_captures_are_freed() -> None:
    most, _ = made_in_circles(1_000_000)
    assert 150_000 < int(most) < 250_000


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
    before = gc.get_threshold()
    process.set_up()
    atexit.unregister(gc.freeze)
    gc.set_threshold(*before)
    process.expect(1 << 20)
    process.give_back()
