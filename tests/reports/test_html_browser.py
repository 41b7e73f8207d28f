"""The HTML report in a real browser: no errors, no requests, quick, usable by mouse and keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from advisor.pipeline.diagnose import diagnose
from advisor.reports import json_report
from tests.builder import Export
from tests.captures import committed
from tests.reports import browser
from tests.reports.browser import Browser
from tests.reports.fixture import HEALTHY, html_page
from tests.reports.test_html import FULL

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser.find() is None, reason="no Chromium on this machine"),
]

CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
INK = """(() => {
  const c = document.querySelector("canvas"), g = c.getContext("2d"), seen = new Set();
  const d = g.getImageData(0, 0, c.width, c.height).data;
  for (let i = 0; i < d.length; i += 4) seen.add(`${d[i]},${d[i + 1]},${d[i + 2]}`);
  return seen.size;
})()"""
VIEW = "(() => { const t = document.querySelector('.timeline').timeline; return [t.a, t.b]; })()"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("html") / "report.html"
    path.write_bytes(html_page([FULL]))
    return path


@pytest.fixture(scope="module")
def shared() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture
def opened(shared: Browser, report: Path) -> Iterator[Browser]:
    shared.errors.clear()
    shared.requests.clear()
    shared.media("", "light")
    shared.resize(1280, 900)
    shared.open(report)
    yield shared
    assert shared.errors == []
    assert all(url == report.as_uri() for url in shared.requests), shared.requests


def test_the_document_can_be_saved(opened: Browser) -> None:
    text = opened.ask("unpacked('c0-json').then((blob) => blob.text())")
    assert json.loads(text) == json.loads(json_report.render([FULL]))


def test_no_errors_and_no_requests(opened: Browser) -> None:
    assert opened.ask("document.scripts.length") == 3
    assert opened.ask("document.title") == "decode_[eager]_batch_size_1.sqlite · advisor"
    assert opened.ask("window.alerted") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(opened: Browser, scheme: str) -> None:
    opened.media("", scheme)
    opened.ask("document.querySelector('[data-do=expand]').click()")
    assert opened.ask(CONTRAST) == []


def test_the_theme_can_be_chosen(opened: Browser) -> None:
    shade = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('.timeline')).color"
    light = opened.ask(shade), opened.ask(ink)
    for _ in range(2):
        opened.ask("document.querySelector('[data-do=theme]').click()")
    assert opened.ask("document.documentElement.dataset.theme") == "dark"
    dark = opened.ask(shade), opened.ask(ink)
    opened.media("", "dark")
    opened.ask("document.querySelector('[data-do=theme]').click()")
    assert (opened.ask(shade), opened.ask(ink)) == dark != light


@pytest.mark.parametrize("width", [360, 768, 1280, 1920])
def test_no_sideways_scrolling(opened: Browser, width: int) -> None:
    opened.resize(width, 900)
    opened.ask("document.querySelector('[data-do=expand]').click()")
    assert opened.ask("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [360, 1280])
def test_what_is_said_of_a_finding_has_room(opened: Browser, width: int) -> None:
    opened.resize(width, 900)
    rooms = opened.ask(
        "[...document.querySelectorAll('.finding[open] dl.said > div')].map(e => e.clientWidth)"
    )
    assert min(rooms) > 240


def test_headings_go_down_one_by_one(opened: Browser) -> None:
    levels = opened.ask("[...document.querySelectorAll('h1,h2,h3,h4')].map(e => +e.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert (
        opened.ask(
            "[...document.querySelectorAll('svg[role=img], canvas, [role=img]')]"
            ".filter(e => !e.getAttribute('aria-label')).length"
        )
        == 0
    )
    assert (
        opened.ask(
            "[...document.querySelectorAll('button, select, input')].filter(e => "
            "!(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length"
            ")).length"
        )
        == 0
    )


def test_the_timeline_is_drawn(opened: Browser) -> None:
    assert opened.ask(INK) > 20


@pytest.mark.parametrize("share", [1.0, 0.37])
def test_bars_of_a_lane_touch_without_seams(opened: Browser, share: float) -> None:
    colours = opened.ask(f"""(() => {{
      const t = document.querySelector('.timeline').timeline, lane = t.lanes[0];
      lane.values = lane.values.map(() => {share});
      t.show(t.low + (t.high - t.low) * 0.1003, t.low + (t.high - t.low) * 0.7771);
      const y = Math.round((t.top + 26 - 2) * t.ratio), x = Math.round((t.gutter + 4) * t.ratio);
      const d = t.g.getImageData(x, y, t.canvas.width - x - 16 * t.ratio, 1).data, seen = new Set();
      for (let i = 0; i < d.length; i += 4) seen.add(`${{d[i]}},${{d[i + 1]}},${{d[i + 2]}}`);
      return [...seen];
    }})()""")
    assert len(colours) == 1
    assert colours != ["255,255,255"]


def test_hovering_a_finding_shows_its_places(opened: Browser) -> None:
    before = opened.ask("document.querySelector('canvas').toDataURL()")
    opened.ask("scrollTo(0, 0)")
    spot = opened.ask(
        "(() => { const r = document.querySelector('.glance tbody tr')"
        ".getBoundingClientRect(); return [r.x + 60, r.y + 10]; })()"
    )
    opened.mouse("mouseMoved", *spot)
    assert opened.ask("document.querySelector('canvas').toDataURL()") != before
    assert opened.ask("document.querySelectorAll('.hot').length") == 2
    opened.mouse("mouseMoved", 2, 890)
    assert opened.ask("document.querySelectorAll('.hot').length") == 0


def test_a_place_is_shown_on_the_timeline(opened: Browser) -> None:
    opened.ask("document.querySelector('[data-number=\"2\"]').click()")
    low, high = opened.ask(VIEW)
    place = FULL.findings[0].time_ranges[2]
    assert low < place.start_ns < place.end_ns < high
    assert high - low < 20e6
    assert "3 of 4: 1.252567s" in opened.ask("document.querySelector('.readout').textContent")


def test_the_timeline_opens_at_one_step_of_the_usual_length(opened: Browser) -> None:
    low, high = opened.ask(VIEW)
    shown = [m for m in FULL.timeline.marks if low <= m.start_ns and m.end_ns <= high]
    lengths = sorted(m.end_ns - m.start_ns for m in FULL.timeline.marks)
    assert len(shown) == 1
    assert shown[0].end_ns - shown[0].start_ns == lengths[len(lengths) // 2]


def test_the_timeline_by_keys(opened: Browser) -> None:
    opened.ask("document.querySelector('canvas').focus()")
    opened.key("0")
    whole = opened.ask(VIEW)
    opened.key("+")
    opened.key("+")
    low, high = opened.ask(VIEW)
    assert high - low == pytest.approx((whole[1] - whole[0]) / 4)
    opened.key("ArrowRight")
    assert opened.ask(VIEW)[0] > low
    opened.key("n")
    assert "1 of 4" in opened.ask("document.querySelector('.readout').textContent")
    opened.key("0")
    assert opened.ask(VIEW) == whole
    opened.key("Escape")
    assert opened.ask("document.querySelector('.timeline').timeline.picked") is None


def test_the_timeline_by_mouse(opened: Browser) -> None:
    whole = opened.ask(VIEW)
    x, y, width = opened.ask(
        "(() => { document.querySelector('canvas').scrollIntoView({block: 'center'}); const r = "
        "document.querySelector('canvas').getBoundingClientRect(); return [r.x, r.y, r.width]; })()"
    )
    opened.mouse("mouseMoved", x + width / 2, y + 120)
    tip = opened.ask("document.querySelector('.tip').textContent")
    assert "SM Active" in tip
    assert "decode" in tip
    opened.mouse("mousePressed", x + 300, y + 120, button="left", clickCount=1)
    opened.mouse("mouseMoved", x + 500, y + 120, button="left")
    opened.mouse("mouseReleased", x + 500, y + 120, button="left", clickCount=1)
    low, high = opened.ask(VIEW)
    assert whole[0] < low < high < whole[1]
    opened.mouse("mouseWheel", x + 400, y + 120, deltaX=0, deltaY=240, modifiers=2)
    assert opened.ask(VIEW)[1] - opened.ask(VIEW)[0] > high - low


def search(opened: Browser, text: str) -> None:
    field = "document.querySelector('#c0-kernels ~ .data input[type=search]')"
    opened.ask(f"{field}.value = {text!r}; {field}.dispatchEvent(new Event('input'))")


def test_search_and_sort_of_the_kernel_table(opened: Browser) -> None:
    shown = (
        "[...document.querySelectorAll('#c0-kernel-table tbody tr:not([hidden])')]"
        ".map(r => r.cells[1].textContent)"
    )
    assert len(opened.ask(shown)) == 6
    search(opened, "MULFUNCTOR")
    assert opened.ask(shown) == ["elementwise mul"]
    assert opened.ask("document.querySelector('#c0-kernels ~ .data .count').textContent") == ("1 of 6 rows")
    search(opened, "")
    opened.ask("document.querySelector('#c0-kernel-table [data-sort=\"2\"]').click()")
    assert opened.ask(shown)[:2] == ["elementwise mul", "norm"]
    assert opened.ask("document.querySelector('#c0-kernel-table th[aria-sort]').ariaSort") == ("descending")
    opened.ask("document.querySelector('#c0-kernel-table [data-sort=\"1\"]').click()")
    assert opened.ask(shown) == sorted(opened.ask(shown))


def test_nothing_is_hidden_on_paper(opened: Browser, tmp_path: Path) -> None:
    opened.media("", "dark")
    opened.pdf(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    opened.ask("dispatchEvent(new Event('beforeprint'))")
    assert opened.ask("document.querySelectorAll('.finding:not([open])').length") == 0
    opened.media("print", "dark")
    assert opened.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    opened.media("", "dark")
    opened.ask("dispatchEvent(new Event('afterprint'))")
    assert opened.ask("document.querySelectorAll('.finding:not([open])').length") > 0


def test_several_captures_and_one_without_a_timeline(shared: Browser, tmp_path: Path) -> None:
    path = tmp_path / "several.html"
    path.write_bytes(html_page([FULL, HEALTHY]))
    shared.errors.clear()
    shared.open(path)
    assert shared.errors == []
    assert shared.ask("document.querySelectorAll('.capture').length") == 2
    assert shared.ask("document.querySelectorAll('canvas').length") == 1


def test_every_column_of_the_kernel_table_is_in_sight(shared: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_bytes(html_page([diagnose(committed("decode8b_graph_bs1"))]))
    shared.resize(1280, 900)
    shared.open(page)
    table = "document.querySelector('#c0-kernel-table').parentNode"
    assert shared.ask(f"{table}.scrollWidth <= {table}.clientWidth")


def test_a_capture_of_many_kernels_is_a_light_page(shared: Browser, tmp_path: Path) -> None:
    export = Export().gpu().process(100)
    at = 0
    for step in range(40):
        start = at
        for k in range(1_000):
            name = f"void kernel_{k % 250}<(int){k % 250}, at::native::Functor<float>>(int, T1)"
            export.launch(at, 4_000, name, at + 6_000, 3_000)
            at += 8_000
        export.range(f"iteration {step}", start, at - start)
    capture = export.write(tmp_path / "large.sqlite")
    page = tmp_path / "large.html"
    page.write_bytes(html_page([diagnose(capture)]))
    assert page.stat().st_size < 1_500_000
    shared.errors.clear()
    shared.open(page)
    assert shared.errors == []
    # What is not there need not be laid out: it opens in a fraction of a second.
    assert shared.ask("document.querySelectorAll('*').length") < 15_000
    assert shared.ask("document.querySelector('.timeline').timeline.lanes[0].values.length") <= 2_000
    assert shared.ask("document.querySelectorAll('#c0-kernel-table tbody tr').length") == 200
