"""Ranks of one job that meet in collectives, each with an nsys export of its own.

    job = Cluster(4, clock_errors_us={2: 3_000})
    for i in range(12):
        with job.step(f"decode_step {i}"):
            for _ in range(8):
                job.compute(GEMM, 150, more={3: 80})   # rank 3 takes longer: it comes late
                job.collective(ALL_REDUCE, 20)
    paths = job.write(folder)

A collective starts on each rank when its stream is free and ends everywhere `transfer` after the
last rank came, give or take `skew_us`. Sessions begin at different moments (`session_starts_us`),
clocks may be wrong (`clock_errors_us`), and a rank may record from a later step on (`from_step`) or only
up to one (`until_step`).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.builder import Export
from tests.scenarios.machine import Kernel, Machine

BASE_UTC_NS = 1_700_000_000_000_000_000


class Silent:
    """Takes every row and keeps none: what happens before a capture begins."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_args, **_kwargs: self


class Cluster:
    """`machines[r]` is the host thread of rank r; its times are those of its own session."""

    def __init__(
        self,
        ranks: int,
        *,
        seed: int = 1,
        jitter: float = 0.03,
        skew_us: float = 0.5,
        session_starts_us: Mapping[int, float] | None = None,
        clock_errors_us: Mapping[int, float] | None = None,
        from_step: Mapping[int, int] | None = None,
        until_step: Mapping[int, int] | None = None,
        absolute: bool = True,
        world_size: int | None = None,
        gpu: str | None = "NVIDIA H200",
    ) -> None:
        self._random = random.Random(seed)
        self._jitter, self._skew = jitter, skew_us
        self._from, self._until = dict(from_step or {}), dict(until_step or {})
        self._steps = 0
        #: True time of each session's 0, us.
        self._zero = {r: 1_000.0 * r for r in range(ranks)} | dict(session_starts_us or {})
        self.machines: list[Machine] = []
        self._exports: list[Export] = []
        latest = max(self._zero.values())
        for rank in range(ranks):
            error = (clock_errors_us or {}).get(rank, 0.0)
            utc = BASE_UTC_NS + round((self._zero[rank] + error) * 1_000)
            export = Export(start_utc_ns=utc if absolute else None)
            if gpu is not None:
                export.gpu(name=gpu)
            if world_size is not None:
                export.environment("RANK", str(rank)).environment("WORLD_SIZE", str(world_size))
            machine = Machine(export, pid=100 + rank, start=500 + latest - self._zero[rank])
            self.machines.append(machine)
            self._exports.append(machine.export)
            self._silence(rank)

    def _silence(self, rank: int) -> None:
        quiet = not self._from.get(rank, 0) <= self._steps < self._until.get(rank, self._steps + 1)
        machine: Any = self.machines[rank]
        machine.export = Silent() if quiet else self._exports[rank]

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A range on every rank, and a wait for the GPU at its end."""
        for rank in range(len(self.machines)):
            self._silence(rank)
        with ExitStack() as open_:
            for machine in self.machines:
                open_.enter_context(machine.step(name))
            yield
            for machine in self.machines:
                machine.wait()
        self._steps += 1

    def compute(
        self, kernel: Kernel, us: float, *, more: Mapping[int, float] | None = None, stream: int = 7
    ) -> None:
        """A kernel on every rank, on some of them so many us longer."""
        for rank, machine in enumerate(self.machines):
            length = us * self._random.uniform(1 - self._jitter, 1 + self._jitter)
            machine.launch(kernel, length + (more or {}).get(rank, 0.0), stream=stream)

    def host(self, us: Mapping[int, float]) -> None:
        """Host code on some ranks."""
        for rank, length in us.items():
            self.machines[rank].work(length)

    def told(self, rank: int, by: int, us: float = 30) -> None:
        """The host of `rank` does nothing until a message of `by` reaches it, `us` after that one sent it."""
        self.told_at(rank, self.sent(by), us)

    def sent(self, by: int) -> float:
        """When the host of a rank sends a message now, us of true time."""
        return self.machines[by].now + self._zero[by]

    def told_at(self, rank: int, sent: float, us: float = 30) -> None:
        """The same of a message that was sent then."""
        machine = self.machines[rank]
        machine.now = max(machine.now, sent + us - self._zero[rank])

    def collective(
        self,
        kernel: Kernel,
        transfer: float,
        *,
        stream: int = 7,
        call: float = 4,
        members: Collection[int] | None = None,
    ) -> None:
        """A collective of all ranks, or of some."""
        chosen = [(r, m) for r, m in enumerate(self.machines) if members is None or r in members]
        starts = {r: max(m.now + call + 2, m._free.get(stream, 0.0)) for r, m in chosen}
        end = max(starts[r] + self._zero[r] for r, _ in chosen) + transfer
        for rank, machine in chosen:
            own = end - self._zero[rank] + self._random.uniform(-self._skew, self._skew)
            machine.launch(kernel, max(own - starts[rank], 1.0), stream=stream, call=call)

    def write(self, folder: Path, name: str = "rank{}.sqlite") -> list[Path]:
        return [e.write(folder / name.format(r)) for r, e in enumerate(self._exports)]
