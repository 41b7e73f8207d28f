"""41 private values of ten kinds, where captures hold them and once more in a range of the program. Of these
`--redact` leaves none in what is printed or written, and `redact` none in the copy but a word in the
name of a kernel, which the closing words of `redact` name."""

from __future__ import annotations

import base64
import gzip
import importlib
import json
import lzma
import re
import zipfile
from pathlib import Path

import click
import pytest

from advisor.agents.tools import Tools
from advisor.cli.app import VERBS
from advisor.cli.main import main
from advisor.model.options import FORMATS
from tests.builder import Export
from tests.kineto_builder import Profile

USERS = ("zoelind", "mkruger", "pstanley", "rhuang", "dtorres", "ivanova", "kbauer")
HOSTS = ("gpubox17", "fatnode4", "render-rig9", "trainer-b2", "headnode3", "slurmhost8")
PROMPTS = (
    "who is the mole of Harlow",
    "answer as Doctor Quill",
    "list debts of Mr Finch",
    "sell Larkspur now",
)
TENANTS = ("northbank", "vetlabs", "orbitron", "quellhof")
PASSWORDS = ("Wint3rPump", "Gr4velRoad", "H0neyTrap7", "Sl4teMoon9")
KEYS = (
    "sk-q8Wn3Zt6Yb1Kx5Vd2Rm9",
    "hf_Lp3Qs8Vx2Zc7Nb4Mk9Jd6",
    "b7k2m9x4q1w8z3v6",
    "ghp_Aa1Bb2Cc3Dd4Ee5Ff6Gg7Hh8",
)
MAILS = ("lena@harlow.example", "ops@vet-labs.example", "j.finch@orbitron.example")
FOLDERS = ("larkspur-merger", "payroll2026", "patient-scans", "bid-draft")
ADDRESSES = ("10.77.3.9", "172.20.14.61", "fd00:77:3::9a1")
VALUES = ("corpsecretvalue1", "tango-kilo-4471")
SEEDED = (*USERS, *HOSTS, *PROMPTS, *TENANTS, *PASSWORDS, *KEYS, *MAILS, *FOLDERS, *ADDRESSES, *VALUES)

#: The command line of both captures, as a shell splits it.
COMMAND = (
    f"/home/{USERS[2]}/{FOLDERS[0]}/bin/vllm",
    "serve",
    "meta-llama/Llama-3.1-8B",
    *("--prompt", PROMPTS[0], f"--system-prompt={PROMPTS[1]}", PROMPTS[2]),
    *("--sampling", json.dumps({"prompt": PROMPTS[3], "tenant": TENANTS[3], "top_k": 8})),
    *("--user", USERS[4], "--tenant", TENANTS[0], f"--tenant-id={TENANTS[1]}", "--customer", TENANTS[2]),
    *("-p", PASSWORDS[0], "--dsn", f"pg:{PASSWORDS[1]}@db", f"--db-password={PASSWORDS[2]}"),
    f"-p{PASSWORDS[3]}",
    *("--api-key", KEYS[0], f"--hf-token={KEYS[1]}", "--license-key", KEYS[2], "--from", KEYS[3]),
    *("--mail-to", MAILS[0], "--notify", MAILS[1], "--peer", ADDRESSES[0]),
    *("--download-dir", f"/data/{FOLDERS[1]}/cache", "--dtype", "bfloat16", "--port", "8000"),
)


def sentences() -> list[str]:
    """Texts of ranges. A name stands alone in them; what no row announces is known by its shape."""
    bare = [
        f"warm up {name} now" for name in (*USERS, *HOSTS, *TENANTS[:3], *VALUES, *KEYS[:2], *PROMPTS[:2])
    ]
    shaped = [
        f"mail {MAILS[0]} of {MAILS[1]}",
        f"{MAILS[2]} waits",
        f"to {ADDRESSES[1]}",
        f"[{ADDRESSES[2]}]",
    ]
    return [
        *bare,
        *shaped,
        f"read /data/{FOLDERS[2]}/x.bin",
        f"open ./{FOLDERS[3]}/runs/y.bin",
        f"use {KEYS[3]}",
    ]


def export(path: Path) -> Path:
    """An nsys export that says who recorded it in nine kinds of rows."""
    e = Export("3.17").gpu().command(*COMMAND).traced("Cuda", "NvtxEvents")
    e.system(Hostname=f"{HOSTS[3]}.corp.example", DeviceEnvironment=f"A=1\0LOGNAME={USERS[1]}\0B=2\0")
    e.row("META_DATA_EXPORT", name="EXPORT_HOST", value=HOSTS[1])
    e.row("META_DATA_EXPORT", name="EXPORT_USER", value=USERS[5])
    e.option("DEVICE_DISPLAY_NAME", HOSTS[2]).option("PROCESS_0:USER_NAME", USERS[6])
    for name, value in (
        ("USER", USERS[0]),
        ("HOSTNAME", HOSTS[0]),
        ("MASTER_ADDR", HOSTS[4]),
        ("SLURMD_NODENAME", HOSTS[5]),
        ("DB_SECRET", VALUES[0]),
        ("ADMIN_PASSWORD", VALUES[1]),
    ):
        e.environment(name, value)
    e.process(200, f"sshd: {USERS[3]}@pts/0").thread(201, f"{USERS[0]} worker")
    e.process(100, f"/home/{USERS[2]}/bin/python3").thread(100, f"main of {HOSTS[0]}")
    for step in range(40):
        for k in range(10):
            at = step * 200_000 + k * 16_000
            e.launch(at, 4_000, f"gemm_{k}<{USERS[0]}>" if k == 3 else f"gemm_{k}", at + 6_000, 5_000)
        e.range(f"iteration {step}", step * 200_000, 190_000)
    for n, text in enumerate(sentences()):
        (e.range if n % 2 else e.range_inline)(text, n * 190_000, 150_000)
    e.diagnostic(f"{USERS[1]} at {HOSTS[1]}: see /data/{FOLDERS[2]}/log.txt, {ADDRESSES[1]}")
    e.string(f"never used by {USERS[5]} of {TENANTS[0]}")
    return e.write(path)


def trace(path: Path) -> Path:
    """A trace of PyTorch, whose head says who recorded it; the machine is part of its name, too."""
    profile = Profile().gpu().process(100)
    for i in range(40):
        profile.annotation(f"ProfilerStep#{i}", i * 200_000, 190_000)
        for k in range(6):
            at = i * 200_000 + k * 20_000
            profile.launch(at=at, dur=5_000, kernel=f"k{k}", kernel_start=at + 7_000, kernel_dur=6_000)
    for n, text in enumerate(sentences()):
        profile.annotation(text, n * 200_000 + 1_000, 150_000)
    profile.python(f"/home/{USERS[2]}/{FOLDERS[0]}/run.py(12): main", 0, 9_000)
    people = dict(
        zip(("user", "username", "LOGNAME", "USER", "login", "user_name"), USERS[:2] + USERS[3:], strict=True)
    )
    hosts = dict(zip(("host", "hostname", "node", "MASTER_ADDR", "HOSTNAME"), HOSTS[1:], strict=True))
    firms = dict(zip(("tenant", "customer", "TENANT"), TENANTS, strict=False))
    secrets = {"db_secret": VALUES[0], "password": VALUES[1], "api_key": KEYS[0], "hf_token": KEYS[1]}
    texts = {"prompt": PROMPTS[0], "system_prompt": PROMPTS[1]}
    profile.head(job={**people, **hosts, **firms, **secrets, **texts})
    for kind, at, text in (
        ("process", {"tid": 100}, f"/home/{USERS[2]}/bin/python3"),
        ("thread", {"tid": 100}, f"main of {HOSTS[0]}"),
        ("thread", {"tid": 201}, f"{USERS[0]} worker"),
    ):
        profile.event(ph="M", name=f"{kind}_name", pid=100, ts=0, args={"name": text}, **at)
    return profile.write(path)


def log(path: Path) -> Path:
    """A server's log that begins with its arguments."""
    said = "\n".join(
        f"INFO 05-01 10:00:0{n % 10} [x.py:1] {text}" for n, text in enumerate((*sentences(), str(COMMAND)))
    )
    load = "".join(
        f"INFO 05-01 10:01:{n:02d} [loggers.py:116] Engine 000: Avg prompt throughput: 120.0 tokens/s, "
        f"Avg generation throughput: {900 + n}.0 tokens/s, Running: 8 reqs, Waiting: 0 reqs, "
        "GPU KV cache usage: 12.5%, Prefix cache hit rate: 0.0%\n"
        for n in range(30)
    )
    path.write_text(f"{said}\n{load}")
    return path


CAPTURES = {
    "export": (export, f"{USERS[0]}_{HOSTS[0]}.sqlite"),
    "trace": (trace, f"{HOSTS[0]}_4711.1700000000000000000.pt.trace.json"),
    "log": (log, "server.log"),
}
FINDINGS = [f.name for f in FORMATS if "findings" in f.serves]
DOCUMENTS = [f.name for f in FORMATS if "document" in f.serves]

#: What each verb with `--redact` is told, for each of its formats.
LINES = {
    "diagnose": [
        *(f"diagnose IN -v --explain-ranking --sensitivity --format {name}" for name in FINDINGS),
        "diagnose IN -v --format json -o OUT.json --html OUT.html --xlsx OUT.xlsx",
        "diagnose IN --for manager",
    ],
    "show": [f"show IN 1 --format {name}" for name in DOCUMENTS],
    "explain": [f"explain LCH101 --trace IN --format {name}" for name in DOCUMENTS],
    "doctor": [f"doctor IN -v --format {name}" for name in DOCUMENTS],
    "stats": [
        *(f"stats IN -r {report} --format csv" for report in ("kernels", "nvtx", "api", "trace", "launch")),
        *(f"stats IN -r nvtx -r kernels --format {name}" for name in ("text", "json", "markdown", "html")),
    ],
    "facts": [f"facts IN --format {name}" for name in DOCUMENTS],
    "whatif": [f"whatif IN --fix cuda_graphs --format {name}" for name in DOCUMENTS],
    "checklist": ["checklist IN --no-input --session OUT.yaml --format json --xlsx OUT.xlsx"],
    "compare": [
        *(f"compare IN IN --format {name}" for name in FINDINGS),
        "compare IN IN --html OUT.html --xlsx OUT.xlsx",
    ],
    "moe": ["moe IN IN --html OUT.html"],
    "baseline": ["baseline save NAMED IN --folder OUT.kept"],
    "review": ["review record IN --folder OUT.kept"],
    "export": ["export perfetto IN -o OUT.bin", "export perfetto IN --with-trace -o OUT.bin"],
}
#: Verbs that record, or serve; what they print is that of `diagnose`, and of `tests/redact/test_planted.py`.
RECORDING = {"run", "attach", "mcp", "demo"}


def written(folder: Path) -> bytes:
    """All that stands in files that a verb has written."""
    found = b""
    for out in sorted(folder.rglob("*")):
        if out.suffix == ".xlsx":
            with zipfile.ZipFile(out) as book:
                found += b"".join(map(book.read, book.namelist()))
        elif out.is_file():
            found += out.name.encode() + out.read_bytes()
    return found


def left(shown: bytes) -> list[str]:
    """Those of the values that are still there, as they are or as JSON, HTML or a URL spell them."""
    packed = re.findall(rb"H4sI[A-Za-z0-9+/=]{40,}", shown)  # the document within a page
    shown += b"".join(gzip.decompress(base64.b64decode(part)) for part in packed)
    text = shown.decode("utf-8", "replace")
    return [value for value in SEEDED if value in text or value.replace(" ", "%20") in text]


def test_the_values_are_41_of_ten_kinds_and_stand_in_the_captures(tmp_path: Path) -> None:
    assert len(set(SEEDED)) == 41
    for make, name in CAPTURES.values():
        raw = make(tmp_path / name).read_text("utf-8", "replace")
        raw += name + json.dumps(raw)
        assert len([value for value in SEEDED if value in raw]) >= 30  # a trace has no command line


@pytest.mark.parametrize("kind", CAPTURES)
@pytest.mark.parametrize("words", [line for lines in LINES.values() for line in lines])
def test_no_output_shows_one(
    words: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make, name = CAPTURES[kind]
    made = tmp_path / "in"
    made.mkdir()
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    source = make(made / name)
    line = [w.replace("IN", str(source)) if w == "IN" else w.replace("OUT", "out/out") for w in words.split()]
    code = main([*line, "--redact"])
    shown = capsys.readouterr().out.encode() + written(tmp_path / "out")
    if code == 2:
        assert kind != "export" or words.startswith("moe"), words  # a log has no kernels, a pair no router
        return
    assert len(shown) > 40 or "concise" in words  # it has a line for each finding
    allowed = {USERS[0]} if f"gemm_3<{USERS[0]}>".encode() in shown or b"gemm_3&lt;" in shown else set()
    assert set(left(shown)) <= allowed
    assert str(tmp_path).encode() not in shown


@pytest.mark.parametrize("form", [*FINDINGS, "html"])
def test_the_ranks_of_a_job_are_not_named_after_their_machines(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = [
        tmp_path / f"{host}_4711.170000000000000000{n}.pt.trace.json" for n, host in enumerate(HOSTS[:2])
    ]
    for number, path in enumerate(ranks):
        document = json.loads(trace(path).read_text())
        document["distributedInfo"] = {"backend": "nccl", "rank": number, "world_size": 2}
        path.write_text(json.dumps(document))
    (tmp_path / "out").mkdir()
    line = ["diagnose", *map(str, ranks), "--ranks", "-v", "--format", form, "--redact", "--xlsx"]
    assert main([*line, str(tmp_path / "out" / "x.xlsx")]) == 0
    assert left(capsys.readouterr().out.encode() + written(tmp_path / "out")) == []


def test_no_answer_to_an_agent_shows_one(tmp_path: Path) -> None:
    path = export(tmp_path / CAPTURES["export"][1])
    tools = Tools([tmp_path], redact=True)
    answers = [
        tools.diagnose(path.name, limit=100),
        tools.doctor(path.name),
        tools.compare(path.name, path.name),
        *(tools.stats(path.name, report, limit=100) for report in ("nvtx", "trace", "api")),
    ]
    assert left(json.dumps(answers, ensure_ascii=False).encode()) in ([], [USERS[0]])


def test_every_verb_with_the_option_is_walked() -> None:
    taking = set()
    for name, (module, function, *_) in VERBS.items():
        command = getattr(importlib.import_module(module), function)
        inner = command.commands.values() if isinstance(command, click.Group) else [command]
        if any(p.name == "redact" for c in inner for p in c.params):
            taking.add(name)
    assert taking - RECORDING == set(LINES)


@pytest.mark.parametrize("ending", ["", ".xz"])
def test_the_copy_holds_none_and_its_closing_words_name_what_stays(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = export(tmp_path / "in.sqlite"), tmp_path / f"copy.sqlite{ending}"
    assert main(["redact", str(source), str(out)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    raw = out.read_bytes()
    raw = lzma.decompress(raw) if ending else raw
    assert left(raw) == [USERS[0]]
    assert raw.replace(f"gemm_3<{USERS[0]}>".encode(), b"").count(USERS[0].encode()) == 0
    assert f"gemm_3<{USERS[0]}>" in said
    assert "meta-llama/Llama-3.1-8B" in said
    assert "texts of NVTX ranges warm up redacted now" in said


def test_doctor_shows_no_credential_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = export(tmp_path / "in.sqlite")
    for form in DOCUMENTS:
        assert main(["doctor", str(source), "-v", "--format", form]) == 0
        shown = capsys.readouterr().out
        assert [v for v in (*PASSWORDS[1:3], *KEYS, *VALUES) if v in shown] == []
        assert "meta-llama/Llama-3.1-8B" in shown


def test_a_rank_that_cannot_be_read_is_not_named_after_its_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, cut = (tmp_path / f"{h}_4711.170000000000000000{n}.pt.trace.json" for n, h in enumerate(HOSTS[:2]))
    cut.write_text(trace(whole).read_text()[:9_000])
    assert main(["diagnose", str(whole), str(cut), "--ranks", "--format", "json", "--redact"]) == 2
    shown = "".join(capsys.readouterr())
    assert left(shown.encode()) == []
    assert str(tmp_path) not in shown
