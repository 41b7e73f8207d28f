"""Advice whose condition the capture does not show: left out, or given behind an "If"."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import advisor
from advisor.agents.tools import Tools
from advisor.cli.main import main
from advisor.engine.load import builtin_dir
from advisor.engine.values import atom, compare, operand
from advisor.model.facts import Value
from advisor.model.findings import Diagnosis, Finding
from advisor.model.rules import Action, FactCondition
from advisor.pipeline.diagnose import all_rules
from tests.captures import SHARED, committed, diagnosed
from tests.pasted import pasted, printed
from tests.scenarios import test_samples_alone as samples
from tests.test_captures import COMMITTED

RULES = all_rules((builtin_dir(),)).by_code
FLASH = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(Flash_fwd_params)"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>>(int, float)"
UNKNOWN = "void mine::step_kernel<float>(float*, int)"
TABLES = {
    "attention": printed(
        "cuda_gpu_kern_sum",
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_tn", 256, 48225.0, 48000.0, 47000, 50000, 812.0),
        (FLASH, 256, 23529.0, 23000.0, 22000, 24000, 10.0),
        (ELEMENTWISE, 4000, 3000.0, 3000.0, 3000, 3000, 0.0),
    ),
    "unknown": printed("cuda_gpu_kern_sum", (UNKNOWN, 2000, 3000.0, 3000.0, 2900, 9000, 10.0)),
    "calls": printed(
        "cuda_api_sum",
        ("cudaMalloc", 88160, 4000.0, 4000.0, 3000, 9000, 10.0),
        ("cudaFree", 88160, 4000.0, 4000.0, 3000, 9000, 10.0),
    ),
}
SECONDS = {name: getattr(samples, name) for name in ("STREAMING", "DENSE", "HALF_USED", "STARVED", "HEALTHY")}


def _known(d: Diagnosis, finding: Finding, name: str) -> Value | None:
    """A fact as the finding sees it: that of the narrowest scope around it."""
    found = [f for f in d.facts if f.name == name and f.scope.encloses(finding.scope)]
    return max(found, key=lambda f: f.scope.sort_key()).value if found else None


def _holds(d: Diagnosis, finding: Finding, one: FactCondition) -> bool | None:
    threshold: object = one.value
    if one.param is not None:
        code, _, name = one.param.rpartition(".")
        key = (code or finding.code, name)
        threshold = next(t.value for t in d.thresholds if (t.code, t.param) == key)
    return compare(atom(_known(d, finding, one.fact)), one.op, operand(threshold))


def unproven(d: Diagnosis) -> Iterator[tuple[str, str]]:
    """Advice, as cause and action, that is given flatly although no text of it has all its conditions met."""
    for finding in d.findings:
        rule = RULES[finding.code]
        said: list[tuple[str, str, tuple[Action, ...]]] = [
            *((a.id, a.action, rule.recommendations) for a in finding.recommendations),
            *((a.action, a.text, rule.alternatives) for a in finding.alternatives),
        ]
        for name, text, actions in said:
            of_name = [a for a in actions if a.id == name]
            proven = (all(_holds(d, finding, c) for c in a.applies_when) for a in of_name)
            if of_name and not text.startswith("If ") and not any(proven):
                yield finding.cause, name


def without_advice(d: Diagnosis) -> list[str]:
    """Findings of rules that have advice, left without any."""
    return [f.cause for f in d.findings if RULES[f.code].recommendations and not f.recommendations]


def right(d: Diagnosis) -> None:
    assert list(unproven(d)) == []
    assert without_advice(d) == []


@pytest.mark.parametrize("name", COMMITTED)
def test_committed_captures(name: str) -> None:
    right(diagnosed(committed(name)))


@pytest.mark.parametrize("source", samples.EVERY, ids=lambda s: s.__name__)
@pytest.mark.parametrize("name", SECONDS)
def test_samples_alone(name: str, source: samples.Source, tmp_path: Path) -> None:
    right(advisor.diagnose(source(tmp_path, samples.always(SECONDS[name]))))


@pytest.mark.parametrize("name", TABLES)
def test_pasted_tables(name: str, tmp_path: Path) -> None:
    path = tmp_path / "stats.txt"
    path.write_text(pasted([TABLES[name]], "columns"))
    right(advisor.diagnose(path))


def _shared() -> list[Path]:
    endings = (".sqlite.xz", ".json.gz", ".json", ".txt", ".sqlite")
    found = sorted(p for p in SHARED.glob("*/**/*") if p.is_file() and p.name.endswith(endings))
    return [p for p in found if p.parent.name != "oracle"]


@pytest.mark.slow
@pytest.mark.skipif(not _shared(), reason="the labelled captures are not on this machine")
@pytest.mark.parametrize("path", _shared(), ids=lambda p: str(p.relative_to(SHARED)))
def test_labelled_captures(path: Path) -> None:
    right(diagnosed(path))


FORMATS: dict[str, tuple[str, ...]] = {
    "text": ("-v",),
    "json": ("--format", "json"),
    "markdown": ("--format", "markdown", "-v"),
    "html": ("--format", "html"),
    "workbook": (),
    "agents": (),
}


def _report(path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> str:
    """All the words of a report, spaces as one."""
    if form == "agents":
        tools = Tools([path.parent])
        found = json.dumps([tools.diagnose(str(path)), tools.show(str(path), "UTL103")])
    elif form == "workbook":
        book = path.with_suffix(".xlsx")
        assert main([str(path), "--xlsx", str(book)]) == 0
        with zipfile.ZipFile(book) as inside:
            found = "".join(inside.read(n).decode() for n in inside.namelist() if n.endswith(".xml"))
    else:
        assert main([str(path), *FORMATS[form]]) == 0
        found = capsys.readouterr().out
    return " ".join(found.split())


@pytest.mark.parametrize("form", FORMATS)
def test_every_report_says_the_condition(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Samples alone do not say what ran, so nothing that follows from its kernels may be said flatly."""
    busy = samples.dcgm(tmp_path, samples.always(samples.DENSE | {"sm": 0.97, "tensor": 0.808}))
    text = _report(busy, form, capsys)
    for claim in ("Call a library for the products", "they run in FP32", "Run the products in a narrower"):
        assert claim not in text
    assert "If it infers in 16 bits, on a GPU with FP8: Run the GEMMs in FP8" in text


def test_a_pasted_table_of_kernels_is_not_told_about_training(tmp_path: Path) -> None:
    path = tmp_path / "stats.txt"
    path.write_text(pasted([TABLES["attention"]], "columns"))
    found = advisor.diagnose(path)
    assert "Adam" not in json.dumps([a.action for f in found.findings for a in f.recommendations])


def test_memory_bound_samples_are_not_told_about_a_static_cache(tmp_path: Path) -> None:
    found = advisor.diagnose(samples.dcgm(tmp_path, samples.always(samples.STREAMING)))
    bound = next(f for f in found.findings if f.cause == "memory-bandwidth-bound")
    assert not [a for a in bound.alternatives if a.action == "attention-backend"]
    assert {"fp8-weights", "fp8-kv-cache", "tensor-parallel"} <= {a.id for a in bound.recommendations}
    assert all(a.action.startswith("If it ") for a in bound.recommendations)


def test_a_finding_of_ranks_always_has_an_action() -> None:
    """Also where nothing is known of why a rank is late."""
    causes = [r for r in RULES.values() if r.scope == "rank" and r.kind == "cause"]
    assert len(causes) >= 2
    for rule in causes:
        assert any(not r.applies_when or r.if_unknown for r in rule.recommendations), rule.code
