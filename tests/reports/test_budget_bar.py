from __future__ import annotations

import ast
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from advisor.model import parts
from advisor.model.facts import Table
from advisor.model.findings import Budget, Diagnosis, Part
from advisor.model.parts import PARTS
from advisor.reports.budget_bar import cells, signs
from advisor.reports.diagnosis_blocks import TextOptions
from tests.reports.fixture import DIAGNOSIS, budget, plain

PART_SETS = st.lists(st.floats(0, 1), min_size=1, max_size=20).filter(lambda s: sum(s) > 0)


@given(PART_SETS, st.integers(10, 120))
def test_cells_fill_the_bar(raw: list[float], width: int) -> None:
    shares = [s / sum(raw) for s in raw]
    assert sum(cells(shares, width)) == width


def test_signs_are_distinct_and_stable() -> None:
    names = [*PARTS, "new_part", "another part"]
    given_signs = [s for s, _ in signs(names, "█").values()]
    assert len(set(given_signs)) == len(names)
    assert signs(["launch_call"], "█")["launch_call"][0] == "L"


def bars(diagnosis: Diagnosis) -> list[str]:
    shown = plain(diagnosis, TextOptions(verbosity=1))
    return [line for line in shown.splitlines() if "███" in line]


def test_one_bar_a_device_of_equal_length() -> None:
    drawn = bars(DIAGNOSIS)[:2]
    assert [line.split()[1] for line in drawn] == ["0", "1"]
    assert len({len(line) for line in drawn}) == 1
    assert "L" in drawn[0]
    assert "h" in drawn[0]


def test_every_sign_of_the_short_bar_is_named() -> None:
    """Small parts are drawn together, as others."""
    small = Part(part="gc", ms=1.0, share=0.01), Part(part="os", ms=2.0, share=0.02)
    large = Part(part="compute", ms=77.0, share=0.77), Part(part="sync", ms=20.0, share=0.2)
    for some in ((*large, *small), (large[0], Part(part="sync", ms=23.0, share=0.23))):
        one = Budget(device=0, window_ms=100.0, parts=some)
        lines = plain(DIAGNOSIS.replaced(budget=(one,)), TextOptions()).splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("  budget"))
        drawn = set(lines[at].split()[1])
        assert drawn == {entry.split()[0] for entry in lines[at + 1].split(", ")}
        assert ("others" in lines[at + 1]) == (len(some) > 2)


def test_many_devices_are_summarised() -> None:
    many: tuple[Budget, ...] = tuple(budget(i, sync=0.01 * (i + 1)) for i in range(16))
    short = plain(DIAGNOSIS.replaced(budget=many), TextOptions())
    assert [line[:11] for line in short.splitlines() if "███" in line] == ["  device 0 ", "  device 15"]
    shown = plain(DIAGNOSIS.replaced(budget=many), TextOptions(verbosity=1))
    assert "median" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_an_empty_window_does_not_divide_by_zero() -> None:
    empty = Budget(device=0, window_ms=0.0, parts=())
    of = DIAGNOSIS.replaced(budget=(empty,))
    assert "  budget" in plain(of, TextOptions())
    assert "device 0" in plain(of, TextOptions(verbosity=1))


def test_parts_differ_by_sign_by_colour_of_the_workbook_and_by_pattern_on_the_page() -> None:
    shown = list(PARTS.values())
    for bar in ("█", "C"):
        assert len({sign.lower() for sign, _ in signs(list(PARTS), bar).values()}) == len(PARTS)
        assert all(sign in (bar, PARTS[p].sign) for p, (sign, _) in signs(list(PARTS), bar).items())
    for looks in ([p.sign for p in shown], [p.plain for p in shown], [(p.colour, p.pattern) for p in shown]):
        assert len(set(looks)) == len(PARTS)


def test_the_words_of_the_parts_stand_in_one_table() -> None:
    """A trace of PyTorch has events called like one of them."""
    words = {spec.words for spec in PARTS.values() if " " in spec.words} - {"Python GC"}
    table = Path(parts.__file__)
    for path in set(table.parents[1].rglob("*.py")) - {table}:
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        assert not texts & words, path


def test_the_bars_of_a_job_show_the_late_rank() -> None:
    """Rank 1 computes while the others wait for it; it is neither the first nor the last of them."""
    of = {0: 0.5, 1: 0.9, 2: 0.55, 3: 0.5}
    budgets = tuple(
        Budget(
            device=0,
            rank=rank,
            window_ms=100.0,
            parts=(
                Part(part="compute", ms=100 * share, share=share),
                Part(part="communication", ms=100 - 100 * share, share=1 - share),
            ),
        )
        for rank, share in of.items()
    )
    rows = tuple((rank, 0.95 if rank == 1 else 0.01) for rank in of)
    table = Table(title="ranks", columns=("rank", "causes:ratio"), rows=rows)
    diagnosis = DIAGNOSIS.replaced(budget=budgets, tables={"ranks": table})
    drawn = [
        line.split()[1] for line in plain(diagnosis, TextOptions()).splitlines() if line.startswith("  rank ")
    ]
    assert drawn == ["1", "3"]
