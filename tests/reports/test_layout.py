from __future__ import annotations

import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from advisor.reports.layout import Line, Page, Styled, cut_end, cut_middle, pad, shell_lines, wrap
from advisor.reports.output_file import clean

TEXT = st.text(max_size=200)


@given(TEXT, st.integers(8, 120), st.integers(8, 120))
def test_wrapped_lines_fit(text: str, width: int, first: int) -> None:
    lines = wrap(text, width, min(first, width))
    assert cell_len(lines[0]) <= min(first, width)
    assert all(cell_len(line) <= width for line in lines)


@given(TEXT)
def test_wrapping_loses_nothing(text: str) -> None:
    assert "".join(wrap(text, 12)).replace(" ", "") == clean(text).replace("\u00a0", " ").replace(" ", "")


@given(TEXT, st.integers(1, 60))
@example("⺀00", 3)
def test_cut_text_fits(text: str, width: int) -> None:
    assert cell_len(cut_middle(text, width)) <= width
    assert cell_len(cut_end(text, width)) <= width


@pytest.mark.parametrize(
    ("text", "width", "first", "lines"),
    [
        ("ab cd", 5, 5, ["ab cd"]),  # exactly the room there is
        ("ab cd", 4, 4, ["ab", "cd"]),
        ("abcdef", 6, 2, ["", "abcdef"]),  # the first line too short: left to what leads
        ("abcdef", 6, 6, ["abcdef"]),
        ("abcdefgh", 4, 4, ["abcd", "efgh"]),  # no empty line at the end
        ("abcdefghi", 4, 2, ["", "abcd", "efgh", "i"]),
        ("归归归", 3, 3, ["归", "归", "归"]),  # two cells each
    ],
)
def test_lines_are_filled(text: str, width: int, first: int, lines: list[str]) -> None:
    assert wrap(text, width, first) == lines


@pytest.mark.parametrize(
    ("width", "shown"), [(6, "abcdef"), (5, "ab…ef"), (4, "ab…f"), (3, "a…f"), (2, "ab"), (1, "a")]
)
def test_the_middle_goes_where_room_for_both_ends_is_left(width: int, shown: str) -> None:
    assert cut_middle("abcdef", width) == shown


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("one two three", 13, "one two three"),
        ("one two three", 12, "one two thr…"),  # the word would be more than 30 %
        ("eleven words, ten", 16, "eleven words…"),
        ("1234567 90 x", 11, "1234567 90…"),
        ("1234567 90123", 11, "1234567 90…"),
        ("12345678 0 x", 11, "12345678…"),
        ("12345678 01234", 12, "12345678…"),
        ("abc", 2, "a…"),
        ("abc", 1, "…"),
        ("归归", 2, "…"),  # no room for half a character
    ],
)
def test_the_end_goes_at_a_word_that_costs_little(text: str, width: int, shown: str) -> None:
    assert cut_end(text, width) == shown


def test_a_number_stays_with_its_unit() -> None:
    assert wrap("the GPU idles 52.3 % of it", 19) == ["the GPU idles", "52.3 % of it"]


def test_cut_in_the_middle_keeps_both_ends() -> None:
    assert cut_middle("nvjet_sm90_tst_128x8_64x12_TNT", 15) == "nvjet_s…x12_TNT"


def test_control_characters_never_pass() -> None:
    assert clean("a\x1b[31mb\tc\nd\u202ee\ud800") == "a?[31mb c d?e?"
    assert clean("x\ufffe\uffff\u061cy") == "x???y"  # XML cannot hold the first two


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


CALLS = [(["k" * 14, "b"], False), (["1,000", "2"], True), (["some words to read", "x"], False)]


def drawn(page: Page) -> list[str]:
    return [line.plain for line in page.lines]


def test_what_is_too_wide_is_cut_where_most_is_to_spare() -> None:
    page = Page(40)
    page.table(("name", "n", "what"), CALLS)
    assert drawn(page) == [
        "  name                n  what",
        "  kkkkkkkkkkkkkk  1,000  some wo…to read",
        "  b                   2  x",
    ]


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_a_table_that_just_fits_is_not_changed(wrapped: bool, whole: bool) -> None:
    page = Page(43)
    page.table(("name", "n", "what"), CALLS, wrapped=wrapped, whole=whole)
    assert drawn(page)[1:] == ["  kkkkkkkkkkkkkk  1,000  some words to read", "  b                   2  x"]


def test_the_last_column_goes_on_below_itself_before_another_is_cut() -> None:
    page = Page(42)
    page.table(("name", "n", "what"), CALLS, wrapped=True)
    assert drawn(page)[1:] == [
        "  kkkkkkkkkkkkkk  1,000  some words to",
        "                         read",
        "  b                   2  x",
    ]
    page = Page(40)
    page.table(("name", "n", "what"), CALLS, wrapped=True)
    assert drawn(page)[1] == "  kkkkkk…kkkkkk  1,000  some words to"


def test_the_first_column_gives_way_where_it_can_stand_above() -> None:
    page = Page(42)
    page.table(("name", "n", "what"), CALLS, whole=True)
    assert drawn(page)[1:] == [
        "  kkkkkkkkkkkkkk",
        "                 1,000  some words to read",
        "  b                  2  x",
    ]


@pytest.mark.parametrize(("room", "columns"), [(42, 3), (41, 3), (40, 2)])
def test_a_column_stays_where_its_least_width_fits(room: int, columns: int) -> None:
    page = Page(room)
    page.table(("name", "n", "m"), [(["k" * 30], False), (["1" * 12], True), (["2" * 11], True)])
    assert len(page.lines[1].plain.split()) == columns
    assert len(page.lines[1].plain) <= room


def test_the_first_column_stays_whatever_the_room() -> None:
    page = Page(40)
    page.table(("name", "n"), [(["k" * 30], False), (["1" * 40], True)], indent=28)
    assert drawn(page) == [" " * 28 + "name", " " * 28 + "kkkkkk…kkkkk"]


def test_a_table_begins_at_its_indent() -> None:
    page = Page()
    page.table(("name", "n"), [(["a"], False), (["1"], True)], indent=5)
    assert drawn(page) == ["     name  n", "     a     1"]


def test_a_table_without_rows_or_columns_is_nothing() -> None:
    page = Page()
    page.table((), ())
    page.table(("name",), [([], False)])
    assert page.lines == []


def test_cells_have_the_style_of_their_text() -> None:
    page = Page()
    page.table(("level", "n"), [(["HIGH", "b"], False), (["1", "2"], True)], styles={"HIGH": "red"})
    assert [[str(span.style) for span in line.spans] for line in page.lines] == [["dim", "dim"], ["red"], []]


def test_styles_cover_what_is_left_of_their_text() -> None:
    page = Page(40)
    page.line("ab", ("cde", "bold"), "f")
    page.line("ab", ("  ", "dim"))
    page.line("ab", ("c  ", "dim"))
    assert page.lines == [
        Line("abcdef", (Styled(2, 5, "bold"),)),
        Line("ab"),
        Line("abc", (Styled(2, 3, "dim"),)),
    ]


def test_wrapped_lines_end_where_the_page_does() -> None:
    page = Page(40)
    page.wrapped("word " * 30, indent=8)
    assert {cell_len(line) for line in drawn(page)[1:-1]} == {37}  # six words behind eight cells
    assert "…" not in "".join(drawn(page))
    page = Page(40)
    page.wrapped("a " * 60, indent=20)
    assert drawn(page)[1] == " " * 20 + "a a a a a a a a a a"


def test_the_last_of_two_columns_goes_where_both_find_no_room() -> None:
    page = Page(40)
    page.table(("a", "b"), [(["1" * 30], True), (["2" * 30], True)])
    assert drawn(page) == ["  " + "a".rjust(30), "  " + "1" * 30]
    page = Page(40)
    page.table(("number",), [(["1" * 50], True)])
    assert drawn(page)[1] == "  " + "1" * 37 + "…"


def test_a_line_that_just_fits_is_whole() -> None:
    page = Page(40)
    page.line("x" * 20, "y" * 20)
    page.line("x" * 40, "y")
    page.line("x" * 39, "yz")
    assert drawn(page) == ["x" * 20 + "y" * 20, "x" * 40, "x" * 39 + "…"]


def test_wrapped_text_hangs_behind_what_leads_it() -> None:
    page = Page(40)
    page.labelled("label", "a" * 28 + " b", indent=2)
    page.labelled("x" * 18, "c" * 15, indent=4, label_width=18)
    page.wrapped("d" * 9, ["y" * 33], indent=2)
    assert drawn(page) == [
        "  label     " + "a" * 28,
        "            b",
        "    " + "x" * 18 + "c" * 15,
        "y" * 33,
        "  ddddddddd",
    ]


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
    for count, width in ((count, width) for count in range(30, 50) for width in (40, 41)):
        command = "run 'a" + "b c" * count + '\' "d e"'
        lines = shell_lines(command, width, 2)
        assert shlex.split("\n".join(lines).replace("\\\n", "")) == shlex.split(command)


def test_an_option_stays_with_its_value() -> None:
    command = "bench --model M throughput --dataset DATA --flag --report FILE"
    lines = shell_lines(command, 34, 0)
    assert [line.removesuffix(" \\").strip() for line in lines] == [
        "bench --model M throughput",
        "--dataset DATA --flag",
        "--report FILE",
    ]


def test_an_option_whose_value_finds_no_room_beside_it_is_not_broken() -> None:
    """Ten cells are left out at each line, and room is kept for the backslash."""
    words = ["--option", "v" * 20]
    assert shell_lines(" ".join(["run", *words]), 40, 10) == [
        " " * 10 + "run --option \\",
        " " * 12 + "v" * 20,
    ]


def test_a_command_fills_its_lines() -> None:
    """Two cells of a line are kept for the backslash that joins it with the next."""
    assert shell_lines("run " + "a" * 34 + " b", 40, 0) == ["run " + "a" * 34 + " \\", "  b"]
    assert shell_lines("run " + "a" * 30 + " bc", 40, 0) == ["run " + "a" * 30 + " bc"]
    assert shell_lines("run " + "a" * 30 + " b cd", 40, 0) == ["run " + "a" * 30 + " b \\", "  cd"]


def test_an_option_and_its_value_go_to_the_next_line_together() -> None:
    assert shell_lines("program --flag " + "v" * 27, 40, 0) == ["program \\", "  --flag " + "v" * 27]
    assert shell_lines("program --flag " + "v" * 28, 40, 0) == ["program --flag \\", "  " + "v" * 28]


def test_a_word_longer_than_a_line_is_broken_at_its_end() -> None:
    assert shell_lines("a" * 36, 40, 2) == ["  " + "a" * 36]
    assert shell_lines("a" * 38, 40, 2) == ["  " + "a" * 34 + "\\", "aaaa"]
    assert shell_lines("a" * 72, 40, 2) == ["  " + "a" * 34 + "\\", "a" * 36 + "\\", "aa"]


def test_quotes_are_closed_before_a_line_ends_and_opened_on_the_next() -> None:
    assert shell_lines("'" + "b " * 30 + "'", 40, 2) == ["  '" + "b " * 16 + "b'\\", "' " + "b " * 13 + "'"]
    assert shell_lines("'" + "b " * 30 + "'", 41, 2) == ["  '" + "b " * 17 + "'\\", "'" + "b " * 13 + "'"]
