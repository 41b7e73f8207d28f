"""Names of people and machines, and secrets, that a capture's own rows give: of its environment, settings,
command line, processes and texts. What is found there is taken out wherever it stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from advisor.capture.redact_command import is_secret, named
from advisor.capture.redact_text import IDENTITY_NAME, SECRET_NAME, is_environment, path_users, variables
from advisor.numerals import read_int

#: Settings that hold an environment, or the name of a person or machine.
ENVIRONMENT_KEY = re.compile(r"(?i)environment")
IDENTITY_KEY = re.compile(r"(?i)(?:(?:^|:)DEVICE_DISPLAY_NAME|USER_?NAME|HOST_?NAME)$")
COMMAND_KEY = re.compile(r"(?i)^(?P<process>.*):(?:COMMAND|ARGUMENT_(?P<number>\d+))$")
#: A process that is named after its user.
_PROCESS_OF = re.compile(r"\bsshd(?:-session)?: ([\w.-]{1,64})")
#: The name that torch.profiler.tensorboard_trace_handler gives to a file: of the machine, process and time.
_WORKER = re.compile(r"([\w.-]{1,253})_\d{1,10}\.\d{10,20}\.pt\.trace\.json")


class Names(Struct, frozen=True):
    """`words` name people and machines, `secrets` are values that must be gone."""

    words: frozenset[str]
    secrets: frozenset[str]


def names_of(settings: Iterable[tuple[str, str]], texts: Iterable[str], command: Sequence[str] = ()) -> Names:
    """What the settings of a capture, by name, its texts and its command line give away."""
    words: set[str] = set()
    secrets: set[str] = set()

    def identity(value: str) -> None:
        words.update((value, value.partition(".")[0]))

    def environment(text: str) -> None:
        for name, value in variables(text):
            if IDENTITY_NAME.match(name):
                identity(value)
            elif SECRET_NAME.search(name) and not value.isdigit():
                secrets.add(value)
            words.update(path_users(value))

    for name, value in settings:
        if ENVIRONMENT_KEY.search(name) or is_environment(value):
            environment(value)
        elif IDENTITY_KEY.search(name) or IDENTITY_NAME.match(name):
            identity(value)
        elif not COMMAND_KEY.match(name) and (secret := is_secret(name, value)) is not None:
            if secret:
                secrets.add(value)
            else:
                identity(value)
        words.update(path_users(value))
    for text in texts:
        words.update(path_users(text))
        if is_environment(text):
            environment(text)
        elif len(text) < 300 and (found := _PROCESS_OF.search(text)):
            words.add(found[1])
    for value, secret in named(command):
        (secrets if secret else words).add(value)
    return Names(frozenset(words - {""}), frozenset(secrets - {""}))


def file_names(name: str) -> Iterator[str]:
    """The machine that the name of a trace file holds."""
    if found := _WORKER.match(name):
        yield found[1]
        yield found[1].partition(".")[0]


def commands(settings: Iterable[tuple[str, str]]) -> Iterator[list[str]]:
    """The command line of each process, its words in their order."""
    found: dict[str, list[tuple[int, str]]] = {}
    for key, value in settings:
        if hit := COMMAND_KEY.match(key):
            found.setdefault(hit["process"], []).append((read_int(hit["number"] or "-1") or 0, value))
    for words in found.values():
        yield [value for _, value in sorted(words, key=lambda word: word[0])]
