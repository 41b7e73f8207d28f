"""What holds for every test."""

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from advisor.engine import infer
from advisor.knowledge.files import evidence
from tests.fired import fired, missing

# Programs that tests start, in whatever folder, use the same `advisor` as the tests, and `tests` itself,
# however `advisor` was installed.
ROOT = str(Path(__file__).resolve().parents[1])
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))

# What is collected lives as long as the run. Looking through it for garbage again and again would take half
# of the time of collecting, and a tenth of that of the tests.
gc.disable()

# Speed is measured by benchmarks/; a busy machine must not fail a property.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# A shell without job control starts what stands before `&` deaf to Ctrl-C, as `nohup` does to the end of
# its terminal, and so would be the programs that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engine",
        choices=("python", "durable"),
        default="python",
        help="what judges where a test names no engine: the interpreter, which takes a fifth of the time of "
        "all tests less, or durable-rules, which tests/engine and tests/test_captures.py hold equal to it",
    )


def pytest_configure(config: pytest.Config) -> None:
    """`.ci/run` gives the slow tests `--engine durable`, the hosted workflow all tests on one Python."""
    if config.getoption("engine") == "python":
        infer.available = lambda: (False, "the interpreter judges tests that name no engine")


def pytest_collection_finish() -> None:
    """Collects garbage as usual from here on, but for what is there already."""
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _temporary_files_go(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Folders made with `tempfile` lie below pytest's own, which it removes after a few runs."""
    tempfile.tempdir = str(tmp_path_factory.mktemp("scratch"))
    # Nor do runs use the key of the user.
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(autouse=True)
def _evidence(request: pytest.FixtureRequest) -> Iterator[None]:
    """What knowledge/evidence.yaml says of a scene holds whenever the scene is run."""
    node = request.node.nodeid
    fires, quiet = evidence().fires.get(node, {}), evidence().quiet.get(node, ())
    if not fires and not quiet:
        yield
        return
    with fired() as seen:
        yield
    assert missing(node, seen, tuple(fires), quiet) == []
