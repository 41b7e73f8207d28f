"""The verbs as functions of texts and numbers that answer with a document of bounded size: what is too
long is cut where it is longest, and says what was left out."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from advisor.capture.redact_text import Scrubber
from advisor.capture.redact_trace import names_here
from advisor.errors import InputError
from advisor.model.findings import named
from advisor.model.options import Options
from advisor.model.records import Frozen

if TYPE_CHECKING:
    from advisor.model.findings import Diagnosis

#: Characters of JSON in an answer; about three of them are a token.
LETTERS = 6_000
#: A list keeps at least this many entries while another one is longer.
_FEWEST = 1
#: Letters for the count of omitted entries, beyond the name of its place.
_COUNTED = 30


def size(document: Any) -> int:
    """Letters of the document as compact JSON."""
    return len(text(document))


def text(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=str)


def shortened(words: str, letters: int = LETTERS) -> str:
    """The beginning of a text, in at most this many letters of JSON."""
    if size(words) <= letters:
        return words
    kept = words[:letters]
    while (excess := size(kept) + 1 - letters) > 0:  # escaped letters take up to six
        kept = kept[: len(kept) - max(excess // 6, 1)]
    return f"{kept}…"


def _dumped(document: Frozen, kept: Collection[str] = (), without: Collection[str] = ()) -> dict[str, Any]:
    """Some fields of a document as plain data: those `kept`, else all but those `without`."""
    whole: dict[str, Any] = json.loads(document.model_dump_json())
    return {k: v for k, v in whole.items() if (k in kept if kept else k not in without)}


def without_empty(value: Any) -> Any:
    """The document without nulls and empty lists, which carry no information."""
    if isinstance(value, dict):
        kept = {k: without_empty(v) for k, v in value.items()}
        return {k: v for k, v in kept.items() if v is not None and v not in ([], {}, "")}
    if isinstance(value, list | tuple):
        return [without_empty(v) for v in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def bounded(document: dict[str, Any], letters: int = LETTERS, first: tuple[str, ...] = ()) -> dict[str, Any]:
    """The document in at most this many letters. Its longest lists lose their last entries, at most half
    of them at a time and those below the keys `first` before others, then its longest texts their ends;
    `left_out` counts both by place. A page of rows ends earlier instead."""
    document = without_empty(document)
    left_out: dict[str, int] = {}
    while size(document) > letters:
        place = _longest(document, first) or _longest(document)
        if place is None:
            break
        holder, key, name = place
        value = holder[key]
        kept, excess = len(value), size(document) + len(name) + _COUNTED - letters
        if isinstance(value, str):
            kept = max(kept // 2, kept - max(excess, 1), 40)
        while isinstance(value, list) and excess > 0 and kept > max(len(value) // 2, _FEWEST):
            kept -= 1
            excess -= size(value[kept]) + 1
        holder[key] = value[:kept] if isinstance(value, list) else value[:kept] + "…"
        if "offset" in holder and key == "rows":
            holder["next_offset"] = holder["offset"] + kept
        else:
            left_out[name] = left_out.get(name, 0) + len(value) - kept
            document["left_out"] = left_out
    return document


def _longest(document: dict[str, Any], keys: tuple[str, ...] = ()) -> tuple[Any, Any, str] | None:
    """The place of the list of several entries with most letters, else of the longest text; with `keys`
    only lists, those below them."""
    lists: list[tuple[int, Any, Any, str]] = []
    texts: list[tuple[int, Any, Any, str]] = []

    def look(holder: Any, key: Any, name: str) -> None:
        value = holder[key]
        if isinstance(value, list) and len(value) > _FEWEST:
            lists.append((size(value), holder, key, name))
        elif isinstance(value, str) and len(value) > 80:
            texts.append((len(value), holder, key, name))
        if isinstance(value, dict | list):
            entries = value.items() if isinstance(value, dict) else enumerate(value)
            for at, _ in entries:
                look(value, at, name if isinstance(value, list) else f"{name}.{at}")

    for key in document:
        if key in keys or (not keys and key != "left_out"):
            look(document, key, key)
    found = max(lists or ([] if keys else texts), key=lambda entry: entry[0], default=None)
    return found and found[1:]


def page(rows: list[Any], offset: int, limit: int) -> dict[str, Any]:
    """Rows from `offset` on, at most `MOST_ROWS`, their number, and where the next page begins."""
    offset = max(offset, 0)
    end = offset + min(max(limit, 1), MOST_ROWS)
    more = {"next_offset": end} if end < len(rows) else {}
    return {"rows": rows[offset:end], "offset": offset, "of": len(rows), **more}


#: Rows of a page, unless asked for fewer; most rows that may be asked for.
ROWS, MOST_ROWS = 20, 100
#: Keys left out of documents and of a finding in full, and keys that are cut first.
_ABOUT = {"tool", "input", "schema_version"}
_UNASKED = {"score", "ranking", "references", "baseline"}
_FIRST = ("time_ranges", "evidence", "alternatives")
#: What the list of findings has of each.
_SHORT = ("rank", "code", "cause", "severity", "title", "message")


class Tools:
    """Answers about the captures below `roots`. With `redact`, no answer holds a path, a name of a
    person or machine, or a secret. Errors are InputError and RuleError."""

    def __init__(self, roots: Sequence[Path], redact: bool = False) -> None:
        self.roots = [Path(os.path.realpath(root)) for root in roots]
        self._redact = redact
        self._lock = Lock()  # one answer at a time: two large captures may not fit in memory
        self._diagnosis = lru_cache(maxsize=4)(self._diagnosed)

    def diagnose(
        self,
        path: str,
        window: str | None = None,
        nvtx: str | None = None,
        phase: str | None = None,
        offset: int = 0,
        limit: int = 5,
        redact: bool = False,
    ) -> dict[str, Any]:
        """What holds the GPU back in a capture: the verdict, what to do first, and the findings in
        the order of what they save, a line each. Begin here; `show` has a finding in full."""
        found = self._of(path, self._options(redact, window=window, nvtx=nvtx, phase=_phase(phase)))
        parts = (p for b in found.budget[:1] for p in b.parts if p.share)
        short = []
        for f in found.findings:
            kept = {name: getattr(f, name) for name in _SHORT}
            saved = f.ranking.saved if f.ranking is not None else None
            do = next((advice.action for advice in f.recommendations), None)
            short.append({**kept, "saved": saved, "scope": f.scope.as_dict(), "do": do})
        document = {
            "verdict": found.verdict,
            "do": [{"code": d.code, "action": d.action, "saved": d.saved} for d in found.do[:limit]],
            "findings": page(short, offset, limit),
            "not_evaluated": found.not_judged,
            "steps": [asdict(s) for s in found.main_steps],
            "budget": [{"part": p.part, "share": p.share} for p in parts],
            "next": "show(path, code) for evidence and how to fix it",
        }
        return self._answer(document, redact)

    def show(self, path: str, code: str, phase: str | None = None, redact: bool = False) -> dict[str, Any]:
        """One finding of a capture in full, by code, cause or rank: numbers, evidence, places, advice
        with options, and how to verify it."""
        found = self._of(path, self._options(redact, phase=_phase(phase)))
        for finding in named(found.findings, code):
            return self._answer(_dumped(finding, without=_UNASKED), redact)
        known = ", ".join(f"{f.code} {f.cause}" for f in found.findings) or "none"
        raise InputError(f"{code}: not a finding of this capture, which has: {known}. explain says why not")

    def explain(
        self, code: str, path: str | None = None, phase: str | None = None, redact: bool = False
    ) -> dict[str, Any]:
        """What a rule looks at, when it is harmless and how to fix it; with a capture: why it fired
        there, why not and how far it missed, or what is missing."""
        if path is None:
            return self._answer({"rule": rule_page(code)}, redact)
        from advisor.pipeline.explain import explain

        with self._lock:
            found = explain(self._file(path), code, self._options(redact, phase=_phase(phase)))
        return self._answer(_dumped(found, without=_ABOUT), redact)

    def whatif(
        self, path: str | None = None, fixes: list[str] | None = None, redact: bool = False
    ) -> dict[str, Any]:
        """The step time after fixes (what-ifs, codes or causes), applied in order to the captured
        timeline, as ranges. Without a capture or fixes: the what-ifs that there are."""
        if path is None or not fixes:
            from advisor.gain.whatifs import catalogue

            return self._answer({"whatifs": {n: w.title for n, w in catalogue().whatifs.items()}}, redact)
        from advisor.pipeline.explain import whatif

        with self._lock:
            found = whatif(self._file(path), fixes, self._options(redact))
        return self._answer(_dumped(found, without=_ABOUT), redact)

    def compare(
        self, before: str, after: str, phase: str | None = None, redact: bool = False
    ) -> dict[str, Any]:
        """What changed between two captures of the same work, by how much, and whether it is more
        than noise."""
        from advisor.pipeline.compare import compare

        with self._lock:
            options = self._options(redact, phase=_phase(phase))
            found = compare(self._file(before), self._file(after), options)
        kept = "verdict summary comparability phases budget operations changes checks gains notes"
        return self._answer(_dumped(found, kept.split()), redact)

    def doctor(self, path: str, redact: bool = False) -> dict[str, Any]:
        """What a capture can and cannot answer, and the command that records a better one."""
        from advisor.pipeline.doctor import doctor

        with self._lock:
            found = doctor(self._file(path), self._options(redact))
        document = _dumped(found, ("sentence", "questions", "blocked"))
        document["record"] = found.plan.command
        document["mind"] = [p.text for p in found.plan.pitfalls]
        return self._answer(document, redact)

    def plan(
        self,
        goal: str | None = None,
        command: list[str] | None = None,
        engine: str | None = None,
        phase: str | None = None,
        place: str = "bare",
        redact: bool = False,
    ) -> dict[str, Any]:
        """How to record a capture for a goal: the nsys command and what to do around it. Without a
        goal: the goals that there are."""
        if goal is None:
            from advisor.knowledge.verb_files import capture_goals

            return self._answer({"goals": {g.id: g.question for g in capture_goals().goals}}, redact)
        from advisor.pipeline.doctor import plan

        found = plan(goal, command or (), engine=engine, phase=_phase(phase), place=place)
        kept = ("title", "question", "steps", "variables", "pitfalls")
        return self._answer(_dumped(found, kept), redact)

    def stats(
        self,
        path: str,
        report: str = "kernels",
        offset: int = 0,
        limit: int = ROWS,
        window: str | None = None,
        redact: bool = False,
    ) -> dict[str, Any]:
        """A table of a capture by page, the heaviest rows first: kernels, tail, api, launch, copies,
        nvtx, trace, histogram, pace, budget."""
        from advisor.pipeline.inputs import one_capture
        from advisor.pipeline.stats import stats_tables

        with self._lock:
            given = one_capture([self._file(path)])
            tables = stats_tables(given.path, [report], self._options(redact, window=window), "full")
        if len(tables) != 1:
            raise InputError(f"report: '{report}' names {len(tables)} reports; ask for one at a time")
        (table,) = tables
        rows = table.frame.astype(object).where(table.frame.notna(), None).to_numpy().tolist()
        about = {"title": table.title, "scope": table.scope, "note": table.note}
        document = about | {"columns": list(table.frame.columns), **page(rows, offset, limit)}
        return self._answer(document, redact)

    def _of(self, path: str, options: Options) -> Diagnosis:
        """The diagnosis of a file as it is now; the last ones are kept."""
        file = self._file(path)
        stamps = [each.stat() for each in (file, *(file.rglob("*") if file.is_dir() else ()))]
        newest, size = max(s.st_mtime_ns for s in stamps), sum(s.st_size for s in stamps)
        with self._lock:
            return self._diagnosis(file, newest, size, options)

    def _options(self, redact: bool, **chosen: Any) -> Options:
        """Options of the analysis. Redaction starts there: the capture's environment holds names to hide."""
        return Options(redact=self._redacts(redact), **chosen)

    def _redacts(self, redact: bool) -> bool:
        return redact or self._redact

    def error_text(self, error: Exception, redact: bool) -> str:
        """The error as shown to the caller, of bounded size."""
        return shortened(_scrubber().text(str(error)) if self._redacts(redact) else str(error))

    @staticmethod
    def _diagnosed(file: Path, _mtime: int, _size: int, options: Options) -> Diagnosis:
        from advisor.pipeline.inputs import of_one, quietly

        return of_one([file]).read(quietly(options)).diagnoses[0]

    def _file(self, path: str) -> Path:
        """The capture, which must be below one of the roots with all that is read of it, links resolved."""
        try:
            places = [(root, Path(os.path.realpath(root / path))) for root in self.roots]
            below = [(root, real) for root, real in places if real.is_relative_to(root)]
            for _, real in below:
                if real.exists():
                    self._hold_below(real, path)
                    return real
        except (OSError, ValueError) as error:  # a name that is too long, or that no file can have
            why = getattr(error, "strerror", None) or error
            raise InputError(f"{path[:80]!r}: cannot be the name of a file here ({why})") from error
        if below:
            raise InputError(f"{path}: no such file below {', '.join(str(root) for root, _ in below)}")
        raise InputError(f"{path}: outside the folders that this server may read")

    def _hold_below(self, real: Path, path: str) -> None:
        """Raise InputError where what belongs to a capture lies elsewhere: files of a folder, the journals of
        a database."""
        journals = [real.with_name(real.name + end) for end in ("-wal", "-journal")]
        for part in (*journals, *(real.rglob("*") if real.is_dir() else ())):
            place = Path(os.path.realpath(part))
            if part.is_symlink() and not any(place.is_relative_to(root) for root in self.roots):
                raise InputError(
                    f"{path}: with {part.name}, a link out of the folders that this server may read"
                )

    def _answer(self, document: dict[str, Any], redact: bool) -> dict[str, Any]:
        # Before long texts are cut: no pattern recognises half a secret.
        shown = _scrubbed(document, _scrubber()) if self._redacts(redact) else document
        return bounded(shown, first=_FIRST)


def rule_page(code: str) -> str:
    """The page of a rule, by code or cause."""
    from advisor.engine.load import builtin_dir, load_rule
    from advisor.knowledge.files import references
    from advisor.reports.markdown import write
    from advisor.reports.rule_blocks import page

    return write(page(load_rule(code, builtin_dir()), references()), 1)


def _phase(phase: str | None) -> Any:
    if phase not in (None, "prefill", "decode"):
        raise InputError(f"phase: invalid value '{phase}'; expected one of prefill, decode")
    return phase


@lru_cache
def _scrubber() -> Scrubber:
    """Removes names of this user and this machine too, which are not in a capture."""
    return Scrubber(names_here())


def _scrubbed(value: Any, scrubber: Scrubber) -> Any:
    if isinstance(value, dict):
        return {k: _scrubbed(v, scrubber) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_scrubbed(v, scrubber) for v in value]
    return scrubber.text(value) if isinstance(value, str) else value
