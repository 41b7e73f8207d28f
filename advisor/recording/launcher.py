"""Runs a Python program, finds its steps, times some without the profiler of PyTorch and profiles some.

Nothing of it may break the program: one process and one of its threads are recorded, children that are forked
lose the hooks, nothing is raised inside calls of the program, and it ends as Ctrl-C would end it.

It is started by `advisor run --recorder torch` with the Python of the program, in which advisor need not be
installed, and which may be older: this file uses the standard library of 3.8 and the program's own torch
alone. `advisor.watch` uses its `Steps`, too.

    python launcher.py WANTED.json script x.py ARGUMENT...
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from statistics import median
from threading import Lock, Thread, local, main_thread
from time import perf_counter_ns, sleep
from types import TracebackType
from typing import Any

#: Steps are steady once the last few take about the same time on the host, else after `MOST_WARM`.
STEADY, SPREAD, MOST_WARM = 5, 1.5, 60
#: Steps under the profiler whose events it leaves out: the first one sets up tracing.
SETTLING = 2
#: What a program is given to end after each signal, seconds.
GRACE_S = 10.0


class Steps:
    """The steps of a program, each reported by `step()` at its end: first warm ones, then `timed` without the
    profiler, then `steps` with it, which are written to `trace`. `result` says what was found.

    They are steps of one thread, the first whose steps are steady: the profiler of PyTorch has to be started
    and stopped in the same one. `threads` is how many made steps until then. `step()` raises nothing; what
    fails ends the recording.
    """

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
        self._stage: Callable[[], None] | None = None
        self._owner: list[int] | None = None
        self._own = local()
        self._lock = Lock()
        self.threads = 0
        self._marks: list[Any] = []
        self._profiler: Any = None
        self._profiled = 0
        self.done = self._closing = False
        self.when_done: Callable[[], None] = lambda: None
        self.count = 0
        self.result: dict[str, Any] = {
            "torch": str(torch.__version__),
            "steps": 0,
            "profiled": 0,
            "unprofiled_ms": None,
            "trace": None,
        }
        if warm == 0:
            self._owner = self._ends()
            self._time()

    def step(self) -> None:
        """A step has ended in this thread."""
        try:
            if self.done or not self._is_owner():
                return
            if self._closing:
                self.close()
            elif self._stage is None:
                self._time()
            else:
                self.count += 1
                self._stage()
        except Exception as error:
            self.done = True
            self.result["error"] = f"{type(error).__name__}: {error}"

    def _is_owner(self) -> bool:
        """Whether the steps of this thread are recorded; as long as none is, whether they are steady now."""
        ends = self._ends()
        if self._owner is None:
            with self._lock:
                if self._owner is None and self._steady(ends):
                    self._owner = ends
        return self._owner is ends

    def _ends(self) -> list[int]:
        """When the warm steps of this thread ended, ns. The list stands for the thread: numbers of threads
        that have ended are given to others."""
        if not hasattr(self._own, "ends"):
            ends: list[int] = []
            self._own.ends = ends
            self._own.at_end = AtEnd(lambda: self._thread_ends(ends))
            self.threads += 1
        return self._own.ends  # type: ignore[no-any-return]

    def _thread_ends(self, ends: list[int]) -> None:
        """Close the recording of a thread that ends: a profiler that is left on crashes the process later."""
        if self._owner is ends:
            self.close(here=True)

    def again(self) -> None:
        """Begin anew: what was counted until now were no steps."""
        if self.warming:
            with self._lock:
                self._own = local()
                self.count = self.threads = 0

    @property
    def warming(self) -> bool:
        """Whether no step was timed or profiled yet."""
        return self._owner is None and not self.done

    @property
    def here(self) -> bool:
        """Whether the steps are those of this thread, or still of none."""
        return self._owner is None or self._owner is getattr(self._own, "ends", None)

    def _steady(self, ends: list[int]) -> bool:
        """Whether the steps of a thread are steady with one more."""
        ends.append(perf_counter_ns())
        self.count = max(self.count, len(ends))
        if self._warm is not None:
            return len(ends) >= self._warm
        last = [ends[i] - ends[i - 1] for i in range(max(1, len(ends) - STEADY), len(ends))]
        return len(ends) >= MOST_WARM or (len(last) >= STEADY and max(last) <= SPREAD * min(last))

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
            self.when_done()
        else:
            self._profiler.step()

    def _write(self, profiler: Any) -> None:
        profiler.export_chrome_trace(str(self._trace))
        self.result["trace"] = str(self._trace)

    def close_soon(self) -> None:
        """Close at the end of the step that another thread makes, and wait for that."""
        self._closing = True
        begun = perf_counter_ns()
        while not self.done and perf_counter_ns() - begun < GRACE_S * 1e9:
            sleep(0.01)

    def close(self, here: bool | None = None) -> None:
        """Write what was profiled; afterwards steps count no more. The profiler is stopped only `here`, in
        the thread whose steps are recorded (None: if this is the one)."""
        if self.done:
            return
        self.done = True
        if self._stage == self._timing:
            self._measure()
        self.result["steps"] = self.count
        self.result["profiled"] = max(self._profiled - self._settling, 0)
        if self._profiler is not None and (self.here if here is None else here):
            if self._torch.cuda.is_initialized():
                self._torch.cuda.synchronize()
            self._profiler.stop()


class AtEnd:
    """Calls a function when it is deleted; kept by a thread alone, at the end of the thread and in it."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function

    def __del__(self) -> None:
        with suppress(Exception):
            self._function()


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

    def ended(module: Any) -> None:
        me = id(module)
        calls[me] = calls.get(me, 0) + 1
        if steps.warming and me != found.get("module") and calls[me] > calls.get(found.get("module", 0), 0):
            found["module"], found["by"] = me, f"calls of {type(module).__name__}"
            steps.again()
        if me == found.get("module"):
            steps.step()

    def call(self: Any, *args: Any, **options: Any) -> Any:
        skipped = compiling() or getattr(inside, "call", False) or found.get("optimizer") or steps.done
        if not skipped:
            inside.call = True
        try:
            result = original(self, *args, **options)
        except BaseException as error:
            error.__traceback__ = without_ours(error.__traceback__)
            raise
        finally:
            if not skipped:
                inside.call = False
        if not skipped:
            ended(self)
        return result

    torch.nn.Module.__call__ = call
    unhook_in_children(lambda: setattr(torch.nn.Module, "__call__", original))


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
        try:
            result = original(*args, **options)
        except BaseException as error:
            error.__traceback__ = without_ours(error.__traceback__)
            raise
        steps.step()
        return result

    setattr(owner, name, call)
    unhook_in_children(lambda: setattr(owner, name, original))


def without_ours(frames: TracebackType | None) -> TracebackType | None:
    """A traceback without leading frames of this file. (Where the exception is raised on by a bare `raise`,
    Python before 3.11 takes the former one all the same.)"""
    ours = (__file__, runpy.__file__, "<frozen runpy>")
    while frames is not None and frames.tb_frame.f_code.co_filename in ours:
        frames = frames.tb_next
    return frames


def unhook_in_children(unhook: Callable[[], None]) -> None:
    """Undo a hook in processes that are forked: they would record into the file of this one."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=unhook)


# --- other processes and the end ---------------------------------------------------------------------


class Children:
    """How many processes this one has started: by fork, and by `subprocess` or `multiprocessing`."""

    def __init__(self) -> None:
        self._forked = self._opened = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_parent=self._fork)
        sys.addaudithook(self._hear)

    def _fork(self) -> None:
        self._forked += 1

    def _hear(self, event: str, _: Any) -> None:
        self._opened += event == "subprocess.Popen"

    @property
    def count(self) -> int:
        """All that are known. `multiprocessing` numbers its processes, and may start them by fork."""
        processes = sys.modules.get("multiprocessing.process")
        made = 0
        if processes is not None:
            number = processes.BaseProcess().name.rpartition("-")[2]
            made = int(number) - 1 if number.isdigit() else 0
        return max(self._forked, made) + self._opened


def end_program() -> None:
    """End this process as Ctrl-C does, by a signal to its main thread; where that is not obeyed, by SIGTERM.
    Nothing is raised in the thread that calls."""

    def signals() -> None:
        if hasattr(signal, "pthread_kill"):
            with suppress(ProcessLookupError):
                signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)
        else:
            signal.raise_signal(signal.SIGINT)
        sleep(GRACE_S)
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=signals, daemon=True).start()


# --- the program -----------------------------------------------------------------------------------------

#: Exit codes of ours: this Python has no torch; `--steps-of` names nothing.
NO_TORCH, NO_STEPS = 97, 98


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
    children = Children()
    steps = Steps(torch, Path(wanted["trace"]), **wanted["steps"])
    found: dict[str, Any] = {}
    process = os.getpid()

    def save() -> None:
        steps.result.update(by=found.get("by"), threads=steps.threads, children=children.count)
        Path(wanted["result"]).write_text(json.dumps(steps.result), encoding="utf-8")

    def close() -> None:
        """Close the recording and save the result; not in a child that was forked and ends here."""
        if os.getpid() != process or steps.result.get("closed"):
            return
        steps.result["closed"] = True
        try:
            if not steps.here:
                steps.close_soon()
            steps.close()
        except Exception as error:
            steps.result["error"] = f"{type(error).__name__}: {error}"
        save()

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

        def over() -> None:
            steps.result.update(over=True, closed=True)
            save()
            end_program()

        steps.when_done = over
    atexit.register(close)  # after threads that the interpreter waits for
    try:
        if kind == "script":
            runpy.run_path(target, run_name="__main__")
        elif kind == "module":
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            exec(compile(target, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and steps.result.get("over"):
            sys.exit(0)
        error.__traceback__ = without_ours(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(130 if isinstance(error, KeyboardInterrupt) else 1)
    finally:
        if steps.here:
            close()


if __name__ == "__main__":
    main(sys.argv[1:])
