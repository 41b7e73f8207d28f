"""Every kind of block on a page of text, to the cell: margins, hanging lines, empty lines."""

from __future__ import annotations

from advisor.reports.blocks import (
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
)  # fmt: skip
from advisor.reports.text import plain


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
