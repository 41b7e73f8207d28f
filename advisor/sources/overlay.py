"""A trace with the GPU samples of another log: the two are joined on absolute time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from advisor.errors import InputError
from advisor.sources.samplers import SampleLog, read_log
from advisor.sources.trace import Columns, Source, Trace


def with_samples(trace: Trace, log: Path, offset_ns: int | None) -> Trace:
    """`trace` with the samples of a sampler's log; closing it closes both. `offset_ns` says where
    the log begins in session time. Raises InputError where the two cannot be joined."""
    if not log.is_file():
        raise InputError(f"--gpu-metrics: {log}: no such file")
    return Trace(WithSamples(trace.source, read_log(log), offset_ns))


class WithSamples:
    """`source` with its table `samples` replaced by those of `log`, in the source's own time.

    Device numbers of both tools are those of the driver. Raises InputError where the two share no
    clock and no `offset_ns` says where the log begins in session time, or where they do not meet.
    """

    def __init__(self, source: Source, log: SampleLog, offset_ns: int | None) -> None:
        self._source, self._log = source, log
        self.capture, self.devices = source.capture, source.devices
        time = log.read_columns("samples", ("time",))["time"]
        if offset_ns is not None:
            self._shift = offset_ns - int(time[0])
        elif log.absolute and source.capture.start_utc_ns is not None:
            self._shift = -source.capture.start_utc_ns
        else:
            without = log.capture if not log.absolute else source.capture
            raise InputError(
                f"--gpu-metrics: {without.path} does not tell its absolute time; say where the log "
                "begins in session time with --gpu-metrics-offset, such as 1.5s"
            )
        last = source.capture.duration_ns
        begin, end = int(time[0]) + self._shift, int(time[-1]) + self._shift
        if end < 0 or (last is not None and begin > last):
            raise InputError(
                f"--gpu-metrics: the samples run from {begin / 1e9:.3f}s to {end / 1e9:.3f}s of "
                "the session and miss the capture; nvidia-smi prints local time: correct it with "
                "--gpu-metrics-offset"
            )

    def tables(self) -> frozenset[str]:
        return self._source.tables() | {"samples"}

    def read_columns(self, table: str, columns: Sequence[str]) -> Columns:
        if table != "samples":
            return self._source.read_columns(table, columns)
        read = self._log.read_columns(table, columns)
        if "time" in read:
            read["time"] = np.asarray(read["time"] + self._shift)
        return read

    def text(self, ids: Sequence[int]) -> list[str]:
        return self._source.text(ids)

    def close(self) -> None:
        self._source.close()
