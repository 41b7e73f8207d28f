"""A diagnosis in five sentences for a manager: what is slow, why, what to do, what it wins, how sure."""

from __future__ import annotations

import re

from advisor.model.findings import Diagnosis, Finding
from advisor.model.numbers import amount, certainty, milliseconds, percent, percent_range, times
from advisor.model.rules import judges_capture
from advisor.reports import summary

#: An option that a sentence of advice names.
_OPTION = re.compile(r",? (?:with )?\(?--[\w=-]+\)?")


def sentences(d: Diagnosis) -> tuple[str, ...]:
    """Five sentences without codes of rules, names of facts or options."""
    first = summary.headline(d)
    found = None if first is None else summary.in_program(d, first)
    if found is None:
        return (_state(d), *_nothing(d))
    return _state(d), _why(found), _what(d, found), _gain(d, found), _sure(found)


def _state(d: Diagnosis) -> str:
    busy = [i.busy_share for i in d.inputs if i.busy_share is not None]
    busy = busy or _sampled(d)
    works = f"the GPU works {percent_range(busy)} of the time" if busy else ""
    steps = [s for s in d.main_steps if s.count]
    if len(steps) == 1 and len(d.inputs) == 1:
        step, traced = d.inputs[0].untraced_step_ms, milliseconds(d.inputs[0].step_ms or steps[0].mean_ms)
        time = traced if step is None else milliseconds(step.mid)
        about = "about " if step is not None and step.low != step.high else ""
        phase = "" if steps[0].phase == "unknown" else f"{steps[0].phase} "
        text = f"One {phase}step takes {about}{time} ms"
        if time != traced:
            text += f", or {traced} ms while it is recorded"
            return f"{text}; of that the GPU works {percent_range(busy)}." if works else f"{text}."
        return f"{text}, and {works}." if works else f"{text}."
    return f"{works[:1].upper()}{works[1:]}." if works else "The recording does not show how busy the GPU is."


def _sampled(d: Diagnosis) -> list[float]:
    """How busy samples alone show each GPU, 0 to 1."""
    return [f.value for f in d.facts if f.name == "activity.busy_ratio" and isinstance(f.value, float)]


def _why(found: Finding) -> str:
    share = found.impact.share if found.impact is not None else None
    if share is None or judges_capture(found.code):
        return f"{found.title}."
    return f"{found.title}; this accounts for {percent(share)} of the recorded time."


def _what(d: Diagnosis, found: Finding) -> str:
    text = _OPTION.sub("", summary.what_to_do(d, found))
    return f"What to do: {text[:1].lower()}{text[1:]}."


def _gain(d: Diagnosis, found: Finding) -> str:
    mine = d.headline is not None and d.headline.code == found.code
    gain = (d.headline.together if mine and d.headline is not None else None) or found.gain
    if gain is None or gain.speedup is None:
        return "What that wins cannot be estimated from this recording."
    low, high = times(gain.speedup.low), times(gain.speedup.high)
    span = "" if low == high else f" ({low} to {high})"
    if gain.measure == "throughput":
        much = f"{times(gain.speedup.mid)} times as many {gain.per}s a second{span}"
        return f"That gives up to {much}, if requests wait and memory holds them."
    return f"That makes it {times(gain.speedup.mid)} times as fast{span}."


def _sure(found: Finding) -> str:
    sure = certainty(found.confidence)
    if judges_capture(found.code):
        return f"This is {sure}; a better recording shows more."
    return f"It is {sure} that this is the cause; a second recording after the change shows the gain."


def _nothing(d: Diagnosis) -> tuple[str, str, str, str]:
    count = len({e.code for e in d.not_evaluated})
    return (
        "Nothing was found whose fix would shorten a step by much.",
        f"{amount(len({e.code for e in d.ticks}), 'check')} came out in order.",
        f"{amount(count, 'check')} could not be made, because this recording lacks what they need.",
        "No change to the program is advised; a recording with more in it may show more.",
    )
