"""Of a job the what-if of a fix states what the report estimates, for the same rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import advisor
from advisor.model.findings import Finding
from tests.captures import EXAMPLES
from tests.ranks.test_planted import EXPERT, job, uneven

Write = Callable[[Path], object]


def dlrm(folder: Path) -> None:
    for rank in range(8):
        name = f"rank{rank}.pt.trace.json.gz"
        (folder / name).symlink_to(EXAMPLES / "dlrm_8_ranks" / name)


JOBS: dict[str, Write] = {
    "eight ranks of a recommendation model": dlrm,
    "one rank has more work": job(4, more={2: 60}).write,
    "one rank has a slow host": job(4, host={1: 900}).write,
    "transfers are exposed": job(4, transfer=60).write,
    "a late rank, and transfers": job(4, more={2: 60}, transfer=60, name="iteration").write,
    "uneven experts": uneven(EXPERT).write,
}
WRITE = pytest.mark.parametrize("write", JOBS.values(), ids=JOBS.keys())


def asked(finding: Finding) -> str:
    assert finding.gain is not None
    assert finding.gain.what_if is not None
    return ":".join((finding.gain.what_if, *(f"{n}={v}" for n, v in finding.gain.params.items())))


@WRITE
def test_a_what_if_of_a_job_states_the_gain_of_the_report(write: Write, tmp_path: Path) -> None:
    write(tmp_path)
    known = set[str]()
    for f in advisor.diagnose(tmp_path).findings:
        if f.gain is None or f.gain.what_if is None or f.gain.speedup is None:
            continue
        for fix in {f.code} if asked(f) in known else {f.code, asked(f)}:
            report = advisor.whatif(tmp_path, fix)
            assert report.step_before_ms == f.gain.step_before_ms, f.code
            assert report.step_after_ms == f.gain.step_after_ms, f.code
            assert report.speedup == f.gain.speedup, f.code
            assert report.fixes[0].step_after_ms == report.step_after_ms.mid
            assert report.fixes[0].speedup == report.speedup.mid
            assert report.bound_ms.mid <= report.step_after_ms.mid * (1 + 1e-6), f.code
            assert report.of_job is not None
            assert report.of_job.startswith(f"rank {report.input.rank} of "), report.of_job
            assert report.of_job.endswith(f"estimates {f.code} {f.cause}"), report.of_job
        known.add(asked(f))


def test_a_fix_that_no_finding_has_is_of_the_rank_with_the_longest_step(tmp_path: Path) -> None:
    job(4, more={2: 60}).write(tmp_path)
    fixes = {f.gain.what_if for f in advisor.diagnose(tmp_path).findings if f.gain is not None}
    assert "cuda_graphs" not in fixes
    report = advisor.whatif(tmp_path, "cuda_graphs")
    assert report.of_job is not None
    assert "whose step is the longest then" in report.of_job
    assert report.of_job.endswith("no finding of the report of the job has this fix")


def test_several_fixes_are_of_the_rank_of_the_first(tmp_path: Path) -> None:
    dlrm(tmp_path)
    alone, both = (advisor.whatif(tmp_path, fixes) for fixes in (["LCH101"], ["LCH101", "XFR101"]))
    assert both.input.rank == alone.input.rank == 7
    assert both.fixes[0].step_after_ms == pytest.approx(alone.step_after_ms.mid)
