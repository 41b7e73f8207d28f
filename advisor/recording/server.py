"""A serving engine that runs: which it is, and its answers, over HTTP.

Only the address given is contacted: `http.client` follows no redirect and knows no proxy. What the engines
answer was read in the sources of vLLM 0.8 to 0.33 and SGLang 0.4.6 to 0.5.23.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from threading import Event, Thread, Timer
from time import time
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct

from advisor.errors import InputError
from advisor.numerals import read_int

#: What an answer may take in all, in seconds, and how large it may be.
ANSWER_S = 10.0
_MOST_BYTES = 32 << 20
_CHUNK = 1 << 16
#: Where the key of a server comes from: command lines are seen by others.
KEY = "ADVISOR_API_KEY"
_PORTS = {"http": 80, "https": 443}


class Pace(Struct, frozen=True):
    """Seconds: how long the load is looked at and how often, how long a load of ours may take to arrive, the
    least and most that a window of steps may take, and how long files have not grown when they are whole."""

    load: float = 5.0
    look: float = 0.5
    arrive: float = 120.0
    least: float = 5.0
    most: float = 120.0
    quiet: float = 2.0


class Unreachable(InputError):
    """Nothing answers, or not in time."""


class Answer(NamedTuple):
    """Status and body."""

    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    @property
    def document(self) -> dict[str, Any]:
        """The JSON object of a good answer, else an empty one."""
        with suppress(ValueError, RecursionError):
            found = json.loads(self.body) if self.ok else None
            if isinstance(found, dict):
                return found
        return {}

    @property
    def reason(self) -> str:
        """``HTTP 500 (Internal Server Error)``"""
        text = self._message() or " ".join(self.text.split())
        return f"HTTP {self.status}" + (f" ({text[:120]})" if text else "")

    def _message(self) -> str:
        """The message of an error in JSON, as these engines write it."""
        try:
            found = json.loads(self.body)
            error = found.get("error", found)
            return str(error.get("message") or error.get("detail") or "")
        except (ValueError, RecursionError, AttributeError):
            return ""


class Server:
    """The server at an address such as `http://localhost:8000`. Raises InputError for what is no address."""

    def __init__(self, url: str, key: str | None = None) -> None:
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            port, host = parts.port, parts.hostname
        except ValueError as error:
            raise InputError(f"'{url}' is not an address of a server ({error})") from None
        if parts.scheme not in _PORTS or not host:
            raise InputError(f"'{url}' is not an address of a server; write http://HOST:PORT")
        if parts.username is not None or parts.query or parts.fragment:
            raise InputError(f"write http://HOST:PORT alone; a key of the server goes into {KEY}")
        self.host, self.port = host, port or _PORTS[parts.scheme]
        self._path = parts.path.rstrip("/")
        self.url = f"{parts.scheme}://{parts.netloc}{self._path}"
        self._secure, self._timeout = parts.scheme == "https", ANSWER_S
        #: By how many seconds its clock is ahead of ours, as its last answer says.
        self.ahead_s = 0.0
        self._headers = {"Accept": "*/*", "Connection": "close"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def get(self, path: str) -> Answer:
        """What it answers to a question. Raises InputError if nothing answers in time, or elsewhere."""
        return self._ask("GET", path, None, self._timeout, Event())

    def post(
        self, path: str, body: Mapping[str, Any] | None, timeout: float, sent: Event | None = None
    ) -> Answer:
        """The same for an order; `sent` is set once the server has it."""
        return self._ask("POST", path, body, timeout, sent or Event())

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float, sent: Event
    ) -> Answer:
        connection: HTTPConnection
        if self._secure:
            connection = HTTPSConnection(self.host, self.port, timeout=timeout)
        else:
            connection = HTTPConnection(self.host, self.port, timeout=timeout)
        late = Event()
        timer: Timer | None = None
        headers, data = dict(self._headers), None
        if body is not None:
            headers["Content-Type"], data = "application/json", json.dumps(body).encode()
        elif method == "POST":
            headers["Content-Length"] = "0"
        try:
            connection.connect()
            timer = Timer(timeout, _cut, (connection.sock, late))
            timer.daemon = True
            timer.start()
            connection.request(method, f"{self._path}{path}", data, headers)
            sent.set()
            response = connection.getresponse()
            parts, size = [], 0
            while chunk := response.read(_CHUNK):
                parts.append(chunk)
                size += len(chunk)
                if size > _MOST_BYTES:
                    raise InputError(f"{self.url}{path}: answers more than {_MOST_BYTES >> 20} MB")
            if late.is_set():
                raise TimeoutError
            self.ahead_s = _ahead(response.headers.get("Date"))
            answer = Answer(response.status, b"".join(parts))
        except (OSError, HTTPException) as error:
            raise Unreachable(f"{self.url}: {_why(error, late.is_set(), timeout)}") from None
        finally:
            if timer is not None:
                timer.cancel()
            connection.close()
        if 300 <= answer.status < 400:
            raise InputError(
                f"{self.url}{path}: redirects to {response.headers.get('Location', 'another address')}; only "
                "the address given is contacted: give that of the server itself"
            )
        if answer.status in (401, 403):
            raise InputError(f"{self.url}{path}: {answer.reason}; put the server's key into {KEY}")
        return answer


def _ahead(date: str | None) -> float:
    """By how many seconds the time of an answer is ahead; 0 without one."""
    try:
        return parsedate_to_datetime(date or "").timestamp() - time()
    except (TypeError, ValueError):
        return 0.0


def _cut(connection: socket.socket, late: Event) -> None:
    late.set()
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _why(error: Exception, late: bool, timeout: float) -> str:
    if late or isinstance(error, TimeoutError):
        return f"no answer within {timeout:.0f} s"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there; is the port right, and the server up?"
    if isinstance(error, socket.gaierror):
        return f"no such host ({error.strerror})"
    if isinstance(error, ssl.SSLError):
        return f"no TLS connection ({error.reason or error}); http instead of https?"
    if isinstance(error, ConnectionError):
        return "closes the connection without an answer; https instead of http, or has the server died?"
    if isinstance(error, HTTPException):
        return "what answers there does not speak HTTP; https instead of http?"
    return f"cannot be reached ({getattr(error, 'strerror', None) or error})"


class Call:
    """An order to the server, carried out in a thread of its own once it has begun, so that Ctrl-C cannot cut
    it short: `sent` says that the server has it, `done` that its answer or an error is known."""

    def __init__(self, server: Server, path: str, body: Mapping[str, Any] | None, timeout: float) -> None:
        self.sent, self.done = Event(), Event()
        self.answer: Answer | None = None
        self.error: InputError | None = None
        self._thread = Thread(target=self._run, args=(server, path, body, timeout), daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def _run(self, server: Server, path: str, body: Mapping[str, Any] | None, timeout: float) -> None:
        try:
            self.answer = server.post(path, body, timeout, self.sent)
        except InputError as error:
            self.error = error
        finally:
            self.done.set()

    @property
    def failed(self) -> bool:
        """Whether it is known not to have been carried out, or not known whether it was."""
        return self.done.is_set() and (self.answer is None or not self.answer.ok)

    @property
    def refused(self) -> bool:
        """Whether it is known not to have been carried out: the server says so, or never had it."""
        return self.failed and (self.answer is not None or not self.sent.is_set())

    @property
    def why(self) -> str:
        """Why it was not carried out."""
        return str(self.error) if self.answer is None else self.answer.reason


# --- which engine ------------------------------------------------------------------------------------------

#: The profiler of vLLM is switched on at start-up, by an option from this release on.
_CONFIGURED = (0, 13)
_RELEASE = re.compile(r"v?(\d{1,9})\.(\d{1,9})")


class Engine(Struct, frozen=True):
    """What serves: its release, the number of its ranks and the folder of its traces, as far as it says so,
    its settings as it lists them, and whether it offers a profiler (None: it does not say)."""

    name: Literal["vllm", "sglang"]
    version: str
    ranks: int | None = None
    traces: Path | None = None
    settings: tuple[str, ...] = ()
    profiles: bool | None = None

    @property
    def title(self) -> str:
        return f"{'vLLM' if self.name == 'vllm' else 'SGLang'} {self.version}"

    @property
    def how_to_enable(self) -> str:
        """The flag that switches the profiler on at start-up, in the spelling of the release."""
        hit = _RELEASE.match(self.version)
        if self.name == "sglang":
            return "it profiles without a flag; give the address of the server itself, not of a router"
        if hit is not None and (read_int(hit[1]) or 0, read_int(hit[2]) or 0) < _CONFIGURED:
            return "start it with VLLM_TORCH_PROFILER_DIR=/absolute/folder in its environment"
        return (
            "start it with --profiler-config.profiler torch "
            "--profiler-config.torch_profiler_dir /absolute/folder"
        )


def engine_of(server: Server) -> Engine:
    """The engine that answers. Raises InputError if none that is known does."""
    asked = server.get("/version")
    if isinstance(version := asked.document.get("version"), str):
        return _vllm(server, version)
    for path in ("/server_info", "/get_server_info"):
        found = server.get(path).document
        if isinstance(version := found.get("version"), str):
            return _sglang(version, found)
    if (build := server.get("/props").document.get("build_info")) is not None:
        raise InputError(
            f"{server.url}: llama.cpp {build} answers there, which has no profiler to attach to; record it "
            "from its start: advisor run --delay 20 -- llama-server ..., under load; or diagnose its log and "
            "/metrics"
        )
    raise InputError(
        f"{server.url}: neither vLLM nor SGLang answers there (/version: {asked.reason}); is the port right?"
    )


def _vllm(server: Server, version: str) -> Engine:
    """vLLM, and engines that follow it. It shows its settings in development mode only
    (VLLM_SERVER_DEV_MODE=1)."""
    paths = server.get("/openapi.json").document.get("paths")
    config = server.get("/server_info?config_format=json").document.get("vllm_config")
    config = config if isinstance(config, dict) else {}
    profiler, parallel, scheduler = (
        found if isinstance(found := config.get(f"{name}_config"), dict) else {}
        for name in ("profiler", "parallel", "scheduler")
    )
    folder, ranks = profiler.get("torch_profiler_dir"), parallel.get("world_size")
    settings = {
        "max_num_seqs": scheduler.get("max_num_seqs"),
        "max_num_batched_tokens": scheduler.get("max_num_batched_tokens"),
        "tensor_parallel_size": parallel.get("tensor_parallel_size"),
    }
    return Engine(
        name="vllm",
        version=version,
        ranks=ranks if isinstance(ranks, int) else None,
        traces=Path(folder) if isinstance(folder, str) and folder else None,
        settings=(f"vLLM API server version {version}", *_listed(settings)),
        profiles="/start_profile" in paths if isinstance(paths, dict) else None,
    )


def _sglang(version: str, found: Mapping[str, Any]) -> Engine:
    sizes = [found.get(name) for name in ("tp_size", "pp_size", "dp_size")]
    tensor, pipeline, data = (size if isinstance(size, int) and size > 0 else 1 for size in sizes)
    inside = found.get("enable_dp_attention") is True  # replicas that share the ranks of one model
    names = (
        "tp_size",
        "max_running_requests",
        "chunked_prefill_size",
        "cuda_graph_max_bs",
        "disable_cuda_graph",
        "speculative_num_draft_tokens",
        "max_total_num_tokens",
    )
    return Engine(
        name="sglang",
        version=version,
        ranks=tensor * pipeline * (1 if inside else data),
        settings=(f"sglang=={version}", *_listed({name: found.get(name) for name in names})),
        profiles=True,
    )


def _listed(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """``max_num_seqs=256`` for what is a number or a switch."""
    return tuple(f"{name}={value}" for name, value in settings.items() if isinstance(value, int | float))
