"""``advisor attach``: the profile of a server that runs, kept as a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from msgspec import Struct

from advisor import __version__
from advisor.model.run import Run
from advisor.pipeline.record import new_folder, noting_failure, now, recorded
from advisor.recording import attach, store
from advisor.recording.load import Load
from advisor.recording.record import Recorded
from advisor.recording.server import Engine, Server, engine_of
from advisor.recording.watch import Notify

#: What a profile of a server answers, as goals of a capture are called.
GOAL = "running-server"


class Order(Struct, frozen=True):
    """What the user asked for, by these `words`, of a server at `url`."""

    url: str
    words: tuple[str, ...]
    wanted: attach.Attach
    folder: Path
    name: str | None = None
    key: str | None = None


def find(order: Order) -> tuple[Server, Engine]:
    """The server and what serves there. Raises InputError for what cannot be recorded."""
    server = Server(order.url, order.key)
    engine = engine_of(server)
    attach.check(order.wanted, server, engine)
    return server, engine


@contextmanager
def begun(order: Order, engine: Engine) -> Iterator[tuple[Path, Run]]:
    """The folder of the run, locked inside, with what is known before it is recorded."""
    with new_folder(order.folder, order.name) as folder:
        yield folder, _begun(order, engine, folder)


def _begun(order: Order, engine: Engine, folder: Path) -> Run:
    commit, dirty = store.revision()
    run = Run(
        name=folder.name,
        begun=now(),
        command=order.words,
        goal=GOAL,
        recorder="server",
        serving_engine=engine.name,
        versions={"advisor": __version__, engine.name: engine.version},
        commit=commit,
        dirty=dirty,
    )
    store.save(folder, run)
    return run


def carry_out(
    order: Order,
    folder: Path,
    run: Run,
    server: Server,
    engine: Engine,
    notify: Notify,
    echo: IO[bytes] | None,
) -> tuple[Run, Recorded, Load | None]:
    """Record the server. Raises InputError where nothing could be recorded; after Ctrl-C there may be no
    captures."""
    with noting_failure(folder, run):
        done, load = attach.attach(order.wanted, server, engine, folder, notify, echo)
    run = recorded(folder, run, done)
    if not done.captures:
        run = run.replaced(state="failed", notes=(*done.notes, "interrupted"))
        store.save(folder, run)
    return run, done, load
