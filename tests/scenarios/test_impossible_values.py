"""Values at the ends of their types: a diagnosis or one clear line, never an internal error."""

from __future__ import annotations

from pathlib import Path

import pytest

import advisor
from advisor.errors import InputError
from tests.builder import KERNEL, Export

LAST = 2**63 - 1


def ordinary() -> Export:
    e = Export().gpu().process(100)
    for i in range(30):
        e.launch(i * 20_000, 3_000, f"k{i % 3}", i * 20_000 + 5_000, 9_000)
    return e


def backwards() -> Export:
    e = Export().gpu().process(100)
    for i in range(30):
        e.launch(i * 20_000, 3_000, "k", i * 20_000 + 5_000, -3_000)
    return e


def timeless() -> Export:
    e = Export().gpu().process(100)
    for i in range(30):
        e.launch(i * 20_000, 3_000, "k", i * 20_000 + 5_000, 0)
    return e


def samples(time: int) -> Export:
    e = ordinary().gpu_metrics({"SMs Active [Throughput %]": [50] * 20})
    return e.gpu_metrics({"SMs Active [Throughput %]": [50]}, start=time)


@pytest.mark.parametrize(
    "export",
    [
        pytest.param(timeless, id="kernels without time"),
        pytest.param(backwards, id="every kernel ends before it starts"),
        pytest.param(lambda: ordinary().kernel(LAST - 10, 5), id="the last time"),
        pytest.param(lambda: ordinary().kernel(-LAST, 5), id="the first time"),
        pytest.param(lambda: ordinary().kernel(-LAST, 5).kernel(LAST - 9, 5), id="both"),
        pytest.param(lambda: ordinary().kernel(9, 5, correlation=LAST), id="a correlation id"),
        pytest.param(lambda: ordinary().kernel(9, 5, stream=LAST), id="a stream"),
        pytest.param(lambda: ordinary().kernel(9, 5, grid=(LAST, LAST, LAST)), id="a grid"),
        pytest.param(lambda: ordinary().copy(9, bytes=LAST).copy(99, bytes=LAST), id="bytes"),
        pytest.param(lambda: ordinary().call("cudaFree", 1, correlation=LAST), id="a call"),
        pytest.param(lambda: ordinary().row(KERNEL, start=1, end=9, globalPid=LAST), id="process"),
        pytest.param(lambda: samples(LAST), id="the time of a sample"),
    ],
)
def test_no_internal_error(export: object, tmp_path: Path) -> None:
    assert callable(export)
    advisor.diagnose(export().write(tmp_path / "trace.sqlite"))


def test_string_ids_that_leave_no_room(tmp_path: Path) -> None:
    """Texts that rows hold themselves get ids beyond the file's."""
    e = ordinary().range_inline("step", 0, 500_000)
    e._strings["last"] = LAST  # not what a builder may write by itself
    with pytest.raises(InputError, match="StringIds holds the id 9223372036854775807"):
        advisor.diagnose(e.write(tmp_path / "trace.sqlite"))
