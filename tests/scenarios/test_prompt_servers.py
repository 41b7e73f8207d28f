"""Servers that read prompts for others, which decode: they are no replicas, and each has its own queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import advisor
from advisor.model.findings import Diagnosis
from tests.scenarios.support import fact, ranked


@dataclass(frozen=True)
class Side:
    """A server, the same in each of six lines; tokens a second."""

    name: str
    running: int
    waiting: int
    reads: float
    gives: float
    cache: float = 0.5
    fetching: int = 0


#: 60 requests that decode at 1,000 tokens a second: 60 ms a token. A prompt server gives a token a request.
READS, DECODES = Side("prefill-0", 4, 0, 8_000.0, 4.0), Side("decode-0", 60, 0, 0.0, 1_000.0)


def vllm(servers: Sequence[Side]) -> Iterator[str]:
    for i in range(6):
        for one in servers:
            fetched = f"KV fetch: 0 waiting to start, {one.fetching} in progress, 0 completed waiting, "
            yield (
                f"{one.name:12} | INFO 11-28 13:22:{i}0 [loggers.py:127] Engine 000: Avg prompt throughput: "
                f"{one.reads:.1f} tokens/s, Avg generation throughput: {one.gives:.1f} tokens/s, Running: "
                f"{one.running} reqs, Waiting: {one.waiting + one.fetching} reqs, "
                f"{fetched if one.fetching else ''}GPU KV cache usage: {100 * one.cache:.1f}%, "
                "Prefix cache hit rate: 12.0%\n"
            )


def sglang(servers: Sequence[Side]) -> Iterator[str]:
    """Of 2026; the servers that read log batches of prompts alone."""
    for i in range(6):
        for one in servers:
            at = f"{one.name:12} | [2026-03-01 13:22:{i}0 TP0] "
            if one.reads:
                yield (
                    f"{at}Prefill batch, #new-seq: 4, #new-token: 8192, #cached-token: 0, token usage: "
                    f"{one.cache:.2f}, #running-req: 0, #queue-req: {one.waiting}, #pending-token: 0, "
                    f"#bootstrap-req: 0, #inflight-req: 1, input throughput (token/s): {one.reads:.2f}\n"
                )
            else:
                yield (
                    f"{at}Decode batch, #running-req: {one.running}, #token: 24000, token usage: "
                    f"{one.cache:.2f}, pre-allocated usage: 0.01, #prealloc-req: 0, #transfer-req: "
                    f"{one.fetching}, #retracted-req: 0, cuda graph: True, gen throughput (token/s): "
                    f"{one.gives:.2f}, #queue-req: {one.waiting}\n"
                )


ENGINES = {"vllm": vllm, "sglang": sglang}


def told(folder: Path, engine: str, *servers: Side) -> Diagnosis:
    path = folder / "server.log"
    path.write_text("".join(ENGINES[engine](servers)))
    return advisor.diagnose(path)


def side(of: Side, **changed: object) -> Side:
    return Side(**{**of.__dict__, **changed})


@pytest.mark.parametrize("names", [("prefill-0", "decode-0"), ("server-0", "server-1")])
@pytest.mark.parametrize("engine", ENGINES)
def test_each_side_is_told_for_itself(tmp_path: Path, engine: str, names: tuple[str, str]) -> None:
    found = told(tmp_path, engine, side(READS, name=names[0]), side(DECODES, name=names[1]))
    wanted = {
        "load.running": 60,
        "load.waiting": 0,
        "load.output_per_s": 1_000,
        "load.token_ms": 60,
        "load.prompt_per_s": 8_000,
        "load.prompt_servers": 1,
        "load.replicas": 1,
    }
    assert {name: fact(found, name, None) for name in wanted} == pytest.approx(wanted)
    assert ranked(found) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_a_queue_before_the_servers_that_read_is_theirs(tmp_path: Path, engine: str) -> None:
    """20 requests wait to be read, while those that decode have room."""
    found = told(tmp_path, engine, side(READS, waiting=20), DECODES)
    assert ranked(found) == ["prompt-servers-busy"]
    assert fact(found, "load.prompt_servers_waiting", None) == 20
    assert fact(found, "load.waiting", None) == 0
    assert found.findings[0].recommendations[0].id == "balance-server-sides"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("reads", "decodes", "cause"),
    [
        ({}, {"waiting": 20}, "batch-limit-reached"),
        ({"waiting": 20}, {"waiting": 20}, "batch-limit-reached"),
        ({}, {"waiting": 20, "cache": 0.98}, "kv-cache-full"),
        ({"cache": 0.99}, {}, None),
        ({}, {"running": 10, "fetching": 20, "gives": 500.0}, "kv-cache-fetched-late"),
        ({"waiting": 20}, {"running": 10, "fetching": 20, "gives": 500.0}, "prompt-servers-busy"),
        ({}, {"fetching": 3}, None),  # some are always on their way
    ],
)
def test_what_holds_requests_back(
    tmp_path: Path, engine: str, reads: dict[str, object], decodes: dict[str, object], cause: str | None
) -> None:
    found = ranked(told(tmp_path, engine, side(READS, **reads), side(DECODES, **decodes)))
    assert found == ([cause] if cause else [])


@pytest.mark.parametrize("engine", ENGINES)
def test_uneven_load_is_that_of_servers_that_do_the_same(tmp_path: Path, engine: str) -> None:
    """One of two that decode has nearly all requests; a second one that reads is not compared with them."""
    idle = side(DECODES, name="decode-1", running=6, gives=100.0)
    assert ranked(told(tmp_path, engine, READS, DECODES, idle)) == ["uneven-replicas"]
    even = side(DECODES, name="decode-1")
    found = told(tmp_path, engine, READS, side(READS, name="prefill-1"), DECODES, even)
    assert ranked(found) == []
    assert fact(found, "load.running", None) == 120


def test_a_replica_with_little_to_do_reads_for_none(tmp_path: Path) -> None:
    """It reads few prompts as well."""
    busy, idle = Side("server-0", 60, 0, 2_000.0, 1_000.0), Side("server-1", 2, 0, 60.0, 30.0)
    found = told(tmp_path, "vllm", busy, idle)
    assert fact(found, "load.prompt_servers", None) is None
    assert ranked(found) == ["uneven-replicas"]
