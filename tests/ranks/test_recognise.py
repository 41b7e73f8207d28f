"""Which captures are the ranks of one job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.jobs.recognise import rank_in_name, recognise
from advisor.model.capture import Capture


def looks(**known: tuple[int | None, int | None]) -> Callable[[Path], Capture]:
    """Metadata by the stem of the name: (rank, world size)."""

    def look(path: Path) -> Capture:
        rank, size = known.get(path.stem, (None, None))
        return Capture(path=str(path), format="nsys-sqlite", rank=rank, world_size=size)

    return look


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank0.sqlite", 0),
        ("report_rank12.sqlite", 12),
        ("rank_3.sqlite.xz", 3),
        ("rank-07.json.gz", 7),
        ("worker5_step_12.1694128201549.pt.trace.json", 5),
        ("worker1.rank3.sqlite", 3),
        ("Rank=4.sqlite", 4),
        ("frank1.sqlite", None),
        ("rank.sqlite", None),
        ("report_3.sqlite", None),
        ("ranks8.sqlite", None),
    ],
)
def test_names(name: str, rank: int | None) -> None:
    assert rank_in_name(Path("/somewhere") / name) == rank


def test_a_folder_may_have_the_number() -> None:
    assert rank_in_name(Path("/run/rank5/report.sqlite")) == 5


def test_names_are_enough_and_put_in_order() -> None:
    paths = [Path(f"rank{i}.sqlite") for i in (10, 2, 0)]
    plan, hint = recognise(paths, looks())
    assert plan is not None
    assert [number for number, _ in plan.files] == [0, 2, 10]
    assert hint is None


def test_one_rank_given_twice_is_two_runs() -> None:
    paths = [Path("a/rank0.sqlite"), Path("b/rank0.sqlite")]
    assert recognise(paths, looks())[0] is None
    with pytest.raises(InputError, match="rank 0 is given twice"):
        recognise(paths, looks(), forced=True)


def test_metadata_tell() -> None:
    paths = [Path("b.sqlite"), Path("a.sqlite")]
    plan, _ = recognise(paths, looks(a=(1, 2), b=(0, 2)))
    assert plan is not None
    assert [(n, p.stem) for n, p in plan.files] == [(0, "b"), (1, "a")]


def test_a_world_size_alone_tells() -> None:
    paths = [Path("r10.sqlite"), Path("r9.sqlite")]
    plan, _ = recognise(paths, looks(r10=(None, 8), r9=(None, 8)))
    assert plan is not None
    assert [p.stem for _, p in plan.files] == ["r9", "r10"]


@pytest.mark.parametrize(
    "known", [{}, {"a": (0, 1), "b": (0, 1)}, {"a": (0, 2), "b": (1, 4)}, {"a": (None, 2), "b": (None, None)}]
)
def test_other_captures_stand_alone(known: dict[str, tuple[int | None, int | None]]) -> None:
    assert recognise([Path("a.sqlite"), Path("b.sqlite")], looks(**known))[0] is None


def test_a_capture_is_no_job() -> None:
    assert recognise([Path("rank0.sqlite")], looks(), forced=True) == (None, None)


def test_the_user_has_the_last_word() -> None:
    named = [Path("rank0.sqlite"), Path("rank1.sqlite")]
    assert recognise(named, looks(), forced=False) == (None, None)
    plan, _ = recognise([Path("b10.sqlite"), Path("b9.sqlite")], looks(), forced=True)
    assert plan is not None
    assert [(n, p.stem) for n, p in plan.files] == [(None, "b9"), (None, "b10")]


def test_a_hint_where_only_some_tell() -> None:
    plan, hint = recognise([Path("rank0.sqlite"), Path("other.sqlite")], looks())
    assert plan is None
    assert hint is not None
    assert "--ranks" in hint


def test_what_cannot_be_read_is_told_later() -> None:
    def look(path: Path) -> Capture:
        raise InputError(f"{path}: broken")

    assert recognise([Path("a.sqlite"), Path("b.sqlite")], look) == (None, None)
