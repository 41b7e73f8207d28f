"""The adapter of durable-rules, and the only module that imports it.

Its own host is used for loading only: it swallows errors, runs on background threads and leaks. Here
errors propagate, there are no threads, and memory is returned.
"""

from __future__ import annotations

import json
import math
from functools import cache
from time import thread_time
from types import TracebackType
from typing import Any, NamedTuple

from advisor.engine.compile import Program
from advisor.engine.emit import Absent, Emitter, EngineRule, Masks, Record, absent_of, masks_of
from advisor.engine.interpret import OutcomeLog
from advisor.errors import AdvisorError
from advisor.model.facts import Scope

MAX_RECORDS = 100_000  # about 0.8 GB of engine memory
MAX_FIRINGS = 200_000
MAX_CPU_S = 30.0  # of one inference; 256 ranks take 3 s
_EVERY = 64  # records asserted between two checks of the clock, which cost as much as one of them
_STATE = "0"  # the one working memory that a session uses


class EngineError(AdvisorError):
    """durable-rules is missing or failed; the built-in interpreter still works."""


class _Library(NamedTuple):
    core: Any
    host: Any
    not_handled: type[Exception]
    observed: type[Exception]


@cache
def _imported() -> _Library | str:
    """durable-rules, or why it does not import. On first use, as many verbs run no rules."""
    try:
        import durable_rules_engine as core
        from durable import engine
    except ImportError as exc:
        return f"durable-rules does not import ({exc}); use --engine python"

    class QuietHost(engine.Host):  # type: ignore[misc]
        """Without the two daemon threads, on which callbacks would run."""

        def _run(self) -> None:
            pass

    return _Library(core, QuietHost, engine.MessageNotHandledException, engine.MessageObservedException)


def available() -> tuple[bool, str]:
    """Whether durable-rules imports here, and if not, why (one line)."""
    found = _imported()
    return (False, found) if isinstance(found, str) else (True, "")


def require() -> _Library:
    """Raises EngineError if durable-rules does not import."""
    found = _imported()
    if isinstance(found, str):
        raise EngineError(found)
    return found


def _unused(c: Any) -> None:
    """Actions are never run; the engine insists on exactly one positional argument."""


class Session:
    """One set of engine rules and one working memory.

    After an error the C state may be half updated: drop it then, do not `delete` it."""

    def __init__(self, rules: dict[str, EngineRule]) -> None:
        self._lib = require()
        defs: dict[str, Any] = {name: {**rule, "run": _unused} for name, rule in rules.items()}
        # Fired on close: deleting a state in which nothing ever fired crashes the process.
        defs["end"] = {"all": [{"c0": {"$and": [{"k": "end"}]}}], "run": _unused}
        host = self._lib.host()
        try:
            host.register_rulesets({"advisor": defs})
        except Exception as exc:
            raise EngineError(f"durable-rules refuses the rules ({exc})") from exc
        self._rules = host.get_ruleset("advisor")
        self._count = 0
        self._offset: Any = None
        self._began = 0.0

    def _in_time(self) -> None:
        """Raise EngineError if an inference takes longer than the built-in rules ever do."""
        if thread_time() - self._began > MAX_CPU_S:
            raise EngineError(f"durable-rules took more than {MAX_CPU_S:g} s of processor time")

    def add(self, record: Record) -> None:
        """Assert one record: texts and finite floats only."""
        if self._count >= MAX_RECORDS:
            raise EngineError(f"it would take more than {MAX_RECORDS} records")
        if not all(isinstance(v, str) or math.isfinite(v) for v in record.values()):
            raise EngineError(f"not a record for durable-rules: {record}")
        self._assert(record)
        if self._count % _EVERY == 0:
            self._in_time()

    def _assert(self, record: Record) -> None:
        if self._count == 0:
            self._began = thread_time()
        message = {**record, "id": str(self._count)}
        self._count += 1
        try:
            self._offset = self._rules.assert_fact(message)
        except self._lib.not_handled:
            pass  # no rule uses it, and it was not stored
        except (self._lib.core.error, self._lib.observed) as exc:
            raise EngineError(f"durable-rules failed ({exc})") from exc

    def run(self) -> list[tuple[str, dict[str, Any]]]:
        """Drain the agenda: (rule, anchor record) of every activation."""
        if self._offset is None:
            return []
        handle, core = self._rules._handle, self._lib.core
        fired: list[tuple[str, dict[str, Any]]] = []
        try:
            first = core.start_action_for_state(handle, self._offset)
            message = first[1] if first else None
            while message is not None:
                ((rule, match),) = json.loads(message).items()
                fired.append((rule, match["c0"]))
                if len(fired) > MAX_FIRINGS:
                    raise EngineError(f"durable-rules made more than {MAX_FIRINGS} activations")
                self._in_time()
                message = core.complete_and_start_action(handle, self._offset)
        except core.error as exc:
            raise EngineError(f"durable-rules failed ({exc})") from exc
        return fired

    def clear(self) -> None:
        """Forget all records; the rules stay."""
        self._assert({"k": "end"})
        self.run()
        self._rules.delete_state(_STATE)
        self._count, self._offset = 0, None

    def delete(self) -> None:
        self._lib.core.delete_ruleset(self._rules._handle)


#: Cleared sessions, the last used at the end: registering the rules takes as long as matching the facts
#: of a small capture. A session in use is taken out, so that threads share none.
_idle: dict[tuple[Program, Masks, Absent], tuple[Emitter, Session]] = {}
_MOST_IDLE = 4


class Matcher:
    """Finds what fires, stratum by stratum, with durable-rules."""

    def __init__(self, program: Program, log: OutcomeLog) -> None:
        absent = absent_of(program, log.view)
        self._key = (program, masks_of(program, log.view), absent)
        if (kept := _idle.pop(self._key, None)) is None:
            emitter = Emitter(program, log.view, absent)
            kept = emitter, Session(emitter.rules)
        self._kept, self._log = kept, log
        self._added: set[tuple[tuple[str, str | float], ...]] = set()
        self._emitter, self._session = kept[0].over(log.view), kept[1]

    def __enter__(self) -> Matcher:
        for record in self._emitter.base():
            self._session.add(record)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if exc is None:
            self._session.clear()
            _idle[self._key] = self._kept
            if len(_idle) > _MOST_IDLE:
                _idle.pop(next(iter(_idle)))[1].delete()

    def fire(self, stratum: int) -> set[tuple[str, Scope]]:
        """(code, scope) of every rule of the stratum that fires, given the outcomes below it."""
        emitter, session = self._emitter, self._session
        for record in emitter.states(stratum, self._log):
            # Several strata ask for one outcome: added twice it would double the matches of its rules.
            if (outcome := tuple(record.items())) not in self._added:
                self._added.add(outcome)
                session.add(record)
        for record in emitter.join_anchors(stratum):
            session.add(record)
        joined = {(*emitter.meaning[r], emitter.scope_of(a["s"])) for r, a in session.run()}
        for code, alias, scope in sorted(joined, key=lambda j: (j[0], str(j[1]), j[2].sort_key())):
            for record in emitter.joined(code, str(alias), scope):
                session.add(record)
        for record in emitter.anchors(stratum):
            session.add(record)
        return {(emitter.meaning[r][0], emitter.scope_of(a["s"])) for r, a in session.run()}
