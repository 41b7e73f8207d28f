"""What the words of a command line stand for: a capture, a pair, a job, a saved diagnosis."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.model.options import Options
from advisor.pipeline.inputs import (
    Capture,
    How,
    Job,
    Pair,
    Saved,
    as_job,
    job,
    located,
    named,
    one_capture,
    pair_of,
    several,
)
from advisor.reports import json_report
from tests.builder import Export
from tests.kineto_builder import Profile
from tests.reports.fixture import DIAGNOSIS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("rank0.sqlite", "rank1.sqlite", "a.sqlite"):
        Export().gpu().process(1).launch(at=0).write(tmp_path / name)
    Profile().launch(at=0).write(tmp_path / "a.json")
    (tmp_path / "saved.txt").write_bytes(json_report.render([DIAGNOSIS]))
    return tmp_path


def test_each_kind_is_told_by_its_content(folder: Path) -> None:
    paths = [folder / name for name in ("a.sqlite", "a.json", "saved.txt", "absent.sqlite")]
    kinds = [type(each) for each in several(paths).inputs]
    assert kinds == [Capture, Capture, Saved, Capture]  # the reader says what is wrong with the last


def test_a_pair_is_a_capture_and_a_trace_of_pytorch_in_either_order(folder: Path) -> None:
    one, other = folder / "a.sqlite", folder / "a.json"
    assert pair_of([one, other]) == pair_of([other, one]) == Pair(one, other)
    assert several([other, one], pair=True) == ((Pair(one, other),), False)
    assert Pair(one, other).options(Options()).together == other
    assert Capture(one).options(Options()).together is None


@pytest.mark.parametrize(
    ("count", "pair", "said"),
    [
        (2, False, "takes one capture, not 2; for two recordings of one program add --together"),
        (1, True, "--together takes two recordings of one program, not 1"),
        (3, True, "--together takes two recordings of one program, not 3"),
    ],
)
def test_another_number_of_recordings_is_refused(count: int, pair: bool, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        (pair_of if pair else one_capture)([Path(f"{i}.sqlite") for i in range(count)])


def test_a_folder_is_named_in_reports_also_where_one_capture_is_in_it(folder: Path) -> None:
    alone = folder / "alone"
    alone.mkdir()
    (folder / "a.sqlite").rename(alone / "a.sqlite")
    assert several([alone]) == ((Capture(alone / "a.sqlite"),), True)
    assert several([alone / "a.sqlite"]) == ((Capture(alone / "a.sqlite"),), False)


def test_ranks_are_a_job_unless_the_user_or_a_saved_diagnosis_says_otherwise(folder: Path) -> None:
    ranks = [folder / "rank1.sqlite", folder / "rank0.sqlite"]
    inputs = several(ranks).inputs
    assert as_job(inputs) == job(ranks) == Job(((0, ranks[1]), (1, ranks[0])))
    assert as_job(inputs, independent=True) is None
    assert as_job((*inputs, Saved(folder / "saved.txt"))) is None
    with pytest.raises(InputError, match="--ranks and --independent contradict"):
        as_job(inputs, ranks=True, independent=True)
    with pytest.raises(InputError, match="at least two ranks"):
        job(ranks[:1])


def test_a_name_is_a_file_or_else_a_baseline(folder: Path) -> None:
    (folder / "one.json").write_bytes(json_report.render([DIAGNOSIS]))
    assert named("one", folder) == Saved(folder / "one.json") == Saved(located("one", folder))
    assert named(str(folder / "saved.txt"), folder) == Saved(folder / "saved.txt")
    assert named(str(folder / "a.json"), folder) == Capture(folder / "a.json")
    with pytest.raises(InputError, match="no ranks of one job; name a capture in it"):
        named(str(folder), folder)
    with pytest.raises(
        InputError, match=r"no such file, and no baseline of that name \(saved in .*: a, one\)"
    ):
        named("two", folder)


def test_a_saved_diagnosis_is_read_as_it_is(folder: Path) -> None:
    assert Saved(folder / "saved.txt").read(How()).diagnoses == (DIAGNOSIS,)
