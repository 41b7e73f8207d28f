from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from advisor.reports.layout import Page, clean, cut_end, cut_middle, name_text, pad, shell_lines, wrap

TEXT = st.text(max_size=200)


@given(TEXT, st.integers(8, 120), st.integers(8, 120))
def test_wrapped_lines_fit(text: str, width: int, first: int) -> None:
    lines = wrap(text, width, min(first, width))
    assert cell_len(lines[0]) <= min(first, width)
    assert all(cell_len(line) <= width for line in lines)


@given(TEXT)
def test_wrapping_loses_nothing(text: str) -> None:
    assert "".join(wrap(text, 12)).replace(" ", "") == clean(text).replace("\u00a0", " ").replace(" ", "")


@given(TEXT, st.integers(4, 60))
def test_cut_text_fits(text: str, width: int) -> None:
    assert cell_len(cut_middle(text, width)) <= width
    assert cell_len(cut_end(text, width)) <= width


def test_a_number_stays_with_its_unit() -> None:
    assert wrap("the GPU idles 52.3 % of it", 19) == ["the GPU idles", "52.3 % of it"]


def test_cut_in_the_middle_keeps_both_ends() -> None:
    assert cut_middle("nvjet_sm90_tst_128x8_64x12_TNT", 15) == "nvjet_s…x12_TNT"


def test_control_characters_never_pass() -> None:
    assert clean("a\x1b[31mb\tc\nd\u202ee\ud800") == "a?[31mb c d?e?"
    assert clean("x\ufffe\uffff\u061cy") == "x???y"  # XML cannot hold the first two


def test_name_text_drops_return_type_and_arguments() -> None:
    assert name_text("void k<int, (bool)1>(int, T3 (*)(int))") == "k<int, (bool)1>"
    assert name_text("gemm_kernel(int)") == "gemm_kernel(int)"
    assert name_text("void broken)") == "broken)"
    assert name_text("void k(int)") == "k"


def test_numbers_stand_at_the_right() -> None:
    assert [pad("ab", n, right=True) for n in (4, 3, 2)] == ["  ab", " ab", "ab"]
    assert [pad("ab", n) for n in (3, 1)] == ["ab ", "a"]


def test_page_is_never_wider_than_asked() -> None:
    page = Page(40)
    page.line("x" * 100, ("y" * 100, "bold"))
    page.labelled("label", "word " * 30)
    page.table(("name", "n"), [(["归" * 60, "b"], False), (["1", "22"], True)])
    assert max(cell_len(line.plain) for line in page.lines) <= 40
    assert page.lines[0].plain == "x" * 39 + "…"
    assert Page().width == 80


def test_columns_without_room_are_left_out() -> None:
    page = Page(40)
    heads = ("name", *(f"number {i}" for i in range(9)))
    page.table(heads, [(["k" * 30], False), *[(["1,234,567"], True)] * 9])
    assert page.lines[0].plain.split() == ["name", "number", "0", "number", "1"]
    assert page.lines[1].plain.endswith("1,234,567")


def test_a_name_without_room_stands_whole_above_its_row() -> None:
    page, name = Page(40), "main > batch::Scheduler::executeStep > Rotary::forward"
    page.table(("called from", "calls"), [([name, "main"], False), (["176", "9"], True)], whole=True)
    shown = [line.plain.split() for line in page.lines[1:]]
    assert [word for line in shown[:-2] for word in line] == name.split()
    assert shown[-2:] == [["176"], ["main", "9"]]


def test_the_names_of_functions_make_room_for_the_other_columns() -> None:
    page = Page(60)
    heads, kernel = ("called from", "kernel", "calls"), "k" * 34
    page.table(heads, [(["f " * 30], False), ([kernel], False), (["176"], True)], whole=True)
    assert page.lines[-1].plain.split() == [kernel, "176"]


COMMANDS = [
    "ncu --set full --kernel-name 'regex:^a b$' --launch-count 5 python serve.py --batch 1",
    "ncu --kernel-name regex:" + "x" * 120 + " python -c 'print(1)'",
    "ncu --kernel-name 'regex:" + "y z" * 60 + "' run",
    'ncu --name "a b c" ' + "--flag " * 20,
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("width", [40, 80])
def test_a_broken_command_line_still_means_the_same(command: str, width: int) -> None:
    lines = shell_lines(command, width, 4)
    assert all(len(line) <= width for line in lines)
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(command)


def test_a_quoted_word_may_break_at_any_place() -> None:
    for count in range(30, 50):
        command = "run 'a" + "b c" * count + '\' "d e"'
        lines = shell_lines(command, 40, 2)
        assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(command)


def test_an_option_stays_with_its_value() -> None:
    command = "bench --model M throughput --dataset DATA --flag --report FILE"
    lines = shell_lines(command, 34, 0)
    assert [line.removesuffix(" \\").strip() for line in lines] == [
        "bench --model M throughput",
        "--dataset DATA --flag",
        "--report FILE",
    ]
