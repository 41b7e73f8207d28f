"""A server's profiler, started and stopped: nothing leaves it running."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import current_thread, main_thread
from time import monotonic, sleep
from types import FrameType
from typing import Any

from advisor.errors import InputError
from advisor.recording.server import Call, Server, Unreachable
from advisor.recording.watch import Notify

START, STOP = "/start_profile", "/stop_profile"
#: What the start may take: workers set up their tracing, and some answer when the profile is over.
START_S = 60.0
_LOOK_S = 0.1
#: How often a stop that did not arrive is sent again, and after which time.
_TRIES, _AGAIN_S = 5, 1.0
#: What a stop may take to leave this machine when the user is in a hurry.
_HURRY_S = 5.0


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM and SIGHUP as Ctrl-C, so that what was begun is ended."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    known = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {}
    if current_thread() is main_thread():
        before = {number: signal.signal(number, interrupt) for number in known}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Session:
    """One profile of a server, started by `body`. Afterwards `interrupted` says whether Ctrl-C ended it
    early, `given_up` that the server need not be waited for (the user would not, or it is `gone`), and
    `notes` what the user has to know of it."""

    def __init__(self, server: Server, body: Mapping[str, Any], flush_s: float, notify: Notify) -> None:
        self.notes: list[str] = []
        self.interrupted = self.given_up = self.gone = False
        self._server, self._flush_s, self._notify = server, flush_s, notify
        self._steps = "num_steps" in body  # SGLang stops by itself, and answers a stop with an error then
        self._start = Call(server, START, body or None, flush_s + START_S)

    def record(self, over: Callable[[], bool]) -> None:
        """Profile until `over` says so, asked once the profiler runs; then stop it and wait until the server
        has done so. Raises InputError if the server refuses to start: the profile that may be in progress
        there is of someone else and goes on."""
        start = self._start
        try:
            start.begin()
            self._until(over)
        except KeyboardInterrupt:
            self.interrupted = True
        except Unreachable:  # a server that answers no question any more is left in peace
            pass
        finally:
            if not start.refused:
                self._stop()
        if start.refused:
            raise InputError(self._refusal())

    def _until(self, over: Callable[[], bool]) -> None:
        """Older SGLang answers the start when the steps are over."""
        begun = monotonic()
        while not self._start.failed:
            known = self._start.done.is_set()
            self._notify("profiling" if known or self._steps else "starting the profiler")
            if (known or self._steps or monotonic() - begun > START_S) and over():
                return
            sleep(_LOOK_S)

    def _stop(self) -> None:
        """Tell the server to stop, after the start has arrived, until it has heard it; a second Ctrl-C ends
        the waiting for its answer, and no Ctrl-C keeps the order back."""
        begun, tries = monotonic(), 0
        call: Call | None = None
        early = False  # sent before the start was answered, which may have come in after it
        while True:
            try:
                elapsed, known = monotonic() - begun, self._start.done.is_set()
                if call is None:
                    if self._start.refused:
                        return
                    if known or elapsed > _HURRY_S:
                        early = not known
                        call, tries = Call(self._server, STOP, None, self._flush_s), tries + 1
                        call.begin()
                elif self.given_up and call.sent.is_set():
                    break
                elif call.done.is_set():
                    if not call.sent.is_set() and tries < _TRIES:
                        call = None
                        sleep(_AGAIN_S)
                    elif early and known:
                        call = None
                    elif not early or elapsed > START_S:
                        break
                self._notify("waiting until the profiler has stopped")
                sleep(_LOOK_S)
            except KeyboardInterrupt:
                self.given_up = self.interrupted
                self.interrupted = True
        self._judge(call)

    def _judge(self, call: Call) -> None:
        by_hand = f"curl -X POST {self._server.url}{STOP}"
        if call.error is not None and not call.sent.is_set():
            self.gone = self.given_up = True
            self.notes.append(f"{call.error}; if it still runs, stop its profiler: {by_hand}")
        elif call.answer is None:
            why = "Ctrl-C" if call.error is None else str(call.error)
            self.notes.append(
                f"the profiler was told to stop, and has not answered ({why}); again: {by_hand}"
            )
        elif not call.answer.ok and not self._steps:
            self.notes.append(f"the server would not stop its profiler ({call.answer.reason}): {by_hand}")
        elif not self._start.done.is_set():
            self.notes.append(f"the profiler was stopped, but its start was never answered; again: {by_hand}")

    def _refusal(self) -> str:
        why = self._start.why
        if self._start.answer is None:
            return why
        return (
            f"{self._server.url}: the profiler was not started ({why}); if a profile is left over there, "
            f"stop it: curl -X POST {self._server.url}{STOP}"
        )
