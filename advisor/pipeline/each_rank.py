"""A question about one capture, asked of each rank of a job, in processes where that is worth it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from advisor.errors import AdvisorError, InputError
from advisor.model.options import Options
from advisor.model.records import Frozen
from advisor.pipeline.diagnose import Progress
from advisor.pipeline.inputs import Job
from advisor.pipeline.ranks import Reduced, Task
from advisor.pipeline.workers import runner

Answer = TypeVar("Answer", bound=Frozen)


def of_each(
    job: Job,
    ask: Callable[[Path, Options], Answer],
    kind: type[Answer],
    options: Options,
    progress: Progress | None = None,
    jobs: int = 1,
) -> dict[int, Answer]:
    """The answers, by rank, of the ranks that have one. `ask` can be imported by other processes. Raises
    InputError, with the reason of the first rank, if none has one."""
    say = progress or (lambda _: None)
    run = runner(jobs, None, lambda n, of: say(f"{n} of {of} read"), partial(_asked, ask))
    tasks = [Task(str(path), options, whole=True) for _, path in job.ranks]
    results = run(tasks)
    numbers = [i if number is None else number for i, (number, _) in enumerate(job.ranks)]
    found = {
        number: msgspec.msgpack.decode(result.data, type=kind)
        for number, result in zip(numbers, results, strict=True)
        if result.data is not None
    }
    if not found:
        raise InputError(results[0].error or "no rank could be read")
    return found


def _asked(ask: Callable[[Path, Options], Frozen], task: Task) -> Reduced:
    try:
        return Reduced(msgspec.msgpack.encode(ask(Path(task.path), task.options)), None)
    except AdvisorError as error:
        return Reduced(None, str(error))
    except MemoryError:
        return Reduced(None, f"{task.path}: not enough memory; give more memory, fewer --jobs, or a --window")
