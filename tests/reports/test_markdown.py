from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt

from advisor.model.findings import Diagnosis, Tool
from advisor.reports import markdown
from advisor.reports.diagnosis_blocks import report
from advisor.reports.markdown import LIMIT, code, prose, text
from tests.reports.fixture import DIAGNOSIS, HEALTHY, NASTY, in_order
from tests.reports.test_html import FULL


def rendered(*diagnoses: Diagnosis) -> str:
    return markdown.document(report(diagnoses)).decode()


def html(source: str) -> str:
    return str(MarkdownIt("commonmark", {"html": True}).enable("table").render(source))


def test_what_a_comment_shows_before_anything_is_opened() -> None:
    shown = re.sub(r"<details>.*?</details>", "", rendered(FULL), flags=re.S)
    places = [
        "## ",
        "NVIDIA H200",
        "31 decode steps, 1 prefill step",
        "**Use CUDA graphs: step 9.92",
        "Against old.json (a.sqlite): 1 new, 2 known, 1 gone, 1 unknown",
        "severity | state | finding | share | saves | do first |",
        "| 1 | ▲ high | new | LCH101 launch-bound | 55.3 % | - | use CUDA graphs |",
        "### In the baseline only",
        "### Budget of the window",
        "| part | device 0 | device 1 |",
        "launch or other call | 38.1 % | 34.1 %",
        "not judged",
        "Next: `advisor show ",
    ]
    in_order(shown, places)


def test_details_hold_the_rest() -> None:
    shown = rendered(FULL)
    for part in (
        "<summary>1. ▲ high [new]: LCH101 launch-bound (device 0, decode, 85 % sure)</summary>",
        "| `launch.idle_ratio` | 55.3 % | `>= 10 %` | ✓ |",
        "| `launch.empty_queue_ratio` | 9.96 % | `>= 10 %` | ✗ |",
        "**cost**: 55.3 % of the step (launch or other call, 5.49 ms of the traced step)",
        "Idle by the call that ends it",
        "1.234567s for 124 us, stream 7, thread 41873",
        "vLLM: `drop --enforce-eager` (since 0.2.0)",
        "verify: launch.idle\\_ratio falls, now 55.3 %",
        "**see**: [CUDA graphs](https://example.invalid/graphs)",
        "Healthy: 2 checked, in order",
        "Not judged: 5 rules",
        "capture with --gpu-metrics-devices=all",
        "Changed thresholds: 1 parameter",
        "Budget by phase",
        "<summary>Top kernels: share of kernel time</summary>",
    ):
        assert part in shown, part
    assert shown.count("<details>") == shown.count("</details>")


def test_nothing_of_a_name_is_markup() -> None:
    page = html(rendered(FULL))
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\x1b" not in page
    rows = re.findall(r"<tr>.*?</tr>", page, re.S)
    assert all(row.count("<td") in (0, 2, 3, 4, 5, 6, 7) for row in rows)


@pytest.mark.parametrize(
    "nasty", ["a|b", "`x`", "``|``", "*a*_b_", "[x](y)", "~~x~~", "a\nb", "<b>", "\\|", "$x$", "# a", "- a"]
)
def test_any_text_survives(nasty: str) -> None:
    flat = nasty.replace("\n", " ")
    for made in (text(nasty), code(nasty)):
        page = html(f"| a |\n|---|\n| {made} |\n")
        cell = re.search(r"<tbody>\s*<tr>\s*<td>(.*?)</td>", page, re.S)
        assert cell is not None, page
        plain = re.sub(r"<!--.*?-->|<[^>]+>", "", cell[1])
        assert plain.replace("&lt;", "<").replace("&gt;", ">").strip() == flat.strip()


def test_mentions_issues_and_formulas_are_text() -> None:
    assert text("@octocat fixed #12 for $5") == ("@<!-- -->octocat fixed #<!-- -->12 for <span>$</span>5")
    assert text("a@b.c") == "a@b.c"


def test_commands_in_the_words_of_a_rule() -> None:
    assert prose("use `--a|b` *now*") == "use `--a\\|b` \\*now\\*"


def test_it_fits_a_comment() -> None:
    finding = DIAGNOSIS.findings[0]
    many = FULL.replaced(
        findings=tuple(finding.replaced(rank=i, message=f"{finding.message} " * 20) for i in range(1, 60))
    )
    for diagnoses in ([many], [FULL] * 8, [many] * 5, [FULL] * 60):
        out = markdown.document(report(diagnoses))
        assert len(out) <= LIMIT < 65_000
        shown = out.decode()
        assert shown.startswith("## ")
        assert "LCH101" in shown


def test_small_ones_render() -> None:
    assert "## well.sqlite" in rendered(HEALTHY)
    bare = Diagnosis(tool=Tool(version="0", engine="python"), inputs=(), verdict="Nothing to do.")
    assert "Nothing to do." in rendered(bare)
    assert NASTY.split("\x1b", maxsplit=1)[0] not in rendered(FULL).replace("`", "")[:200]


def test_same_input_same_text() -> None:
    again = Diagnosis.model_validate_json(FULL.model_dump_json())
    assert rendered(again) == rendered(FULL)


@pytest.mark.parametrize(
    ("clock", "tool"),
    [
        ("session times, as the Nsight Systems GUI shows them", "Nsight Systems"),
        ("times from the first event of the trace on, as Perfetto shows them", "Perfetto"),
    ],
)
def test_places_are_in_the_times_of_the_tool_that_shows_them(clock: str, tool: str) -> None:
    entry = FULL.inputs[0].replaced(clock=clock)
    shown = rendered(FULL.replaced(inputs=(entry,)))
    assert f"  - ({clock})" in shown
    assert tool in clock
