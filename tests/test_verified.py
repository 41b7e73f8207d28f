"""What the files of engines name was looked for in releases: knowledge/verified.yaml."""

from __future__ import annotations

from subprocess import CalledProcessError

import pytest

from advisor.knowledge.checked import newer_engine
from advisor.knowledge.engine_signs import engines
from advisor.knowledge.shapes import CaptureVariable, EngineData, OptionLine
from benchmarks.verification import (
    Item,
    Verification,
    checked_against,
    faults,
    items,
    names_in,
    unverified,
    verified,
)
from tests.docs.scripts import script


@pytest.mark.parametrize("engine", sorted(engines()))
def test_every_item_is_verified_or_excused(engine: str) -> None:
    assert unverified(engine, engines()[engine]) == []


def test_nothing_is_verified_that_no_engine_names() -> None:
    named = {engine: {item.name for item in items(data)} for engine, data in engines().items()}
    assert {e: set(v.items) - named[e] for e, v in verified().items() if set(v.items) - named[e]} == {}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("--max-num-seqs <n>", ["--max-num-seqs"]),
        ("remove --enforce-eager", ["--enforce-eager"]),
        ("OMP_NUM_THREADS=1", ["OMP_NUM_THREADS"]),
        ("cache_config: {dtype: fp8}", ["cache_config"]),
        ("from_pretrained(..., use_kernels=True)", ["from_pretrained", "use_kernels"]),
        ("serve an AWQ, GPTQ or NVFP4 checkpoint", []),
    ],
)
def test_options_variables_and_calls_are_found_in_a_line(line: str, names: list[str]) -> None:
    assert list(names_in(line)) == names


def engine(**options: OptionLine) -> EngineData:
    lines = {name.replace("_", "-"): [line] for name, line in options.items()}
    variable = CaptureVariable(variable="E_RANGES", value="1", effect="ranges", since="2.0")
    return EngineData(schema_=1, name="e", title="E", options=lines, capture=[variable])


def test_an_item_is_expected_in_the_releases_that_the_line_names() -> None:
    found = items(
        engine(
            shape_buckets=OptionLine(line="--new 1", since="1.2", before="--old 1"),
            raise_batch_size=OptionLine(line="--gone", until="1.1"),
        )
    )
    assert found == [
        Item("--new", "1.2"),
        Item("--old", before="1.2"),
        Item("--gone", until="1.1"),
        Item("E_RANGES", "2.0"),
    ]
    expected = {i.name: [r for r in ("1.1", "1.2", "2.0") if i.expected_in(r)] for i in found}
    assert expected == {"--new": ["1.2", "2.0"], "--old": ["1.1"], "--gone": ["1.1"], "E_RANGES": ["2.0"]}
    assert not Item("cudaMallocAsync", "CUDA 11.2").expected_in("1.1")  # a release of something else


def test_a_release_that_lacks_an_item_is_told() -> None:
    wanted = [Item("--a"), Item("--b", since="2.0"), Item("--c"), Item("d"), Item("range x")]
    known = {
        "--a": Verification(found=["1.0"], witness="args.py"),
        "--b": Verification(found=["2.0"], witness="args.py"),
        "d": Verification(excuse="a name that the user gives"),
        "range x": Verification(found=["1.0"], witness="steps.py"),
    }
    assert faults(wanted, known, ["1.0", "2.0"]) == ["--a: missing in 2.0", "--c: not verified"]


def test_a_verification_has_a_witness_or_an_excuse() -> None:
    with pytest.raises(ValueError, match="a witness or an excuse"):
        Verification()
    with pytest.raises(ValueError, match="a witness or an excuse"):
        Verification(found=["1.0"], excuse="why")


def test_the_newest_release_is_the_one_checked_against() -> None:
    assert checked_against("vllm") == verified()["vllm"].releases[-1]
    assert checked_against("any") is None


@pytest.mark.parametrize(
    ("engine", "version", "said"),
    [
        ("vllm", "0.36.0", True),
        ("vllm", "0.33.0", False),
        ("vllm", "0.25.1", False),
        ("sglang", "0.5.24", True),
        ("sglang", "0.5.23", False),
        ("vllm", None, False),
        (None, "9.9", False),
        ("any", "9.9", False),  # of which no release was read
    ],
)
def test_an_engine_that_is_newer_than_what_was_read(
    engine: str | None, version: str | None, said: bool
) -> None:
    assert bool(newer_engine(engine, version)) == said
    if said and engine:
        assert newer_engine(engine, version).endswith(f"{checked_against(engine)}; this is {version}.")


def test_the_newest_release_is_held_against_the_knowledge(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = script("benchmarks/newest.py")
    read = verified()["xdit"].releases[-1]
    for version, code, changed in (("99.0", 1, True), ("99.0", 0, False), (read, 1, False), (None, 1, False)):
        monkeypatch.setattr(newest, "newest", lambda _, version=version: version)
        monkeypatch.setattr(newest.options, "main", lambda argv, code=code: print(*argv[:2]) or code)
        worse, text = newest.of_options("xdit", "folder")
        assert worse == changed
        assert text == ("xdit 99.0" if version == "99.0" else f"xdit: {read} is the newest release")
    for share, too_many in ((7, False), (8, True)):
        line = f"vllm==99.0: 100 names, {share} not known ({share}%)"
        monkeypatch.setattr(newest, "newest", lambda _: "99.0")
        monkeypatch.setattr(newest.names, "main", lambda _, line=line: print(line) or 0)
        assert newest.of_names("vllm", "folder") == (too_many, line)


def test_a_release_that_cannot_be_downloaded_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = script("benchmarks/newest.py")

    def refused(_: object) -> int:
        raise CalledProcessError(1, ["pip", "download", "xfuser==99.0"])

    monkeypatch.setattr(newest, "newest", lambda _: "99.0")
    for module in (newest.options, newest.names):
        monkeypatch.setattr(module, "main", refused)
    told = (True, "xfuser==99.0 cannot be downloaded")
    assert newest.of_options("xdit", "folder") == newest.of_names("vllm", "folder") == told
