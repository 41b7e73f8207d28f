"""Events in a real browser: a finding opens its place; zoom, search, keys, details; comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.comparison.before_after import compare
from advisor.comparison.sides import Side, sketch
from advisor.model.findings import Diagnosis
from advisor.model.kernel_labels import kernel_label
from advisor.pipeline.diagnose import diagnose
from advisor.reports.experiment_blocks import report as compared
from advisor.reports.html import report as html_report
from advisor.reports.html.charts import EVENT_NAME
from advisor.reports.layout import cut_middle
from tests.captures import committed
from tests.reports import browser
from tests.reports.axe import violations
from tests.reports.browser import Browser
from tests.reports.fixture import html_page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser.find() is None, reason="no Chromium on this machine"),
]
CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")
VIEW = "(() => { const e = document.querySelector('.events').events; return [e.a, e.b]; })()"
DETAILS = "document.querySelector('.events .details').textContent"


@pytest.fixture(scope="module")
def sides() -> list[Diagnosis]:
    return [diagnose(committed(name), drawn=True) for name in ("decode_eager_bs1", "decode_graph_bs1")]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, sides: list[Diagnosis]) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("events")
    before, after = (Side(n, [d]) for n, d in zip(("before", "after"), sides, strict=True))
    both = compare(before, after).replaced(sketch=sketch(before, after))
    made = {
        "diagnosis": html_page(sides[:1]),
        "comparison": html_report.document(compared(both)),
        "several": html_page(sides),
    }
    for name, page in made.items():
        (folder / f"{name}.html").write_bytes(page)
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture(scope="module")
def shared() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture
def opened(shared: Browser, pages: dict[str, Path]) -> Iterator[Browser]:
    shared.errors.clear()
    shared.resize(1280, 900)
    shared.open(pages["diagnosis"])
    yield shared
    assert shared.errors == []


def test_the_timeline_names_kernels(opened: Browser, sides: list[Diagnosis]) -> None:
    """By mouse and by keys: the short name, the full one, how long it takes; and the finding's places."""
    tip, readout = (
        f"document.querySelector('.timeline {part}').textContent" for part in (".tip", ".readout")
    )
    opened.ask("document.querySelector('.timeline canvas').focus({focusVisible: true})")
    opened.key(".")
    first = opened.ask(tip)
    opened.key(".")
    assert opened.ask(tip) != first
    assert " us" in opened.ask(readout)
    names = {n for e in sides[0].excerpts for n in e.texts}
    full = opened.ask("document.querySelector('.timeline .tip .full').textContent").strip()
    label = opened.ask("document.querySelector('.timeline .tip .kernel span').textContent")
    assert any(cut_middle(name, EVENT_NAME) == full and kernel_label(name) == label for name in names)
    opened.key(",")
    assert opened.ask(tip) == first
    opened.key("Escape")
    assert opened.ask("document.querySelector('.timeline .tip').hidden")
    low, high, spot = opened.ask(
        "(() => { const t = document.querySelector('.timeline').timeline, c = t.canvas;"
        " c.scrollIntoView({block: 'center'}); const r = c.getBoundingClientRect();"
        " const w = t.work().find((x) => x.from > t.a && x.length > 10000);"
        " return [t.a, t.b, [r.x + t.x((w.from + w.to) / 2), r.y + 60]]; })()"
    )
    opened.mouse("mouseMoved", *spot)
    assert opened.ask("document.querySelectorAll('.timeline .tip .kernel').length") >= 1
    assert any(low < r.start_ns < high for r in sides[0].findings[0].time_ranges)


def test_pages_are_light(pages: dict[str, Path]) -> None:
    assert all(page.stat().st_size < 2_000_000 for page in pages.values())


def test_a_place_of_a_finding_shows_its_events(opened: Browser, sides: list[Diagnosis]) -> None:
    opened.ask("document.querySelector('.finding [data-number=\"1\"]').click()")
    place = sides[0].findings[0].time_ranges[1]
    shown = opened.ask("document.querySelector('.events').events.excerpt.place")
    assert shown == [place.start_ns, place.end_ns]
    chosen = "document.querySelector('[data-excerpt]').selectedOptions[0].textContent"
    assert opened.ask(chosen).startswith(f"1. {sides[0].findings[0].code}, place 2")


def test_events_by_keys(opened: Browser) -> None:
    whole = opened.ask(VIEW)
    opened.ask("document.querySelector('.events canvas').focus()")
    opened.key("n")
    assert "takes" in opened.ask(DETAILS)
    opened.key("+")
    low, high = opened.ask(VIEW)
    assert high - low == pytest.approx((whole[1] - whole[0]) / 2)
    opened.key("ArrowRight")
    assert opened.ask(VIEW)[0] > low
    opened.key("0")
    assert opened.ask(VIEW) == whole
    opened.key("/")
    assert opened.ask("document.activeElement.type") == "search"


def test_a_search_counts_and_walks_through_what_it_found(opened: Browser, sides: list[Diagnosis]) -> None:
    field = "document.querySelector('.events input[type=search]')"
    opened.ask(f"{field}.value = 'NVJET'; {field}.dispatchEvent(new Event('input'))")
    step = sides[0].excerpts[0]
    known = sum("nvjet" in step.texts[e.name] for e in step.events)
    assert opened.ask("document.querySelector('.events .count').textContent").startswith(f"{known} found")
    opened.ask(f"{field}.focus()")
    opened.key("Enter")
    details = opened.ask(DETAILS)
    assert "nvjet" in details
    assert "issued by" in details


def test_a_click_tells_of_the_event(opened: Browser) -> None:
    x, y = opened.ask(
        "(() => { const s = document.querySelector('.events'), e = s.events, k = e.events[3];"
        "e.show(k.start - 2000, k.end + 2000); s.scrollIntoView(); const c = $('canvas', s), "
        "r = c.getBoundingClientRect(), t = e.tracks[k.track]; "
        "return [r.x + e.x((k.start + k.end) / 2), r.y + t.top + 17 + k.row * 15 + 6]; })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        opened.mouse(kind, x, y, button="left", clickCount=1)
    assert opened.ask("document.querySelector('.events').events.picked") == 3
    assert "in the capture" in opened.ask(DETAILS)


def test_commands_can_be_copied(opened: Browser) -> None:
    count = "document.querySelectorAll('code.cmd, pre.cmd').length"
    assert opened.ask("document.querySelectorAll('button.copy').length") == opened.ask(count) > 0


@pytest.mark.parametrize(("page", "width"), [("diagnosis", 1280), ("comparison", 390)])
def test_axe_finds_nothing(shared: Browser, pages: dict[str, Path], page: str, width: int) -> None:
    shared.resize(width, 900)
    shared.open(pages[page])
    assert shared.ask("document.documentElement.scrollWidth <= innerWidth")
    assert violations(shared) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_of_a_comparison(shared: Browser, pages: dict[str, Path], scheme: str) -> None:
    shared.media("", scheme)
    shared.open(pages["comparison"])
    assert shared.ask(CONTRAST) == []


def test_a_comparison_draws_both_sides(shared: Browser, pages: dict[str, Path]) -> None:
    shared.open(pages["comparison"])
    tracks = shared.ask("document.querySelector('.events').events.tracks.map((t) => t.name)")
    assert {t.partition(":")[0] for t in tracks} == {"before", "after"}
    assert shared.ask("document.querySelectorAll('svg.sketch g').length") == 2
    shared.ask("document.querySelector('[data-do=theme]').click()")
    assert shared.ask("document.documentElement.dataset.theme") == "light"


def test_several_captures_begin_with_their_step_times(shared: Browser, pages: dict[str, Path]) -> None:
    shared.open(pages["several"])
    rows = shared.ask("[...$('#index table').tBodies[0].rows].map((r) => r.cells[1].textContent)")
    assert rows == ["12.69", "2.08"]
    assert shared.ask("$('#index table').tBodies[0].rows[1].cells[2].textContent").startswith("-83")
