"""Which serving engine made a capture: detected by names, with the signs of `knowledge/engines`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from advisor.errors import InputError
from advisor.knowledge.files import engines
from advisor.knowledge.kernel_names import pattern
from advisor.knowledge.shapes import EngineData, Sign

#: Below this weight of evidence no engine is named; at it, the confidence is one half.
ENOUGH = 2.0
_RELEASE = re.compile(r"v?\d+(?:\.\d+)+\w*")


class ServingEngine(NamedTuple):
    """`name` is None where nothing in the capture shows it; `confidence` is 0..1; `version` is the
    release, where the user or the command line names it."""

    name: str | None
    confidence: float
    evidence: tuple[str, ...]
    version: str | None = None


UNKNOWN = ServingEngine(None, 0.0, ())


def named(text: str) -> ServingEngine:
    """The engine that the user names as ``NAME`` or ``NAME@VERSION``.

    Raises InputError for an engine that is not known and for a malformed version.
    """
    name, at, version = text.partition("@")
    if name not in engines():
        known = ", ".join(sorted(set(engines()) - {"any"}))
        raise InputError(f"--serving-engine: '{name}' is not known; choose from {known}")
    if at and not _RELEASE.fullmatch(version):
        raise InputError(f"--serving-engine: '{version}' is not a version; write {name}@1.2.3")
    return ServingEngine(name, 1.0, ("named by --serving-engine",), version.lstrip("v") or None)


def detect(
    kernel_names_with_time: Mapping[str, float] | Iterable[tuple[str, float]],
    range_names: Iterable[str],
    command: str | Sequence[str] | None,
) -> ServingEngine:
    """The engine with most evidence; each sign counts once, however often it is seen.

    Where an engine shows, the library that it is built on is not a candidate.
    """
    times = dict(kernel_names_with_time)
    texts = list(dict.fromkeys(range_names))
    line = command if isinstance(command, str) else " ".join(command or ())
    found = {name: _evidence(data, times, texts, line) for name, data in engines().items()}
    score = {name: sum(w for w, _ in signs) for name, signs in found.items()}
    likely = {name for name in score if score[name] >= ENOUGH}
    likely -= {base for name in likely for base in _bases(name)}
    if not likely:
        return UNKNOWN
    best = min(likely, key=lambda name: (-score[name], name))
    rivals = (s for name, s in score.items() if name != best and name not in _bases(best))
    confidence = score[best] / (score[best] + max(rivals, default=0.0) + ENOUGH)
    evidence = tuple(text for _, text in found[best])
    return ServingEngine(best, round(confidence, 2), evidence, _version(best, line))


def _version(name: str, line: str) -> str | None:
    """The release that an image or a package in the command line names: ``vllm-openai:v0.11.0``."""
    package = re.escape(name).replace("\\-", "[-_]")
    found = re.search(rf"\b{package}(?:-openai|/release)?(?:==|[:@-])v?(\d+\.\d+\.\d+)\b", line)
    return found[1] if found else None


def _evidence(
    data: EngineData, times: Mapping[str, float], texts: Sequence[str], line: str
) -> list[tuple[float, str]]:
    total = sum(times.values())
    result = []
    for sign in data.recognise.commands:
        if found := pattern(sign.match).first(line):
            result.append((sign.weight, f"command: {found[1][0].strip()}"))
    for sign in data.recognise.ranges:
        if text := _first(sign, texts):
            result.append((sign.weight, f"range: {text[:80]}"))
    for sign in data.recognise.kernels:
        seen = [name for name in times if pattern(sign.match).found(name)]
        if seen:
            top = max(seen, key=lambda name: (times[name], name))
            share = sum(times[name] for name in seen) / total if total else 0.0
            result.append((sign.weight, f"kernels, {share:.1%} of kernel time: {top[:80]}"))
    return result


def _first(sign: Sign, texts: Sequence[str]) -> str | None:
    return next((text for text in texts if pattern(sign.match).found(text)), None)


def _bases(name: str) -> set[str]:
    """The engines that this one is built on; their signs are no evidence against it."""
    base = engines()[name].base
    return set() if base is None else {base} | _bases(base)
