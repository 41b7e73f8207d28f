"""``advisor.watch``: steps of a loop in this process, timed without the profiler of PyTorch and then
profiled; and traces of its profiler objects. torch is imported only where a loop is watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol, Self

from advisor.errors import InputError
from advisor.model.findings import Diagnosis
from advisor.model.options import Options
from advisor.recording.launcher import Steps

if TYPE_CHECKING:
    from advisor.pipeline.diagnose import Progress
    from advisor.pipeline.inputs import Paths


class watch:  # a function to its user
    """Watches a loop: ``with advisor.watch(steps=20) as w: ... w.step()``.

    `w.step()` ends a step. Warm steps come first (`warm`; None: until their times are steady), then `timed`
    without the profiler, then `steps` with it, with `shapes` and `stacks` as asked. `done` is true when all
    are recorded; the trace is `trace`, below `folder` if one is given, else gone with this object.
    Raises InputError where torch cannot be imported.
    """

    def __init__(
        self,
        steps: int = 20,
        *,
        timed: int = 20,
        warm: int | None = None,
        shapes: bool = True,
        stacks: bool = False,
        memory: bool = False,
        folder: str | Path | None = None,
    ) -> None:
        try:
            torch = import_module("torch")
            import_module("torch.profiler")
        except ImportError as error:
            raise InputError(f"advisor.watch needs torch ({error})") from error
        if folder is None:
            self._own = TemporaryDirectory(prefix="advisor_")
            folder = self._own.name
        self.trace = Path(folder) / "trace.json"
        self.trace.parent.mkdir(parents=True, exist_ok=True)
        self._steps = Steps(
            torch,
            self.trace,
            steps=steps,
            timed=timed,
            warm=warm,
            shapes=shapes,
            stacks=stacks,
            memory=memory,
        )
        self._found: dict[str, Diagnosis] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def step(self) -> None:
        """A step of the loop has ended."""
        self._steps.step()

    def close(self) -> None:
        """Write what was profiled; later steps do not count."""
        self._steps.close()

    @property
    def done(self) -> bool:
        """Whether all steps that were asked for are recorded."""
        return self._steps.done

    @property
    def unprofiled_ms(self) -> float | None:
        """The median of the steps timed without the profiler; None if there were too few."""
        found: float | None = self._steps.result["unprofiled_ms"]
        return found

    @property
    def diagnosis(self) -> Diagnosis:
        """The diagnosis of what was recorded, with the step as timed. Raises InputError if nothing was."""
        return self.diagnose()

    def diagnose(self, options: Options | None = None) -> Diagnosis:
        """The same with options, as `advisor.diagnose` takes them."""
        from advisor.pipeline.diagnose import diagnose

        self.close()
        if self._steps.result["trace"] is None:
            raise InputError(
                f"advisor.watch: nothing was profiled in {self._steps.count} steps; make more steps, or ask "
                "for fewer: watch(steps=5, timed=0, warm=0)"
            )
        chosen = options or Options()
        if chosen.unprofiled_step is None and self.unprofiled_ms is not None:
            chosen = replace(chosen, unprofiled_step=str(self.unprofiled_ms))
        key = repr(chosen)
        if key not in self._found:
            self._found[key] = diagnose(self.trace, chosen)
        return self._found[key]


class Profile(Protocol):
    """A finished `torch.profiler.profile`."""

    def export_chrome_trace(self, path: str) -> object:
        """Write the trace to a file."""


def diagnose(
    path: Paths | Profile,
    options: Options | None = None,
    progress: Progress | None = None,
    drawn: bool = False,
) -> Diagnosis:
    """The diagnosis of a capture, by its path, of the ranks of a job, by their folder or a list, or of a
    finished `torch.profiler.profile`; the rest is as for `advisor.pipeline.diagnose.diagnose`. Raises
    InputError for what cannot be read or exported, and for several captures that are no job."""
    from advisor.pipeline.diagnose import diagnose as of_path

    if isinstance(path, str | Path) and not Path(path).is_dir():
        return of_path(path, options, progress, drawn)
    if isinstance(path, str | Path) or (isinstance(path, Sequence) and not isinstance(path, bytes)):
        from advisor.pipeline.inputs import listed, of_one, quietly

        how = quietly(options or Options(), progress)._replace(drawn=drawn)
        return of_one(listed(path)).read(how).diagnoses[0]
    if not hasattr(path, "export_chrome_trace"):
        raise InputError(f"{type(path).__name__}: expected a path or a torch.profiler.profile")
    with TemporaryDirectory(prefix="advisor_") as folder:
        trace = Path(folder) / "profile.json"
        try:
            path.export_chrome_trace(str(trace))
        except (RuntimeError, AssertionError, AttributeError) as error:
            raise InputError(
                f"the profile cannot be exported ({error}); diagnose it after its end"
            ) from error
        return of_path(trace, options, progress, drawn)
