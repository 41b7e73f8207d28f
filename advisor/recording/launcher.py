"""Runs a Python program, finds its steps, times some without the profiler of PyTorch and profiles some.

It is started by `advisor run --recorder torch` with the Python of the program, in which advisor need not be
installed, and which may be older: this file uses the standard library of 3.8 and the program's own torch
alone. `advisor.watch` uses its `Steps`, too.

    python launcher.py WANTED.json script x.py ARGUMENT...
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from statistics import median
from threading import local
from time import perf_counter_ns
from typing import Any

#: Steps are steady once the last few take about the same time on the host, else after `MOST_WARM`.
STEADY, SPREAD, MOST_WARM = 5, 1.5, 60
#: Steps under the profiler whose events it leaves out: the first one sets up tracing.
SETTLING = 2


class Steps:
    """The steps of a program, each reported by `step()` at its end: first warm ones, then `timed` without the
    profiler, then `steps` with it, which are written to `trace`. `result` says what was found."""

    def __init__(
        self,
        torch: Any,
        trace: Path,
        *,
        steps: int = 20,
        timed: int = 20,
        warm: int | None = None,
        shapes: bool = True,
        stacks: bool = False,
        memory: bool = False,
        settling: int = SETTLING,
    ) -> None:
        self._torch, self._trace = torch, trace
        self._steps, self._timed, self._warm, self._settling = steps, timed, warm, settling
        self._options = {"record_shapes": shapes, "with_stack": stacks, "profile_memory": memory}
        self._stage: Callable[[], None] = self._warming
        self._ends: list[int] = []
        self._marks: list[Any] = []
        self._profiler: Any = None
        self._profiled = 0
        self.done = False
        self.count = 0
        self.result: dict[str, Any] = {
            "torch": str(torch.__version__),
            "steps": 0,
            "profiled": 0,
            "unprofiled_ms": None,
            "trace": None,
        }
        if warm == 0:
            self._time()

    def step(self) -> None:
        """A step has ended."""
        self.count += 1
        if not self.done:
            self._stage()

    def again(self) -> None:
        """Begin anew: what was counted until now were no steps."""
        if self._stage == self._warming:
            self.count = 0
            self._ends.clear()

    @property
    def warming(self) -> bool:
        """Whether no step was timed or profiled yet."""
        return self._stage == self._warming and not self.done

    def _warming(self) -> None:
        self._ends.append(perf_counter_ns())
        last = [self._ends[i] - self._ends[i - 1] for i in range(max(1, self.count - STEADY), self.count)]
        steady = len(last) >= STEADY and max(last) <= SPREAD * min(last)
        if self.count >= (MOST_WARM if self._warm is None else self._warm) or (self._warm is None and steady):
            self._time()

    def _time(self) -> None:
        """Time the next steps, or profile at once."""
        self._stage = self._timing if self._timed else self._profiling
        if self._timed:
            self._mark()
        else:
            self._start()

    def _timing(self) -> None:
        self._mark()
        if len(self._marks) <= self._timed:
            return
        self._measure()
        self._stage = self._profiling
        self._start()

    def _mark(self) -> None:
        """The end of a step on the GPU, where the program uses one, else on the host."""
        cuda = self._torch.cuda
        if cuda.is_initialized():
            event = cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(perf_counter_ns())

    def _measure(self) -> None:
        """The median time between two marks, ms."""
        if self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()
        marks = self._marks
        if len({isinstance(m, int) for m in marks}) == 1 and len(marks) > 1:
            times = [between(marks[i - 1], marks[i]) for i in range(1, len(marks))]
            self.result["unprofiled_ms"] = round(median(times), 6)
        self.result["timed"] = max(len(marks) - 1, 0)

    def _start(self) -> None:
        profiler = self._torch.profiler
        kinds = [profiler.ProfilerActivity.CPU]
        if self._torch.cuda.is_available():
            kinds.append(profiler.ProfilerActivity.CUDA)
        self._profiler = profiler.profile(
            activities=kinds,
            schedule=profiler.schedule(wait=0, warmup=self._settling, active=self._steps, repeat=1),
            on_trace_ready=self._write,
            **self._options,
        )
        self._profiler.start()

    def _profiling(self) -> None:
        self._profiled += 1
        if self._profiled >= self._settling + self._steps:
            self.close()
        else:
            self._profiler.step()

    def _write(self, profiler: Any) -> None:
        profiler.export_chrome_trace(str(self._trace))
        self.result["trace"] = str(self._trace)

    def close(self) -> None:
        """Write what was profiled; afterwards steps count no more."""
        if self.done:
            return
        self.done = True
        if self._stage == self._timing:
            self._measure()
        self.result["steps"] = self.count
        self.result["profiled"] = max(self._profiled - self._settling, 0)
        if self._profiler is not None:
            if self._torch.cuda.is_initialized():
                self._torch.cuda.synchronize()
            self._profiler.stop()


def between(begin: Any, end: Any) -> float:
    """The time between two marks, ms."""
    return float((end - begin) / 1e6 if isinstance(begin, int) else begin.elapsed_time(end))


# --- what a step is, where the program does not say ----------------------------------------------------


def watch_optimizers(torch: Any, steps: Steps, found: dict[str, Any]) -> None:
    """A step of any optimizer ends a step: in training, forward calls are parts of one."""

    def after(optimizer: Any, *_: Any) -> None:
        if found.get("optimizer") is None and steps.warming:
            found["optimizer"] = id(optimizer)
            found["by"] = f"{type(optimizer).__name__}.step"
            steps.again()
        if found.get("optimizer") == id(optimizer):
            steps.step()

    with suppress(AttributeError):  # before torch 2.0
        torch.optim.optimizer.register_optimizer_step_post_hook(after)


def watch_modules(torch: Any, steps: Steps, found: dict[str, Any]) -> None:
    """The end of a call of an outermost module ends a step: a step of decoding, a pass. Of several modules
    the one that is called most."""
    original = torch.nn.Module.__call__
    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
    inside = local()
    calls: dict[int, int] = {}

    def call(self: Any, *args: Any, **options: Any) -> Any:
        if compiling() or getattr(inside, "call", False) or found.get("optimizer") is not None or steps.done:
            return original(self, *args, **options)
        inside.call = True
        try:
            result = original(self, *args, **options)
        finally:
            inside.call = False
        me = id(self)
        calls[me] = calls.get(me, 0) + 1
        if steps.warming and me != found.get("module") and calls[me] > calls.get(found.get("module", 0), 0):
            found["module"], found["by"] = me, f"calls of {type(self).__name__}"
            steps.again()
        if me == found.get("module"):
            steps.step()
        return result

    torch.nn.Module.__call__ = call


def watch_function(named: str, steps: Steps) -> None:
    """The end of a call of `module:function` ends a step. Raises ValueError where there is none."""
    module, _, path = named.partition(":")
    *parents, name = path.split(".")
    try:
        owner: Any = import_module(module)
        for parent in parents:
            owner = getattr(owner, parent)
        original = getattr(owner, name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--steps-of {named}: {error}") from error

    def call(*args: Any, **options: Any) -> Any:
        result = original(*args, **options)
        steps.step()
        return result

    setattr(owner, name, call)


# --- the program -----------------------------------------------------------------------------------------

#: Exit codes of ours: this Python has no torch; `--steps-of` names nothing.
NO_TORCH, NO_STEPS = 97, 98


class _Over(SystemExit):
    """The recording is complete."""


def main(arguments: list[str]) -> None:
    """Run `kind target arguments...` (kind: script, module or code) as the settings in the first file say,
    and write the result."""
    wanted = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    kind, target, *rest = arguments[1:]
    sys.argv = ["-c" if kind == "code" else target, *rest]
    sys.path[0] = str(Path(target).resolve().parent) if kind == "script" else ""
    try:
        torch = import_module("torch")
        import_module("torch.profiler")
    except ImportError as error:
        print(f"{sys.executable}: {error}", file=sys.stderr)
        sys.exit(NO_TORCH)
    steps = Steps(torch, Path(wanted["trace"]), **wanted["steps"])
    found: dict[str, Any] = {}
    if wanted["of"]:
        found["by"] = f"calls of {wanted['of']}"
        try:
            watch_function(wanted["of"], steps)
        except ValueError as error:
            print(error, file=sys.stderr)
            sys.exit(NO_STEPS)
    else:
        watch_optimizers(torch, steps, found)
        watch_modules(torch, steps, found)
    if not wanted["until_end"]:
        counted = steps.step

        def step() -> None:
            counted()
            if steps.done:
                raise _Over(0)

        steps.step = step  # type: ignore[method-assign]
    process = os.getpid()
    try:
        if kind == "script":
            runpy.run_path(target, run_name="__main__")
        elif kind == "module":
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            exec(compile(target, "<string>", "exec"), {"__name__": "__main__"})
    except _Over:
        pass
    finally:
        if os.getpid() == process:  # not in a child that was forked and ends here
            steps.close()
            steps.result["by"] = found.get("by")
            Path(wanted["result"]).write_text(json.dumps(steps.result), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
