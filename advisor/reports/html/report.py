"""One HTML file with everything in it: no network, light and dark, printable.

Templates escape whatever they are given. The document itself is embedded twice: packed, to be
saved, and as JSON what the timeline draws of it. A policy in the page lets only our own script run,
whatever a kernel is called.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from advisor.model.facts import Scope
from advisor.model.findings import ConditionDoc, Diagnosis, Verify
from advisor.model.numbers import condition_text, milliseconds, value_text
from advisor.model.parts import PARTS
from advisor.reports import json_report, phrases
from advisor.reports.blocks import Report
from advisor.reports.finding_text import verify_text
from advisor.reports.html.budget import piece_pattern
from advisor.reports.html.view import capture_view
from advisor.reports.layout import clean, cut_middle
from advisor.reports.phrases import remedy_lead

#: Signs of items; words beside them say the same.
SIGNS = {"ok": "✓", "no": "✗", "partly": "~", "?": "?"} | phrases.LEVELS
SCRIPTS = ("page.js", "timeline.js")


def document(report: Report) -> bytes:
    """Diagnoses as a page with a timeline, other documents as a page of their blocks."""
    diagnoses = [d for d in report.documents if isinstance(d, Diagnosis)]
    if diagnoses:
        return render(diagnoses)
    from advisor.reports.html.blocks import page

    return page(report)


def render(diagnoses: Sequence[Diagnosis]) -> bytes:
    """One page; several captures stand one after the other under a list of them."""
    known = environment()
    script = "".join(_source(known, name) for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    captures = [capture_view(d, i) for i, d in enumerate(diagnoses)]
    text = known.get_template("report.html.j2").render(
        captures=captures,
        title=captures[0].title if len(captures) == 1 else f"{len(captures)} captures",
        version=diagnoses[0].tool.version if diagnoses else "",
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
    made.globals |= {"levels": phrases.LEVELS, "signs": SIGNS, "status": phrases.STATUS, "parts": PARTS}
    made.filters |= {
        "baseline": phrases.baseline_text,
        "condition": _condition,
        "cut": cut_middle,
        "embedded": embedded,
        "flip_lines": phrases.flip_lines,
        "is_link": _is_link,
        "lead": remedy_lead,
        "ms": milliseconds,
        "pattern": piece_pattern,
        "prose": prose,
        "ratio": _ratio,
        "scope": _scope,
        "verify": _verify,
    }
    return made


def _source(known: Environment, name: str) -> str:
    loader = known.loader
    assert loader is not None
    return loader.get_source(known, name)[0]


def _printable(value: Any) -> Any:
    """Control characters are no part of a page; what is markup already stays as it is."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def prose(text: str) -> Markup:
    """Text of a rule, which quotes commands in backticks."""
    pieces = re.split(r"`([^`]+)`", clean(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(p) if i % 2 else Markup("{}").format(p) for i, p in enumerate(pieces)
    )


class Embedded(NamedTuple):
    """The document in a page: for its scripts to draw, and packed to be saved from it."""

    drawn: Markup
    packed: str


def embedded(diagnosis: Diagnosis) -> Embedded:
    """What the timeline draws holds no `<`, so that nothing in it can end its element; the whole
    document is gzip in base64, a tenth of its length."""
    document = json_report.render([diagnosis])
    whole = json.loads(document.decode("utf-8", "backslashreplace"))
    parts = {key: whole[key] for key in ("inputs", "findings", "timeline")}
    text = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    packed = base64.b64encode(gzip.compress(document, mtime=0)).decode()
    return Embedded(Markup(text), packed)


def _condition(condition: ConditionDoc) -> str:
    return condition_text(condition)


def _ratio(value: float) -> str:
    return value_text(value, "ratio")


def _scope(scope: Scope) -> str:
    return scope.label()


def _verify(verify: Verify) -> str:
    return verify_text(verify)


def _is_link(url: str) -> bool:
    return url.startswith(("https://", "http://"))
