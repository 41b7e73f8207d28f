"""SARIF 2.1.0: findings as results of a run, for code scanning and review tools.

One run a capture. Fingerprints depend on the code and scope of a finding alone, so that it is the same
alert in the next run. Rules that could not be judged are notifications of the run, not results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from advisor.model.comparison import Comparison
from advisor.model.findings import Diagnosis, Finding, Gone, identity
from advisor.model.numbers import condition_text
from advisor.reports import phrases
from advisor.reports.blocks import Do, Report
from advisor.reports.finding_text import SHOWN, cost_text, gain_text, place_text
from advisor.reports.finding_text import finding as whole
from advisor.reports.markdown import write
from advisor.reports.output_file import clean
from advisor.reports.text import plain

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"high": "error", "medium": "warning", "low": "note", "info": "note"}
#: baselineState of our states.
STATES = {"new": "new", "known": "unchanged"}
FINGERPRINT = "advisorFinding/v1"

Json = dict[str, Any]


def document(report: Report) -> bytes:
    """One run a capture or comparison."""
    runs = [_run(d) for d in report.documents if isinstance(d, Diagnosis | Comparison)]
    text = json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": runs}, indent=2, ensure_ascii=False)
    return f"{text}\n".encode("utf-8", "backslashreplace")


def _run(doc: Diagnosis | Comparison) -> Json:
    """One run over a diagnosis, or over both sides of a comparison. If no phase could be compared it is
    marked as failed, not as clean."""
    gone: Sequence[Gone] = ()
    if isinstance(doc, Diagnosis):
        name, paths, steps, failed = phrases.title(doc), [i.path for i in doc.inputs], bool(doc.steps), False
        ranks = [i.rank for i in doc.inputs]
        gone = doc.baseline.gone if doc.baseline is not None else ()
        properties: Json = {
            "verdict": clean(doc.verdict),
            "engine": doc.tool.engine,
            "inOrder": [clean(f"{h.code} {h.cause}: {h.text}") for h in doc.ticks] or None,
            "close": [clean(f"{h.code} {h.cause}: {h.text}") for h in doc.close] or None,
            "doesNotApply": doc.does_not_apply or None,
            "baseline": phrases.baseline_text(doc) or None,
        }
    else:
        name, steps, ranks = "compare", True, []
        paths = list(dict.fromkeys(i.path for side in (doc.before, doc.after) for i in side.inputs))
        failed = doc.verdict == "not-comparable" and not any(f.invalidates for f in doc.findings)
        score = round(doc.comparability.score, 4)
        properties = {"verdict": doc.verdict, "summary": clean(doc.summary), "comparability": score}
    uris = list(map(_uri, paths))
    rules = {f.code: f for f in reversed(doc.findings)}
    descriptors = [_rule(rules[code]) for code in sorted(rules)]
    descriptors += [_bare_rule(g) for g in gone if g.code not in rules]
    index = {d["id"]: i for i, d in reversed(list(enumerate(descriptors)))}
    results = [_about(f, uris, ranks, index) | _result(f, steps) for f in doc.findings]
    for g in gone:
        if g.status == "gone":
            absent = {"kind": "fail", "level": LEVELS[g.severity], "baselineState": "absent"}
            text = f"{clean(g.title or g.cause)}. No longer found."
            results.append(_about(g, uris, ranks, index) | absent | {"message": {"text": text}})
    invocation: Json = {"executionSuccessful": not failed}
    if failed:
        failure = {"level": "error", "message": {"text": properties["summary"]}}
        invocation["toolExecutionNotifications"] = [failure]
    invocation["toolConfigurationNotifications"] = notes = []
    for n in doc.not_evaluated:
        text = clean(f"{n.code} {n.cause} was not judged: {phrases.why_not_judged(n, True)}.")
        notes.append({"descriptor": {"id": clean(n.code)}, "level": "note", "message": {"text": text}})
    driver = {
        "name": doc.tool.name,
        "version": doc.tool.version,
        "semanticVersion": doc.tool.version,
        "shortDescription": {"text": "An expert system for GPU inference profiles."},
        "rules": descriptors,
    }
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"advisor/{name}/"},
        "artifacts": [{"location": {"uri": uri}, "roles": ["analysisTarget"]} for uri in uris],
        "invocations": [invocation],
        "results": results,
        "columnKind": "utf16CodeUnits",
        "properties": _without_none(properties),
    }


def _rule(finding: Finding) -> Json:
    """A rule as this diagnosis words it: the help is the advice of its first finding."""
    advice = [b for b in whole(finding, False, SHOWN, {}).blocks if isinstance(b, Do)]
    see = [r.title or r.id for r in finding.references]
    links = [f"[{_plain(r.title or r.id)}]({r.url})" for r in finding.references if r.url]
    command = f"advisor explain {clean(finding.code)}"
    more = f"See `{command}` for what the rule looks at and when it is harmless."
    title = clean(finding.title)
    text = [title + ".", *(["What to do:", plain(advice, 0)] if advice else [])]
    text += [f"References: {clean(', '.join(see))}"] * bool(see) + [more.replace("`", "'")]
    markdown = [f"**{_plain(title)}**", write(advice).rstrip()]
    markdown += [f"References: {', '.join(links)}"] * bool(links) + [more]
    url = next((r.url for r in finding.references if r.url), None)
    rule = {
        **_bare_rule(finding),
        "help": {"text": "\n".join(text), "markdown": "\n\n".join(filter(None, markdown))},
        "helpUri": url if url and url.startswith(("http://", "https://")) else None,
        "properties": {"tags": ["performance", "gpu", clean(finding.code[:3])]},
    }
    return _without_none(rule)


def _bare_rule(entry: Finding | Gone) -> Json:
    title = clean(entry.title or entry.cause).rstrip(".") + "."
    return {
        "id": clean(entry.code),
        "name": "".join(p.capitalize() for p in clean(entry.cause).split("-")),
        "shortDescription": {"text": title},
        "fullDescription": {"text": title},
        "defaultConfiguration": {"level": LEVELS[entry.severity]},
    }


def _result(finding: Finding, steps: bool) -> Json:
    cost = cost_text(finding, steps)
    properties = {
        "rank": finding.rank,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "scope": phrases.scope(finding) or None,
        "invalidates": finding.invalidates or None,
        "cost": cost or None,
        "gain": (finding.gain and gain_text(finding.gain)) or None,
        "conditions": [clean(condition_text(c)) for c in finding.conditions],
        "places": [clean(place_text(r)) for r in finding.time_ranges],
        "symptoms": sorted({clean(s.code) for s in finding.explains}),
    }
    text = f"{clean(finding.title)}. {clean(finding.message)}" + (f" Cost: {cost}." if cost else "")
    result = {
        "kind": "fail",
        "level": LEVELS[finding.severity],
        "message": {"text": text},
        "rank": round(min(max(finding.score, 0.0), 1.0) * 100, 2),
        "properties": _without_none(properties),
        "baselineState": STATES[finding.baseline] if finding.baseline is not None else None,
    }
    return _without_none(result)


def _about(
    entry: Finding | Gone, uris: Sequence[str], ranks: Sequence[int | None], index: dict[str, int]
) -> Json:
    """The rule and the location of a finding: in the file of its rank, else in the first."""
    digest = hashlib.sha256(identity(entry.code, entry.scope).encode()).hexdigest()[:32]
    rank = entry.scope.rank
    at = list(ranks).index(rank) if rank is not None and rank in ranks else 0
    location: Json = {}
    if uris:
        # Code scanning requires a region; a capture has only one line.
        file = {"uri": uris[at], "index": at}
        location["physicalLocation"] = {"artifactLocation": file, "region": {"startLine": 1}}
    named = ((k, v) for k, v in entry.scope.as_dict().items() if v is not None)
    if where := "/".join(f"{k} {clean(str(v)).replace('/', '_')}" for k, v in named):
        location["logicalLocations"] = [{"fullyQualifiedName": where, "kind": "resource"}]
    return {
        "ruleId": clean(entry.code),
        "ruleIndex": index[entry.code],
        "locations": [location] if location else [],
        "partialFingerprints": {FINGERPRINT: digest, "primaryLocationLineHash": f"{digest}:1"},
    }


def _uri(path: str) -> str:
    """A relative path as it is, an absolute one as a file URI; bytes that are not UTF-8 as %XX."""
    path = path.replace("\\", "/")
    try:
        raw = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raw = path.encode("utf-8", "replace")
    if path[1:3] == ":/":
        return f"file:///{quote(raw, safe='/:')}"
    return ("file://" if path.startswith("/") else "") + quote(raw, safe="/")


def _plain(text: str) -> str:
    """Text that stays plain in Markdown."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>|" else c for c in clean(text))


def _without_none(values: Json) -> Json:
    return {k: v for k, v in values.items() if v is not None}
