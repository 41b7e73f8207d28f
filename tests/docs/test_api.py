"""The public Python interface: its page, its types, what shows itself, and how it starts."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

import advisor
from advisor.model.options import Options
from tests.docs.scripts import ROOT
from tests.reports.fixture import DIAGNOSIS

PAGE = ROOT / "docs" / "api.md"


def test_the_examples_of_the_page_do_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testfile(str(PAGE), module_relative=False, optionflags=flags)
    assert result.attempted > 15
    assert result.failed == 0


def test_the_page_names_every_function_and_option() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in advisor.__all__:
        if name != "__version__":
            assert re.search(rf"\b{name}\b", text), name
    for name in Options.__dataclass_fields__:
        if name != "strict":  # of tests of the rules
            assert f"`{name}`" in text, name


def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys, advisor; heavy = {'numpy', 'pandas', 'pydantic', 'rich', 'click'} & set(sys.modules); "
        "print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", ["compare", "ranks"])
def test_functions_are_there_whatever_was_imported_before(name: str) -> None:
    import advisor.comparison.store
    import advisor.jobs.reduction

    with pytest.raises(advisor.InputError):
        getattr(advisor, name)(["no-such.sqlite", "nor-this.sqlite"], ["x"] if name == "compare" else None)


def test_an_option_of_a_plan_that_is_unknown() -> None:
    with pytest.raises(advisor.InputError, match="invalid value 'engin'"):
        advisor.plan("kernel-breakdown", engin="vllm")


def test_a_document_is_one_line_and_a_table_in_a_notebook() -> None:
    line = repr(DIAGNOSIS)
    assert line.startswith("<Diagnosis: ")
    assert len(line) < 150
    page = DIAGNOSIS._repr_html_()
    assert page.count("<tr>") == len(DIAGNOSIS.findings)
    assert DIAGNOSIS.findings[0].code in page


def test_types_are_for_whoever_imports_it() -> None:
    assert (Path(advisor.__file__).parent / "py.typed").is_file()
