"""The documentation says what the program does: generated pages, links, constants, examples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from advisor.cli.app import VERBS
from advisor.comparison.change_facts import EVERY_FACT
from advisor.config import SETTINGS
from advisor.engine.cases import run_all
from advisor.engine.lint import check_rules
from advisor.engine.lint_names import Catalogues
from advisor.engine.load import builtin_dir
from advisor.engine.severity import SEVERITY_TABLE
from advisor.knowledge.facts import joined_fields, joined_tables
from advisor.knowledge.files import references
from advisor.model.findings import Diagnosis
from advisor.pipeline.diagnose import Options, diagnose
from tests.docs.scripts import ROOT, script
from tests.shipped import shipped_rules

anchor = script("docs/headings.py").anchor

build = script("docs/build.py")
pages, keys = build.pages, build.json_keys
DEMO = ROOT / "examples" / "captures" / "decode_eager_bs1.sqlite.xz"


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_what_is_generated_is_up_to_date() -> None:
    stale = [path.relative_to(ROOT).as_posix() for path in build.stale(build.build())]
    assert not stale, f"run python docs/build.py; out of date: {', '.join(stale)}"


@pytest.mark.parametrize(
    "path",
    [
        *(
            "CONTRIBUTING.md",
            "README.md",
            "pyproject.toml",
            "knowledge/calibration.md",
            "knowledge/whatifs.yaml",
        ),
        *(f"{folder}/*.md" for folder in ("docs", "benchmarks", "rules")),
    ],
)
def test_modules_that_are_named_are_there(path: str) -> None:
    named = {m for p in ROOT.glob(path) for m in re.findall(r"advisor/[\w/]+\.py\b", p.read_text("utf-8"))}
    assert {m for m in named if not (ROOT / m).is_file()} == set()


def test_modules_and_tests_that_mutants_names_are_there() -> None:
    for modules, tests in script("benchmarks/mutants.py").PACKAGES.values():
        assert [m for m in modules.split() if not (ROOT / "advisor" / m).exists()] == []
        assert [t for t in tests.split() if not list((ROOT / "tests").glob(t))] == []


def test_check_names_the_files_that_differ(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ROOT / "docs" / "facts.md"
    whole = (p for folder in ("rules", "engines") for p in (ROOT / "docs" / folder).glob("*.md"))
    kept = {p: p.read_text(encoding="utf-8") for p in whole}
    monkeypatch.setattr(build, "build", lambda: {**kept, page: "something else"})
    assert build.main(["--check"]) == 1
    assert capsys.readouterr().err == "docs/facts.md is out of date; run python docs/build.py\n"
    assert page.read_text(encoding="utf-8") != "something else"


def test_each_engine_has_the_lines_to_type() -> None:
    """The command that its own plan records, without what only a recording by the server itself needs."""
    for name in ("vllm", "sglang", "tensorrt-llm", "transformers", "native", "pytorch"):
        page = (ROOT / "docs" / "engines" / f"{name}.md").read_text(encoding="utf-8")
        assert "\n    advisor run " in page
        assert "${MODEL}" not in page
        assert f"](engines/{name}.md)" in (ROOT / "docs" / "engines.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "engines" / "vllm.md").read_text(encoding="utf-8")
    assert "\n    advisor run -- vllm serve MODEL\n" in page
    assert "\n    advisor attach " in page


# --- complete --------------------------------------------------------------------------------


def test_every_rule_has_a_page_and_a_line_in_the_index() -> None:
    index = text("docs/rules.md")
    for rule in shipped_rules().active:
        assert f"[{rule.code}](rules/{rule.code}.md) | {rule.cause} |" in index
        assert f"# {rule.code} {rule.cause}\n" in text(f"docs/rules/{rule.code}.md")


def test_every_fact_and_table_is_documented() -> None:
    page = text("docs/facts.md")
    assert [n for n in (*EVERY_FACT, *joined_tables()) if f"| `{n}` |" not in page] == []


def test_every_verb_is_documented() -> None:
    page = text("docs/cli.md")
    words = pages.verbs()
    assert {first for first, *_ in words} == set(VERBS)
    assert [w for w in words if f" advisor {' '.join(w)}\n" not in page] == []


def test_every_configuration_key_is_documented() -> None:
    page = text("docs/cli.md").partition("## Configuration file")[2]
    keys = [key.replace("_", "-") for key in SETTINGS]
    assert [k for k in keys if f"| `{k}` |" not in page] == []
    meanings = [line.split("|")[-2].strip() for line in page.splitlines() if line.startswith("| `")]
    assert len(meanings) == len(keys)
    assert all(meanings)


#: Keys that programs may rely on; more may be added.
STABLE_KEYS = {
    "schema_version",
    "tool",
    "inputs",
    "verdict",
    "findings",
    "overruled",
    "healthy",
    "not_evaluated",
    "budget",
    "steps",
    "facts",
    "thresholds",
    "tables",
    "timeline",
    "rank",
    "code",
    "cause",
    "title",
    "severity",
    "confidence",
    "scope",
    "message",
    "conditions",
    "impact",
    "evidence",
    "time_ranges",
    "gain",
    "recommendations",
    "explains",
    "references",
}


def test_the_json_page_explains_the_stable_keys_and_no_others() -> None:
    page = text("docs/json.md").partition("## Every key")[0]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = set(re.findall(r"`(\w+)`", " ".join(rows)))
    assert named >= STABLE_KEYS
    known = {n for m in keys.models(Diagnosis) for n in keys.keys(m)}
    assert named <= known


# --- links -----------------------------------------------------------------------------------


def markdown() -> list[Path]:
    ours = ("docs", "examples", "knowledge", "rules", "benchmarks", "tests")
    found = [p for folder in ours for p in (ROOT / folder).rglob("*.md")]
    return sorted([*ROOT.glob("*.md"), *found])


@cache
def anchors(path: Path) -> set[str]:
    body = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    heads = re.findall(r"^#+ (.+)$", body, re.MULTILINE)
    return {anchor(re.sub(r"[`*]|\]\(.*?\)|\[", "", head)) for head in heads}


def links(path: Path) -> Iterator[str]:
    body = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    body = re.sub(r"`[^`\n]*`", "", body)
    yield from re.findall(r"\]\(([^)\s]+)\)", body)


def test_relative_links_resolve() -> None:
    broken = []
    for path in markdown():
        for link in links(path):
            if re.match(r"[a-z]+:", link):
                continue
            file, _, section = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            if not target.exists() or (section and section not in anchors(target)):
                broken.append(f"{path.relative_to(ROOT)}: {link}")
    assert not broken


# --- what is written by hand and can be checked ----------------------------------------------


def test_ci_carries_out_the_commands_of_the_readme() -> None:
    install, tests = script(".ci/readme.py").commands()
    assert install.startswith("python -m venv .venv && ")
    assert tests.endswith("python -m pytest")
    ci = text(".ci/run")
    assert re.search(r"^first_command$", ci, re.MULTILINE)
    assert re.search(r"^readme 2$", ci, re.MULTILINE)
    assert "pytest -m slow" in ci
    bare = re.search(r"`(\.venv/bin/pip [^`]+)`", text("README.md"))
    assert bare is not None
    for command in bare[1].split(" && "):
        assert command.removeprefix(".venv/bin/") in ci.replace('"', "").replace("$bare/", "")


def constants() -> list[tuple[str, str, str]]:
    row = re.compile(r"^\| `(advisor\.[\w.]+)` \| ([\d.]+) \|", re.MULTILINE)
    pages = ("docs/definitions.md", "docs/confidence.md")
    return [(page, name, value) for page in pages for name, value in row.findall(text(page))]


@pytest.mark.parametrize(("page", "name", "value"), constants())
def test_constants_are_those_of_the_code(page: str, name: str, value: str) -> None:
    module, _, constant = name.rpartition(".")
    assert getattr(import_module(module), constant) == float(value), page


def test_the_severity_table_is_that_of_the_code() -> None:
    page = text("docs/confidence.md")
    for share, severity in SEVERITY_TABLE:
        assert f"| {share:.0%} and more | {severity} |".replace("%", " %") in page


def test_who_overrules_whom_is_what_the_rules_say() -> None:
    table = text("docs/confidence.md").partition("## Which cause overrules which")[2]
    said = {}
    for line in table.splitlines():
        cells = [c.strip() for c in line.split("|")[1:-1]]
        if len(cells) == 3 and cells[0] not in ("cause", "---"):
            said[cells[0].split(" (")[0]] = set(cells[1].split(", "))
    rules = {r.cause: set(r.then.overrules) for r in shipped_rules().active if r.then.overrules}
    assert said == rules


def test_the_table_of_known_answers_is_that_of_the_rules() -> None:
    """At most three answers of a family count for a rule; answers of other families make each better."""
    table = (
        text("docs/confidence.md").partition("<!-- calibration -->")[2].partition("<!-- /calibration -->")[0]
    )
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.count("|") == 8]
    families, (total,) = rows[2:-1], rows[-1:]
    assert [r[0] for r in rows[:1]] == ["family"]
    for column in (1, 2):
        assert sum(int(r[column]) for r in families) == int(total[column])
    for row in families:
        assert float(row[5]) < float(row[4])
    known = [r.confidence for r in shipped_rules().active]
    assert max(c.right + c.wrong for c in known) <= 3 * len(families)
    assert 0 < sum(c.right for c in known) <= int(total[2])
    assert sum(c.wrong for c in known) <= int(total[1]) - int(total[2])


def test_the_example_of_a_confidence() -> None:
    found = re.search(
        r"^Example: (\S+) on `(\w+)`.*?= (0\.\d+)\.$", text("docs/confidence.md"), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    diagnosis = diagnose(DEMO.with_name(f"{found[2]}.sqlite.xz"))
    assert next(f for f in diagnosis.findings if f.cause == found[1]).confidence == float(found[3])


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """The example of docs/own_rules.md in a folder."""
    blocks = re.findall(r"`mine/(\S+)`:\n\n```yaml\n(.*?)```", text("docs/own_rules.md"), re.DOTALL)
    assert len(blocks) == 2
    for name, body in blocks:
        (tmp_path / name).write_text(body, encoding="utf-8")
    return tmp_path


def test_the_example_rule_is_sound_and_its_cases_pass(mine: Path) -> None:
    known = Catalogues(facts=EVERY_FACT, entities=joined_fields(), references=references())
    rules = check_rules(known, builtin_dir(), mine)
    units = {name: spec.unit for name, spec in EVERY_FACT.items()}
    assert [r.all_problems for r in run_all(rules, units=units) if r.code == "OWN101"] == [[]]
    results = list(script("benchmarks/mutation.py").Bench(rules).results(["OWN101"]))
    assert results
    assert all(r.killed for r in results)


def test_the_example_rule_is_judged_beside_ours(mine: Path) -> None:
    found = diagnose(DEMO, Options(rules=(mine,))).findings
    assert "OWN101" in [f.code for f in found]
    quiet = diagnose(DEMO, Options(rules=(mine,), params=("OWN101.max_step=100",))).findings
    assert "OWN101" not in [f.code for f in quiet]
