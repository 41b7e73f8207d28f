"""Every kind of block on a page of text, to the cell: margins, hanging lines, empty lines."""

from __future__ import annotations

from advisor.reports.blocks import (
    Block,
    Command,
    Do,
    Entry,
    Grid,
    Heading,
    Heat,
    Item,
    Labelled,
    Next,
    Paragraph,
    Rule,
)
from advisor.reports.layout import Page
from advisor.reports.text import plain, write


def test_texts_lists_and_advice() -> None:
    shown = plain(
        [
            Heading("Heads", "a note"),
            Paragraph("First."),
            Paragraph("Second."),
            Paragraph("Third.", dense=True),
            Labelled("file", "a.sqlite"),
            Labelled("a longer label", "b"),
            Command("advisor " + "--option value " * 7),
            Heat((("GPU 0", "97.5", (0.0, 0.5, 1.0, None)), ("a", "3", (0.1,))), "1.0 s", "2.0 s"),
            Item(
                "done",
                "ok",
                "ABC101",
                notes=("a remark " * 10,),
                url="https://example.invalid",
                below=(Paragraph("below"),),
            ),
            Do(
                "word " * 20,
                (("vLLM", "drop --flag", "since 1"), ("", "x " * 40, "")),
                "a note",
                "it falls " * 10,
            ),
        ]
    )
    assert shown == TEXTS


TEXTS = r"""
Heads  a note
First.

Second.
Third.
  file            a.sqlite
  a longer label  b
  advisor --option value --option value --option value --option value \
    --option value --option value --option value
  GPU 0   ▒█    97.5 %
  a      ░      3 %
         1.0 s to 2.0 s
  ✓ ABC101: done
      a remark a remark a remark a remark a remark a remark a remark a remark a
        remark a remark
    https://example.invalid
  below
  fix       word word word word word word word word word word word word word
            word word word word word word word
              vLLM: drop --flag (since 1)
              x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x x
                x x x x x x x
              a note
            verify: it falls it falls it falls it falls it falls it falls it
              falls it falls it falls it falls
"""[1:-1]


def test_a_finding_and_a_table() -> None:
    shown = plain(
        [
            Entry(1, "high", "ABC101 name", "GPU 0", "new", (Paragraph("Why."), Labelled("gain", "2 x"))),
            Rule(),
            Grid(
                ("level", "code", "text"),
                (("high", "ABC101", "words " * 12), ("info", "ABC102", "b")),
                more=3,
                wrapped=True,
            ),
            Next("advisor show 1"),
        ]
    )
    assert shown == FINDING


FINDING = """
1. ▲ HIGH   ABC101 name  GPU 0  [new]
   Why.
   gain      2 x

────────────────────────────────────────────────────────────────────────────────

     code    text
  ▲  ABC101  words words words words words words words words words words words
             words
  ·  ABC102  b
  ... and 3 more (-v)
Next: advisor show 1
"""[1:-1]


def styled(*blocks: Block) -> list[tuple[str, list[str]]]:
    page = Page()
    write(page, blocks)
    return [(line.plain, [str(span.style) for span in line.spans]) for line in page.lines]


def test_a_paragraph_may_be_strong() -> None:
    assert styled(Paragraph("a", strong=True), Paragraph("b", dense=True)) == [("a", ["bold"]), ("b", [])]


def test_texts_hang_as_far_as_the_longest_label_around_wants() -> None:
    """Whichever of them it is, and not farther for one behind another block."""
    shown = plain(
        [
            Labelled("file", "a"),
            Labelled("longest label", "b"),
            Labelled("file", "c"),
            Command("x"),
            Labelled("file", "d"),
        ]
    )
    assert shown.splitlines() == [
        "  file           a",
        "  longest label  b",
        "  file           c",
        "  x",
        "  file      d",
    ]


def test_what_follows_a_first_line_hangs() -> None:
    lines = plain(
        [Item("word " * 20, "no"), Heat((("GPU 0", "9", (1.0,)),), "from " * 20, "end")]
    ).splitlines()
    assert [len(line) - len(line.lstrip()) for line in lines] == [2, 4, 2, 9, 9]


def test_only_functions_that_call_stand_above_their_row() -> None:
    rows = (("f " * 30, "k" * 34, 176),)
    for head, lines in (("called from", 3), ("name", 2)):
        assert len(plain([Grid((head, "kernel", "calls"), rows)]).splitlines()) == lines


def test_an_address_goes_on_below_its_beginning() -> None:
    page = Page(40)
    write(page, [Item("read this", url="https://example.org/" + "a" * 30)])
    assert [line.plain for line in page.lines][1:] == [
        "    https://example.org/" + "a" * 16,
        "    " + "a" * 14,
    ]
