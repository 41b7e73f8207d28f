"""Stand-ins for serving engines on 127.0.0.1: paths, bodies and answers as the sources of their releases have
them, and the ways in which they fail."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.kineto_builder import Profile, decode


@dataclass
class Engine:
    """What a server is and does. `step_ms` is that of its engine, each step of `running` requests; `ranks`
    write traces, but for those `missing`; `flush_s` is the time that this takes, in `pieces`."""

    name: str = "vllm"
    version: str = "0.33.0"
    folder: Path | None = None
    running: int = 8
    waiting: int = 0
    step_ms: float = 0.9
    ranks: int = 1
    missing: tuple[int, ...] = ()
    flush_s: float = 0.0
    pieces: int = 1
    enabled: bool = True
    metrics: bool = True
    key: str | None = None
    told: bool = False
    refuses: tuple[int, str] | None = None
    hangs: tuple[str, ...] = ()
    redirects: str | None = None
    prefix: str = ""
    on: dict[str, Callable[[], object]] = field(default_factory=dict)

    @property
    def release(self) -> tuple[int, int, int]:
        one, two, three = (int("".join(c for c in n if c.isdigit())) for n in self.version.split(".")[:3])
        return one, two, three


class Standin:
    """The server of an engine. `profiling` says whether its profiler runs; `asked` lists what it was asked
    for, `bodies` with what."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.profiling = engine, False
        self.asked: list[str] = []
        self.bodies: list[Any] = []
        self.begun = time.monotonic()
        self.ended: float | None = None
        self.since = 0.0
        self.limit: int | None = None
        self.output: Path | None = None
        self.lock = threading.Lock()
        self.freed = threading.Event()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}{engine.prefix}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        """As if it had died."""
        self.freed.set()
        self.http.shutdown()
        self.http.server_close()

    @property
    def steps(self) -> float:
        return (time.monotonic() - self.begun) * 1e3 / self.engine.step_ms if self.engine.running else 0.0

    # ------------------------------------------------------------------ the profiler

    def start(self, body: dict[str, Any]) -> tuple[int, str]:
        e = self.engine
        if e.refuses is not None:
            return e.refuses
        if self.profiling:
            return 409, '{"error": {"message": "A profiling session is already active."}}'
        with self.lock:
            self.profiling, self.since = True, self.steps
        self.output = e.folder
        if e.name == "sglang":
            self.limit, self.output = body.get("num_steps"), Path(body.get("output_dir") or "/tmp")
        elif e.release >= (0, 30, 0):
            self.limit = body.get("max_iterations")
        else:
            self.limit = None
        if e.name == "sglang" and e.release < (0, 4, 7) and self.limit:
            self.freed.wait(self.limit * e.step_ms / 1e3 if e.running else 60)  # answers when it is over
            self.over()
        elif self.limit and e.running:
            threading.Timer(self.limit * e.step_ms / 1e3, self.over).start()
        return 200, "Start profiling.\n" if e.name == "sglang" else ""

    def over(self) -> bool:
        """Stop and write; False if nothing was to be stopped."""
        with self.lock:
            if not self.profiling:
                return False
            self.profiling = False
        if self.engine.name == "sglang" and self.engine.release < (0, 4, 7):
            threading.Thread(target=self.write, daemon=True).start()  # a stop does not wait there
        else:
            self.write()
        return True

    def stop(self) -> tuple[int, str]:
        self.freed.set()
        stopped = self.over()
        if self.engine.name == "sglang":
            if not stopped and self.engine.release >= (0, 5, 0):
                return 500, "Internal Server Error"
            return 200, "Stop profiling. This will take some time.\n"
        return 200, ""

    def write(self) -> None:
        e = self.engine
        assert self.output is not None
        for rank in range(e.ranks):
            if rank in e.missing:
                continue
            data = gzip.compress(trace(rank, e.ranks).text().encode())
            if e.name == "sglang":
                path = self.output / f"{time.time():.4f}-TP-{rank}.trace.json.gz"
            else:
                path = self.output / f"dp0_pp0_tp{rank}_dcp0_ep0_rank{rank}.{time.time_ns()}.pt.trace.json.gz"
            size = -(-len(data) // e.pieces)
            with path.open("wb") as file:
                for i in range(e.pieces):
                    time.sleep(e.flush_s / e.pieces)
                    file.write(data[i * size : (i + 1) * size])
                    file.flush()
        if e.name == "vllm":
            frontend = gzip.compress(json.dumps({"traceEvents": []}).encode())
            (self.output / "host_1.async_llm.1764316800.pt.trace.json.gz").write_bytes(frontend)

    # ------------------------------------------------------------------ what it says of itself

    def answer(self, path: str, body: dict[str, Any] | None) -> tuple[int, str]:
        e, profiler = self.engine, self.engine.enabled or self.engine.name == "sglang"
        if path == "/metrics":
            return (200, self.text()) if e.metrics else (404, '{"detail": "Not Found"}')
        if path == "/start_profile" and profiler:
            return self.start(body or {})
        if path == "/stop_profile" and profiler:
            return self.stop()
        if e.name == "vllm" and path == "/version":
            return 200, json.dumps({"version": e.version})
        if e.name == "vllm" and path == "/openapi.json":
            paths = {"/version": {}, **({"/start_profile": {}} if e.enabled else {})}
            return 200, json.dumps({"paths": paths})
        if e.name == "vllm" and path.startswith("/server_info") and e.told:
            config = {
                "profiler_config": {"profiler": "torch", "torch_profiler_dir": str(e.folder)},
                "parallel_config": {"world_size": e.ranks, "tensor_parallel_size": e.ranks},
                "scheduler_config": {"max_num_seqs": 8},
            }
            return 200, json.dumps({"vllm_config": config})
        if e.name == "llama.cpp" and path == "/props":
            return 200, json.dumps({"build_info": "b6700-1a2b3c4d"})
        own = "/get_server_info" if e.release < (0, 5, 0) else "/server_info"
        if e.name == "sglang" and path == own:
            said = {"version": e.version, "tp_size": e.ranks, "pp_size": 1, "dp_size": 1}
            return 200, json.dumps({**said, "max_running_requests": 64, "disable_cuda_graph": True})
        return 404, '{"detail": "Not Found"}'

    def text(self) -> str:
        """What `/metrics` says."""
        e, steps = self.engine, self.steps
        running, made = float(e.running), steps * e.running
        if e.name == "sglang":
            rate = e.running / e.step_ms * 1e3
            return "".join(
                f'sglang:{name}{{model_name="m",tp_rank="{rank}",pp_rank="0"}} {value}\n'
                for rank in range(e.ranks)
                for name, value in (
                    ("num_running_reqs", running),
                    ("num_queue_reqs", float(e.waiting)),
                    ("gen_throughput", rate),
                    ("token_usage", 0.3),
                    ("cache_hit_rate", 0.5),
                )
            )
        labels = '{engine="0",model_name="m"}'
        return (
            "# HELP vllm:num_requests_running Running.\n"
            + "".join(
                f"vllm:{name}{labels} {value}\n"
                for name, value in (
                    ("num_requests_running", running),
                    ("num_requests_waiting", float(e.waiting)),
                    ("kv_cache_usage_perc", 0.25),
                    ("generation_tokens_total", made),
                    ("prompt_tokens_total", 512.0),
                    ("iteration_tokens_total_count", float(int(steps))),
                    ("num_preemptions_total", 3.0),
                )
            )
            + f'vllm:iteration_tokens_total_bucket{{engine="0",le="1.0"}} {int(steps)}\n'
        )


def trace(rank: int, ranks: int) -> Profile:
    """A decode that the host launches too slowly, of one rank."""
    made = Profile().gpu()
    if ranks > 1:
        made.head(distributedInfo={"backend": "nccl", "rank": rank, "world_size": ranks})
    return decode(steps=20, profile=made)


def _handler(standin: Standin) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply("GET")

        def do_POST(self) -> None:
            self._reply("POST")

        def _reply(self, method: str) -> None:
            e = standin.engine
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.loads(raw) if raw else None
            path = self.path.removeprefix(e.prefix)
            standin.asked.append(f"{method} {path}")
            if method == "POST":
                standin.bodies.append(body)
            if (act := e.on.get(path)) is not None:
                act()
            if path in e.hangs:
                standin.freed.wait(60)
                return
            if e.redirects is not None:
                self.send_response(307)
                self.send_header("Location", e.redirects)
                self.end_headers()
                return
            if e.key is not None and self.headers.get("Authorization") != f"Bearer {e.key}":
                status, text = 401, '{"error": "Unauthorized"}'
            elif (method == "POST") != (path in ("/start_profile", "/stop_profile")):
                status, text = 405, '{"detail": "Method Not Allowed"}'
            else:
                status, text = standin.answer(path, body)
            with suppress(BrokenPipeError, ConnectionResetError):  # the client has left
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
