"""Diagnoses of captures whose steps were timed without a profiler, held to what was timed."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from advisor.model.gain import Span
from benchmarks import recorded

ROOT = Path(__file__).resolve().parents[2]
KIT = ROOT / "benchmarks" / "pairs"
COMMITTED = {
    f"{place.folder.name}/{name}": (place, name)
    for place in recorded.sets(recorded.COMMITTED)
    for name in place.captures
    if place.path(name) is not None
}
KNOWN = yaml.safe_load((recorded.COMMITTED / "known.yml").read_text(encoding="utf-8"))
#: Predictions that are known to miss what was timed, and captures whose first cause is known to be wrong.
MISSES, WRONG = ({key: k["why"] for k in KNOWN[part] for key in k["which"]} for part in ("misses", "wrong"))


@cache
def held(key: str) -> recorded.Recorded:
    place, name = COMMITTED[key]
    path = place.path(name)
    assert path is not None
    return recorded.held(place, name, path)


def test_there_are_captures_of_several_gpus() -> None:
    assert len({place.about["gpu"] for place, _ in COMMITTED.values()}) >= 3
    assert len(COMMITTED) >= 50


def of_each_family_first() -> list[Any]:
    """The captures as parameters; those that follow the first of a family are slow tests."""
    family = {key: place.captures[name]["family"] for key, (place, name) in COMMITTED.items()}
    first = {family[key]: key for key in reversed(COMMITTED)}.values()
    return [pytest.param(k, marks=[] if k in first else [pytest.mark.slow]) for k in COMMITTED]


@pytest.mark.parametrize("key", of_each_family_first())
def test_the_first_cause_is_one_of_those_expected_and_ranges_meet_what_was_timed(key: str) -> None:
    assert (held(key).right is False) is (key in WRONG), f"said {held(key).said}"
    for h in (held(key).step, *held(key).mends):
        known = MISSES.get(f"{key}: {h.what}")
        assert h.meets is (known is None), f"{h.what}: {h.predicted}, timed {h.band} ({known or 'not known'})"


@pytest.mark.slow
def test_every_known_miss_names_a_prediction() -> None:
    missed = {which.partition(": ")[0] for which in MISSES}
    held_ones = {f"{key}: {h.what}" for key in missed for h in (held(key).step, *held(key).mends)}
    assert set(MISSES) <= held_ones
    assert set(WRONG) <= set(COMMITTED)


@pytest.mark.parametrize(
    ("low", "high", "meets"), [(1.0, 2.9, False), (1.0, 3.0, True), (4.0, 6.0, True), (5.1, 6.0, False)]
)
def test_a_range_meets_a_band_that_it_touches(low: float, high: float, meets: bool) -> None:
    assert recorded.Held("a", "b", 4.0, (3.0, 5.0), Span(low=low, mid=low, high=high)).meets is meets


def all_sets() -> list[recorded.Set]:
    return [*recorded.sets(recorded.COMMITTED), *recorded.public_sets([])]


def test_labels_are_complete() -> None:
    for place in all_sets():
        assert place.about["gpu"]
        for name, label in place.captures.items():
            low, high = label["band"]
            assert low <= label["step_ms"] <= high, name
            for gain in label.get("gains", ()):
                assert gain["after"] in place.captures, name


def test_public_captures_name_their_repository_and_licence() -> None:
    for entry in yaml.safe_load(recorded.PUBLIC.read_text(encoding="utf-8")):
        about = entry["about"]
        assert about["repository"].count("/") == 1
        assert len(about["commit"]) == 40
        assert {"license", "recorder", "source"} <= set(about)


def test_what_is_not_at_hand_is_named(tmp_path: Path) -> None:
    here = tmp_path / "bolongcheng+assignment2-systems" / "profile"
    here.mkdir(parents=True)
    (here / "small_fwd_A100.sqlite.xz").write_bytes(b"")
    places = recorded.public_sets([tmp_path])
    missing = [name for place in places for name in place.missing]
    assert "small_fwd" not in missing
    assert "small_bwd" in missing
    assert "small_fwd_bf16" not in missing  # timed alone
    assert "- small_bwd: not at hand here" in recorded.absent(places)


def test_the_table_counts_by_gpu_recorder_and_family() -> None:
    span = Span(low=1.0, mid=2.0, high=3.0)

    def one(name: str, predicted: Span | None, top: tuple[str, ...]) -> recorded.Recorded:
        timed = recorded.Held(name, "the step itself", 2.0, (1.9, 2.1), predicted)
        mend = recorded.Held(name, "mend", 9.0, (9.0, 9.0), predicted)
        return recorded.Recorded(name, "GPU", "nsys", "copies", top, (), ("transfer-bound",), timed, (mend,))

    text = recorded.by_class([one("a", span, ("transfer-bound",)), one("b", None, ("host-gap",))])
    row = next(line for line in text.splitlines() if line.startswith("| GPU | nsys"))
    cells = [cell.strip() for cell in row.strip("|").split("|")][3:]
    assert cells == ["2", "1 of 2", "1 of 1", "3.00", "1", "0 of 1", "3.00", "1"]


# ------------------------------------------------------------------ the kit that records


def functions(module: str) -> set[str]:
    tree = ast.parse((KIT / f"{module}.py").read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_group_of_the_kit_is_there_and_in_its_page() -> None:
    tree = ast.parse((KIT / "record.py").read_text(encoding="utf-8"))
    (groups,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "GROUPS"
    )
    assert isinstance(groups, ast.Dict)
    page = (KIT / "README.md").read_text(encoding="utf-8")
    for key, call in zip(groups.keys, groups.values, strict=True):
        assert isinstance(key, ast.Constant)
        assert isinstance(call, ast.Call)
        module, function = (ast.literal_eval(argument) for argument in call.args[:2])
        assert function in functions(module), key.value
        assert f"`{key.value}`" in page


@pytest.mark.slow
def test_the_kit_records_what_the_benchmark_reads(tmp_path: Path) -> None:
    """On the CPU, where no kernels are recorded: traces, labels, and a group that fails beside them."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    command = [sys.executable, str(KIT / "record.py"), str(tmp_path), "--only", "streams", "launches"]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    labels: dict[str, Any] = json.loads((tmp_path / "labels.json").read_text(encoding="utf-8"))
    assert {"stream_alone", "chains_at_once", "eager_b1", "graph_b64"} <= set(labels["captures"])
    for place in recorded.sets(tmp_path):
        for name, label in place.captures.items():
            assert place.path(name) is not None
            assert label["step_ms"] > 0
            for gain in label["gains"]:
                assert gain["after"] in place.captures or gain["after"] in place.failed
