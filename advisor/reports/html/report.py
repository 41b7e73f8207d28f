"""One HTML file with everything in it: no network, light and dark, printable.

Templates escape all values. The document itself is embedded twice: packed, to be saved, and the part
drawn in the timeline as JSON. A policy in the page lets only our own script run, whatever the name of a
kernel.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from advisor import __version__
from advisor.model.findings import Diagnosis
from advisor.model.numbers import milliseconds
from advisor.model.parts import PARTS
from advisor.reports import json_report
from advisor.reports.blocks import Report
from advisor.reports.characters import clean
from advisor.reports.html.charts import anchor, budget_view, piece_pattern
from advisor.reports.html.view import PLACES, parts, tree
from advisor.reports.layout import UNICODE, cut_middle

LEVELS = UNICODE.levels
#: Signs of items; words beside them say the same.
SIGNS = {"ok": "✓", "no": "✗", "partly": "~", "?": "?"} | LEVELS
SCRIPTS = ("page.js", "viewport.js", "timeline.js", "events.js")


def document(report: Report) -> bytes:
    """One page; several captures stand one after the other under a list of them."""
    known = environment()
    shown = parts(report)
    assert known.loader is not None
    script = "".join(known.loader.get_source(known, name)[0] for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = known.get_template("page.html.j2").render(
        parts=shown,
        title=report.title or shown[0].title,
        version=__version__,
        script=Markup(script),
        script_hash=Markup(f"sha256-{digest}"),
    )
    return text.encode("utf-8", "replace")


@cache
def environment() -> Environment:
    """Templates and what they may call."""
    made = Environment(
        loader=PackageLoader("advisor.reports.html", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    made.globals |= {"levels": LEVELS, "signs": SIGNS, "colours": PARTS, "most_places": PLACES}
    made.filters |= {
        "anchor": anchor,
        "budgets": budget_view,
        "cut": cut_middle,
        "embedded": embedded,
        "in_page": in_page,
        "is_link": lambda url: url.startswith(("https://", "http://")),
        "ms": milliseconds,
        "pattern": piece_pattern,
        "prose": prose,
        "tree": tree,
    }
    return made


def _printable(value: Any) -> Any:
    """Text without control characters; finished markup is unchanged."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def prose(text: str) -> Markup:
    """Text of a rule, which quotes commands in backticks; names of options are not broken at a dash."""
    pieces = map(_options, re.split(r"`([^`]+)`", clean(text)))
    return Markup("").join(Markup("<code>{}</code>").format(p) if i % 2 else p for i, p in enumerate(pieces))


def _options(text: str) -> Markup:
    pieces = re.split(r"(?<![\w-])(--?[a-z][\w-]*)", text)
    whole = Markup('<span class="option">{}</span>')
    return Markup("").join(whole.format(p) if i % 2 else p for i, p in enumerate(pieces))


def in_page(value: Any) -> Markup:
    """JSON that ends no element."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def embedded(diagnosis: Diagnosis) -> tuple[Markup, str]:
    """The document in a page: what its scripts draw, and all of it packed, to be saved from there."""
    document = json_report.render([diagnosis])
    whole = json.loads(document.decode("utf-8", "backslashreplace"))
    parts = {key: whole[key] for key in ("inputs", "findings", "timeline")}
    packed = base64.b64encode(gzip.compress(document, mtime=0)).decode()
    return in_page(parts), packed
