"""The engine is light to import and quick: limits with slack, for a slow machine."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.engine.compile import compile_rules
from advisor.engine.durable import available
from advisor.engine.findings import conclude
from advisor.engine.infer import Engine, infer
from advisor.engine.load import load_rules
from advisor.model.facts import FactBase, Scope
from tests.engine.engine_support import ge, put, rule, rules
from tests.engine.test_load_errors import GOOD

MODULES = (
    "advisor.engine.load, advisor.engine.lint, advisor.engine.infer, advisor.engine.findings, "
    "advisor.engine.explain, advisor.engine.cases, advisor.engine.durable"
)


def best_ms(work: Callable[[], object], times: int = 5) -> float:
    found = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return 1000 * min(found)


def test_nothing_heavy_is_imported() -> None:
    code = (
        f"import sys, {MODULES}; "
        "print([m for m in ('pandas', 'numpy', 'durable', 'durable_rules_engine', 'rich') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_only_one_module_imports_durable_rules() -> None:
    package = Path(__file__).resolve().parents[2] / "advisor"
    named = [
        path.name
        for path in sorted(package.rglob("*.py"))
        if any(
            line.strip().startswith(("import durable", "from durable"))
            for line in path.read_text(encoding="utf-8").splitlines()
        )
    ]
    assert named == ["durable.py"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty files of the size of a real rule."""
    path = tmp_path_factory.mktemp("rules")
    long = "It is a sentence that a reader of the documentation has to read. " * 6
    for i in range(60):
        text = GOOD.replace("ABC101", f"ABC{100 + i}").replace("blocking-sync", f"cause-{i}")
        text = text.replace("Looks at waits that return to an empty queue.", long)
        advice = "".join(
            f"  - {{id: a{n}, action: Do something about it., effort: low}}\n" for n in range(4)
        )
        (path / f"ABC{100 + i}.yaml").write_text(text + "recommendations:\n" + advice)
    return path


def test_sixty_rules_load_in_150_ms(folder: Path) -> None:
    assert best_ms(lambda: load_rules(folder)) < 150


@pytest.mark.parametrize("engine", ["python", "durable"])
def test_sixty_rules_infer_in_50_ms(engine: Engine) -> None:
    """Chained rules over one device with three phases, 300 facts: as large as a real trace."""
    if engine == "durable" and not available()[0]:
        pytest.skip(available()[1])
    symptoms = [
        rule(f"UTL{100 + i}", f"s{i}", [ge(f"f.x{i}", 0.5)], kind="symptom") for i in range(10)
    ]
    causes = [
        rule(
            f"SYN{100 + i}",
            f"c{i}",
            {
                "any": [
                    {"all": [ge(f"f.x{10 + i}", 0.3), {"symptom": f"s{i % 10}"}]},
                    {"all": [ge(f"f.x{60 + i}", 0.2), ge(f"f.x{i}", 0.9)]},
                ]
            },
            scope="phase" if i % 5 == 0 else "device",
            unless=[ge("f.x299", 2) | {"if_unknown": "pass"}],
            then={"explains": [f"s{i % 10}"]} if i % 5 else {},
        )
        for i in range(50)
    ]
    program = compile_rules(rules(*symptoms, *causes))
    facts = FactBase()
    put(facts, {f"f.x{i}": (i * 37 % 100) / 100 for i in range(270)}, Scope(device=0))
    for phase in ("prefill", "decode", "mixed"):
        put(
            facts,
            {f"f.x{i}": (i * 17 % 100) / 100 for i in range(10)},
            Scope(device=0, phase=phase),
        )
    assert best_ms(lambda: infer(facts, program, engine=engine)) < 50
    found = infer(facts, program, engine=engine)
    assert len(found.in_state("fired")) > 10
    assert best_ms(lambda: conclude(found)) < 50
