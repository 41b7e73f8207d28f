"""The HTML report as a file: self-contained, well formed, and nothing in it but the document."""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from advisor.model.facts import Interval, Scope, Table
from advisor.model.findings import Baseline, Diagnosis, Gone, Lane, Timeline, Tool
from advisor.model.gain import ToDo
from advisor.reports import json_report
from advisor.reports.blocks import Grid
from advisor.reports.html.report import BRANCHES, prose, tree
from advisor.reports.output_file import clean
from advisor.reports.summary import verdict
from tests.captures import diagnosed
from tests.reports.fixture import DIAGNOSIS, HEALTHY, NASTY, html_page, in_order

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples" / "captures").glob("*.[gx]z"))
LIMIT = 1_650_000
VOID = {"meta", "br", "input", "path", "rect", "circle"}

LANES = ("compute", "copies", "host in CUDA calls", "SM Active", "Tensor Active", "DRAM")
MODULES = Table(
    title="GPU time by Python module",
    columns=("module", "objects", "GPU work", "self:ms", "total:ms", "share:ratio"),
    rows=(
        ("Model", 1, 2, 1.0, 10.0, 1.0), (". DecoderLayer", 2, 1, 0.5, 9.0, 0.9),
        (". . Attention", 2, 40, 6.5, 6.5, 0.65), (". . MLP", 2, 8, 2.0, 2.0, 0.2),
    ),
)  # fmt: skip
FULL = DIAGNOSIS.replaced(
    tables=DIAGNOSIS.tables | {"modules": MODULES},
    timeline=Timeline(
        start_ns=1_200_000_000,
        bin_ns=150_000,
        lanes=tuple(
            Lane(name=name, device=0, values=tuple((i * (k + 3) % 97) / 97 for i in range(2_000)))
            for k, name in enumerate(LANES)
        ),
        marks=tuple(
            Interval(
                start_ns=1_200_000_000 + i * 9_000_000,
                end_ns=1_200_000_000 + (i + 1) * 9_000_000 - (i % 3) * 400_000,
                label="prefill" if i == 0 else "decode",
            )
            for i in range(33)
        ),
    ),
    findings=(
        DIAGNOSIS.findings[0].replaced(baseline="new"),
        *(f.replaced(baseline="known") for f in DIAGNOSIS.findings[1:]),
    ),
    baseline=Baseline(
        path="old.json",
        capture="a.sqlite",
        verdict="was fine",
        new=1,
        known=2,
        gone=(
            Gone(code="SYN101", cause="blocking-sync", title=NASTY, severity="high"),
            Gone(
                code="UTL102",
                cause="memory-bandwidth-bound",
                title="bound",
                severity="high",
                scope=Scope(device=0),
                status="not_evaluated",
            ),
        ),
    ),
)


@cache
def page(many: bool = False) -> str:
    return html_page([FULL, HEALTHY] if many else [FULL]).decode()


class Checker(HTMLParser):
    """Balanced elements, unique ids, and what the page would load."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.wanted: set[str] = set()
        self.loads: list[str] = []
        self.problems: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in given:
            self.ids.append(given["id"] or "")
        for name in ("aria-controls", "aria-labelledby", "aria-describedby", "for"):
            self.wanted.update((given.get(name) or "").split())
        if (given.get("href") or "").startswith("#"):
            self.wanted.add((given["href"] or "")[1:])
        for name in ("src", "srcset", "poster", "data", "action"):
            if given.get(name):
                self.loads.append(f"{tag} {given[name]}")
        if tag in ("link", "iframe", "object", "embed", "img"):
            self.loads.append(tag)
        if any(name.startswith("on") for name in given):
            self.problems.append(f"{tag} has a handler in its attributes")

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> closes nothing of its own")

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text.append(data)


def checked(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    checker.close()
    return checker


@pytest.mark.parametrize("many", [False, True])
def test_well_formed_and_self_contained(many: bool) -> None:
    found = checked(page(many))
    assert found.problems == []
    assert found.open == []
    assert found.loads == []
    assert len(found.ids) == len(set(found.ids))
    assert found.wanted <= set(found.ids)
    assert "url(" not in page(many)
    assert "@import" not in page(many)


def test_a_name_with_script_in_it_stays_text() -> None:
    text = page()
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert clean(NASTY) in "".join(checked(text).text)
    # What is embedded cannot end its element, and reads back as it was.
    whole = json.loads(json_report.render([FULL]))
    blocks = re.findall(r'<script type="application/json" id="c0-drawn">(.*?)</script>', text, re.S)
    assert len(blocks) == 1
    assert "<" not in blocks[0]
    drawn = json.loads(blocks[0])
    assert drawn == {key: whole[key] for key in ("inputs", "findings", "timeline")}
    (saved,) = re.findall(r'<script type="application/gzip" id="c0-json">(.*?)</script>', text)
    assert gzip.decompress(base64.b64decode(saved)) == json_report.render([FULL])


def test_only_our_own_script_may_run() -> None:
    text = page()
    scripts = re.findall(r"<script>(.*?)</script>", text, re.S)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "default-src 'none'" in text


def test_order_of_the_page() -> None:
    text = " ".join("".join(checked(page()).text).split())
    places = [
        "Use CUDA graphs: step 9.92 → 2.31 ms, 4.29 x (3.10 to 4.70)",
        "Against old.json (a.sqlite): 1 new, 2 known, 1 gone, 1 unknown",
        "decode 9.92 ms",
        "At a glance",
        "LCH101 launch-bound",
        "use CUDA graphs",
        "In the baseline only",
        "Budget of the window",
        "launch or other call",
        "Findings",
        "55.3 % of the step",
        "fix",
        "vLLM",
        "drop --enforce-eager",
        "since 0.2.0",
        "launch.idle_ratio falls, now 55.3 %",
        "launch.idle_ratio",
        "55.3 %",
        ">= 10 %",
        "4.29 x (3.10 to 4.70)",
        "Idle by the call that ends it",
        "where (session times",
        "1.234567s for 124 us, stream 7, thread 41873",
        "CUDA graphs",
        "Timeline of the window",
        "What a fix would win",
        "Top kernels",
        "Find a kernel",
        "ncu --set full",
        "Latency distributions",
        "Healthy",
        "ALC101",
        "Not judged",
        "--gpu-metrics-devices=all",
        "UTL102",
        "stopped by launch-bound",
        "HST101",
        "Tables, thresholds and facts",
        "Thresholds",
        "1 changed",
        "Facts",
        "About",
        "advisor 0.1.0, engine durable",
    ]
    in_order(text, places)


def test_cells_with_a_whisker_have_the_width_of_one() -> None:
    cells = re.findall(r'<td class="([\w ]+)"><span class="whisker"', html_page([DIAGNOSIS]).decode())
    assert cells
    assert set(cells) == {"strip"}


def test_values_close_to_their_threshold_differ() -> None:
    assert "9.96 %" in page()
    assert "10 %" in page()


def test_times_are_those_of_the_viewer_of_the_capture() -> None:
    nsys = html_page([FULL]).decode()
    assert "Session times, as the Nsight Systems GUI shows them." in nsys
    entry = FULL.inputs[0].replaced(clock="times from the first event, as Perfetto shows them")
    torch = html_page([FULL.replaced(inputs=(entry,))]).decode()
    assert "Times from the first event, as Perfetto shows them." in torch
    assert "Nsight Systems GUI" not in torch


def test_the_headline_is_the_verdict_of_every_format() -> None:
    for diagnosis in (DIAGNOSIS, HEALTHY):
        heads = re.findall(r"<h1>(.*?)</h1>", html_page([diagnosis]).decode())
        assert heads == [html.escape(verdict(diagnosis))]


def test_a_limit_is_no_severity_and_what_to_do_stands_in_order() -> None:
    limit = DIAGNOSIS.findings[0].replaced(kind="limit")
    do = tuple(
        ToDo(code="X", cause=cause, id="x", action=f"Do {cause}", saved=0.25, because=why)
        for cause, why in (("the-pool", "before graphs: capture fails"), ("graphs", ""))
    )
    text = html_page([DIAGNOSIS.replaced(findings=(limit,), do=do)]).decode()
    assert '<span class="level limit">limit</span>' in text
    assert not re.search(r'class="level (high|medium|low)"', text)
    listed = text[text.index("Do, in this order") :]
    assert listed.index("before graphs: capture fails") < listed.index("Do graphs")
    assert "saves 25 % alone" in listed


def test_steps_of_unknown_phase_are_just_steps() -> None:
    steps = tuple(s.replaced(phase="unknown") for s in DIAGNOSIS.steps[:1])
    text = html_page([DIAGNOSIS.replaced(steps=steps)]).decode()
    assert "<dd>848 kernels a step, GPU busy 41 %; gemv 43 % of kernel time</dd>" in text
    assert "unknown step" not in text


def test_bars_of_many_devices_say_shares_alone() -> None:
    (one,) = [b for b in DIAGNOSIS.budget if b.phase is None][:1]
    many = tuple(one.replaced(device=d) for d in range(8))
    text = html_page([DIAGNOSIS.replaced(budget=many)]).decode()
    legend = text[text.index('<table class="legend">') :].partition("</table>")[0]
    assert legend.count('<th scope="col" class="n">') == 8
    assert " ms<" not in legend


def test_same_input_same_bytes() -> None:
    again = Diagnosis.model_validate_json(FULL.model_dump_json())
    assert html_page([again]) == html_page([FULL])


def test_a_name_that_is_not_utf_8() -> None:
    odd = HEALTHY.inputs[0].replaced(path="bad\udcffname\ud800.sqlite")
    text = html_page([HEALTHY.replaced(inputs=(odd,))]).decode()
    assert "bad?name?.sqlite" in text


def test_an_empty_diagnosis_renders() -> None:
    bare = Diagnosis(tool=Tool(version="0", engine="python"), inputs=(), verdict="Nothing to do.")
    assert checked(html_page([bare]).decode()).problems == []


@pytest.mark.parametrize("capture", EXAMPLES, ids=lambda p: p.name.split(".")[0])
def test_size_of_the_examples(capture: Path) -> None:
    text = html_page([diagnosed(capture)])
    assert len(text) < LIMIT
    assert checked(text.decode()).problems == []


@pytest.mark.slow
def test_size_of_the_ranks_of_a_job() -> None:
    from advisor.pipeline.ranks import diagnose_ranks

    folder = ROOT / "examples" / "captures" / "dlrm_8_ranks"
    found = diagnose_ranks([(None, path) for path in sorted(folder.glob("*.gz"))])
    assert len(html_page([found])) < LIMIT


def test_modules_fold_as_the_tree_they_are() -> None:
    page = html_page([FULL]).decode()
    modules = page[page.index('<ul class="tree">') :]
    names = re.findall(r'(<details|<div class="leaf").*?<span class="heading">(\w+)', modules)[:4]
    assert names == [
        ("<details", "Model"),
        ("<details", "DecoderLayer"),
        ('<div class="leaf"', "Attention"),
        ('<div class="leaf"', "MLP"),
    ]
    assert "<small>self ms</small> 6.50" in modules


def test_a_tree_keeps_the_rows_that_take_most() -> None:
    rows = [("Model", 10_000.0), *((f"Layer_{i}", float(i)) for i in range(BRANCHES + 40))]
    grid = Grid(("module", "total:ns"), tuple(rows), levels=(0, *(1 for _ in rows[1:])))
    found = tree(grid)
    (root,) = found.branches
    assert found.more == 41
    assert [x.name.text for x in root.below] == [f"Layer_{i}" for i in range(41, BRANCHES + 40)]


def test_the_name_of_an_option_is_not_broken_at_its_dashes() -> None:
    option = '<span class="option">--gpu-metrics-devices</span>'
    assert prose("capture with --gpu-metrics-devices=all") == f"capture with {option}=all"
    assert prose("give `--gpu-metrics-devices`") == f"give <code>{option}</code>"
    short = '<span class="option">-q</span>'
    assert prose("`nvidia-smi -q`") == f"<code>nvidia-smi {short}</code>"
    assert prose("a--b <i>") == "a--b &lt;i&gt;"
