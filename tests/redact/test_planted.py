"""Secrets of a hundred kinds in 15 places of an export and ten of a trace: none survives, and the copy is
diagnosed alike."""

from __future__ import annotations

import base64
import json
import random
import sqlite3
import string
import zipfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from advisor.agents.tools import Tools
from advisor.capture.redact import redact
from advisor.cli.main import main
from advisor.errors import AdvisorError
from advisor.model.options import Options
from advisor.pipeline.diagnose import diagnose
from tests.builder import Export
from tests.kineto_builder import Profile

RNG = random.Random(5)
LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"


def word(length: int, of: str = LETTERS) -> str:
    return "".join(RNG.choice(of) for _ in range(length))


def base(length: int) -> str:
    return base64.b64encode(word(length).encode()).decode()


#: Kind -> (how a secret is made, the text around it).
KINDS = {
    "bearer": (lambda: word(40), "Authorization: Bearer {}"),
    "basic": (lambda: base(24), "curl -H 'Authorization: Basic {}' x"),
    "password": (lambda: word(12), "mysql --password {} --host x"),
    "token": (lambda: word(16), "run --hf-token {}"),
    "db password": (lambda: word(12), "--db-password={}"),
    "pem": (lambda: word(64), "-----BEGIN RSA PRIVATE KEY-----\n{}\nx\n-----END RSA PRIVATE KEY-----"),
    "account key": (lambda: base(48), "DefaultEndpointsProtocol=https;AccountName=acme;AccountKey={};E=x"),
    "aws id": (lambda: "AKIA" + word(16, string.ascii_uppercase), "key {} used"),
    "aws secret": (lambda: word(40, LETTERS + "/+"), "aws_secret_access_key = {}"),
    "hugging face": (lambda: "hf_" + word(34), "login {}"),
    "openai": (lambda: "sk-proj-" + word(40), "use {}"),
    "github": (lambda: "ghp_" + word(36), "clone {}"),
    "google": (lambda: "AIza" + word(35), "maps {}"),
    "wandb": (lambda: word(40, HEX), "WANDB_API_KEY={}"),
    "hex key": (lambda: word(64, HEX), "encryption key: {}"),
    "url": (lambda: word(14), "postgres://admin:{}@db.corp.example:5432/x"),
    "host": (lambda: f"gpu-{word(5, string.ascii_lowercase)}.cluster.acme-corp.internal", "to {} ok"),
    "ipv4": (lambda: f"10.{RNG.randrange(256)}.{RNG.randrange(256)}.{RNG.randrange(1, 255)}", "on {}:80 up"),
    "ipv6": (lambda: "fd00:" + ":".join(word(4, HEX) for _ in range(7)), "peer [{}]:80"),
    "host of AWS": (lambda: f"ip-10-{RNG.randrange(256)}-{RNG.randrange(10, 256)}-77", "on {} up"),
    "mac": (lambda: ":".join(word(2, HEX) for _ in range(6)), "nic {}"),
    "mac with dashes": (lambda: "A1-" + "-".join(word(2, HEX.upper()) for _ in range(5)), "nic {}"),
    "mac with dots": (lambda: "a" + word(3, HEX) + "".join(f".{word(4, HEX)}" for _ in range(2)), "arp {}"),
    "user": (lambda: "u" + word(9, string.ascii_lowercase), "load /home/{}/model/x.bin"),
    "slack": (lambda: "xoxb-" + word(12, string.digits) + "-" + word(24), "post {}"),
    "jwt": (lambda: f"eyJ{word(20)}.eyJ{word(40)}.{word(43)}", "jwt {}"),
    "nvapi": (lambda: "nvapi-" + word(60), "ngc {}"),
    "mail": (lambda: word(8, string.ascii_lowercase) + "@acme-corp.example", "mail {}"),
    **{
        name: (lambda lead=lead, length=length, of=of: lead + word(length, of), "log in with {} now")
        for name, lead, length, of in (
            ("gitlab", "glpat-", 20, LETTERS),
            ("gitlab runner", "glrt-", 20, LETTERS),
            ("gitlab deploy", "gldt-", 20, LETTERS),
            ("gitlab job", "glcbt-64_", 20, LETTERS),
            ("gitlab trigger", "glptt-", 40, HEX),
            ("gitlab registration", "GR1348941", 20, LETTERS),
            ("github fine", "github_pat_11A_", 59, LETTERS),
            ("github app", "ghs_", 36, LETTERS),
            ("hugging face letters", "hf_", 34, string.ascii_letters),
            ("hugging face org", "api_org_", 34, string.ascii_letters),
            ("wandb v1", "wandb_v1_", 70, LETTERS),
            ("wandb local", "local-", 40, HEX),
            ("anthropic", "sk-ant-api03-", 90, LETTERS),
            ("openai service", "sk-svcacct-", 60, LETTERS),
            ("nvapi staging", "nvapi-stg-", 60, LETTERS),
            ("aws session id", "ASIA", 16, string.ascii_uppercase),
            ("azure id", "aB18Q~", 34, LETTERS),
            ("google client", "GOCSPX-", 28, LETTERS),
            ("google oauth", "ya29.", 60, LETTERS),
            ("slack app", "xapp-1-A0-", 30, LETTERS),
            ("telegram", "6349222832:AA", 33, LETTERS),
            ("stripe", "rk_live_", 24, LETTERS),
            ("sendgrid", "SG.abcdefghij0123456789ab.", 43, LETTERS),
            ("twilio", "SK", 32, HEX),
            ("npm", "npm_", 36, LETTERS),
            ("pypi", "pypi-AgEIcHlwaS5vcmc", 60, LETTERS),
            ("docker hub", "dckr_pat_", 27, LETTERS),
            ("vault", "hvs.", 90, LETTERS),
            ("vault batch", "hvb.", 140, LETTERS),
            ("terraform", "xD5JtNEE0tbpvo.atlasv1.", 60, LETTERS),
            ("databricks", "dapi", 32, HEX),
            ("digital ocean", "dop_v1_", 64, HEX),
            ("replicate", "r8_", 37, LETTERS),
            ("groq", "gsk_", 52, LETTERS),
            ("xai", "xai-", 80, LETTERS),
            ("perplexity", "pplx-", 48, LETTERS),
            ("fireworks", "fw_1", 22, LETTERS),
            ("langsmith", "lsv2_pt_", 32, HEX),
            ("pinecone", "pcsk_", 60, LETTERS),
            ("runpod", "rpa_", 40, string.ascii_uppercase),
            ("tailscale", "tskey-auth-", 32, LETTERS),
            ("new relic", "NRAK-", 27, string.ascii_uppercase),
            ("grafana", "glsa_", 40, LETTERS),
            ("grafana cloud", "glc_", 60, LETTERS),
            ("shopify", "shpat_", 32, HEX),
            ("atlassian", "ATATT3", 180, LETTERS),
            ("linear", "lin_api_", 40, LETTERS),
            ("notion", "ntn_", 46, LETTERS),
            ("doppler", "dp.pt.", 43, LETTERS),
            ("age", "AGE-SECRET-KEY-1", 58, string.ascii_uppercase),
            ("alibaba", "LTAI", 20, LETTERS),
            ("jwe", "eyJhbGciOiJkaXIifQ..", 60, LETTERS),
        )
    },
    **{
        name: (lambda length=length, of=of: word(length, of), around)
        for name, length, of, around in (
            ("netrc", 14, string.ascii_lowercase, "machine github.com login acme password {}"),
            ("password of letters", 12, string.ascii_lowercase, "db: (password: {})"),
            ("token of letters", 20, string.ascii_lowercase, "token={}"),
            ("python literal", 20, LETTERS, "Config(api_key='{}', model='x')"),
            ("part of JSON", 20, LETTERS, '"clientSecret": "{}", "x": 1'),
            ("connection string", 14, LETTERS, "Server=db;Uid=sa;SharedAccessKey={};Encrypt=true"),
            ("odbc", 12, LETTERS, "Server=db;Uid=sa;Pwd={};"),
            ("jdbc", 12, LETTERS, "jdbc:mysql://db:3306/x?user=a&password={}"),
            ("mongodb", 16, LETTERS, "mongodb+srv://svc:{}@c0.mongodb.example"),
            ("presigned", 64, HEX, "b.s3.amazonaws.com/m.bin?X-Amz-Expires=3600&X-Amz-Signature={}"),
            ("shared signature", 43, LETTERS, "?sv=2022-11-02&ss=b&sig={}&se=2026"),
            ("webhook", 24, LETTERS, "hooks.slack.com/services/T0/B0/{}"),
            ("cookie", 32, LETTERS, "Cookie: a=b; sessionid={}"),
            ("custom scheme", 14, LETTERS, "Authorization: Api-Key {}"),
            ("vault header", 30, LETTERS, "X-Vault-Token: {}"),
            ("docker login", 12, LETTERS, "docker login -u bob -p {} nvcr.io"),
            ("curl user", 12, LETTERS, "curl -u bob:{} https://x"),
            ("sshpass", 12, LETTERS, "sshpass -p {} ssh x"),
            ("user of scp", 9, string.ascii_lowercase, "scp {}@gpu01:/tmp/x ."),
            ("user of ssh", 9, string.ascii_lowercase, "ssh {}@gpu01 hostname"),
            ("mail in a path", 9, string.ascii_lowercase, "/mnt/drive/{}@acme-corp.example/models/run.py"),
            ("docker variable", 12, LETTERS, "docker run -e DB_PASS={} image"),
            ("PowerShell", 12, LETTERS, '$env:API_TOKEN="{}"'),
            ("oracle", 12, LETTERS, "jdbc:oracle:thin:svc/{}@//db:1521/x"),
            ("openssl", 12, LETTERS, "openssl enc -pass pass:{} x"),
            ("rclone", 12, LETTERS, "rclone --sftp-pass {} ls"),
            ("session token", 120, LETTERS + "+/", '"SessionToken": "{}"'),
            ("hash of a password", 22, LETTERS, "bob:$apr1$a1b2c3d4${}"),
            ("public key", 120, LETTERS + "+/", "ssh-rsa AAAAB3NzaC1yc2E{} bob@host"),
            ("escaped folder", 9, string.ascii_lowercase, '"C:\\\\Users\\\\{}\\\\AppData\\\\m.bin"'),
            ("server", 9, string.ascii_lowercase, "//nas01/home/{}/run.py"),
            ("folder of a Mac", 9, string.ascii_lowercase, "/Users/{}/Library/x"),
            ("user of a shell", 9, string.ascii_lowercase, "USER={} python run.py"),
            ("user of a job", 9, string.ascii_lowercase, "export SLURM_JOB_USER={}"),
            ("first node", 9, string.ascii_lowercase, "MASTER_ADDR={} MASTER_PORT=29500 torchrun"),
            ("service of a cluster", 9, string.ascii_lowercase, "connect {}.cluster.local:29500"),
            ("user and port of ssh", 9, string.ascii_lowercase, "ssh -p 2222 {}@10.0.0.7"),
            ("samba", 12, LETTERS, "smbclient -U bob%{} //nas/x"),
            ("fernet", 43, LETTERS, "Fernet('{}=')"),
            ("basic call", 14, LETTERS, "HTTPBasicAuth('bob', '{}')"),
            ("user by number", 9, string.ascii_lowercase, "uid=1001({}) gid=100(users)"),
            ("user of sudo", 9, string.ascii_lowercase, "sudo -u {} python x.py"),
            ("user of su", 9, string.ascii_lowercase, "su - {} -c x"),
            ("owner", 9, string.ascii_lowercase, "chown -R {}:users /data"),
            ("user of srun", 9, string.ascii_lowercase, "srun --uid={} x"),
            ("license", 25, LETTERS, "LICENSE_KEY={}"),
            ("kubeconfig", 120, LETTERS + "+/", "client-key-data: {}"),
            ("openssh", 64, LETTERS, "-----BEGIN OPENSSH PRIVATE KEY-----\\n{}"),
            ("pgp", 64, LETTERS, "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{}\n-----END PGP"),
        )
    },
}
PLACES = (
    "nvtx",
    "inline",
    "argument",
    "environment",
    "thread",
    "process",
    "kernel",
    "diagnostic",
    "option",
    "system",
    "table",
    "column",
    "default",
    "view",
    "blob",
)


def planted(path: Path, kinds: Sequence[str] = tuple(KINDS)) -> list[tuple[str, str, str]]:
    """Writes the export; returns kind, place and value of each secret."""
    e = Export("3.17").gpu().process(100)
    for i in range(30):
        e.launch(i * 20_000, 3_000, f"k{i % 3}", i * 20_000 + 5_000, 9_000)
    found, arguments, by_hand = [], ["python"], []
    for n, (place, kind) in enumerate(product(PLACES, kinds)):
        make, around = KINDS[kind]
        found.append((kind, place, secret := make()))
        text = around.format(secret)
        if place == "nvtx":
            e.range(text, n, n + 9)
        elif place == "inline":
            e.range_inline(text, n, n + 9)
        elif place == "argument":
            arguments += text.split(" ")
        elif place == "environment":
            e.environment(f"V{n}", text)
        elif place == "thread":
            e.thread(1000 + n, text)
        elif place == "process":
            e.row("PROCESSES", globalPid=e.global_pid, pid=100, name=text)
        elif place == "kernel":
            e.kernel(1_000_000 + n * 30, 10, f"void f<{text}>()", correlation=0)
        elif place == "diagnostic":
            e.diagnostic(text)
        elif place == "option":
            e.option(f"OPT{n}", text)
        elif place == "system":
            e.system(**{f"Prop{n}": text})
        else:
            by_hand.append((place, n, text))
    e.command(*arguments).write(path)
    with sqlite3.connect(path, isolation_level=None) as db:
        db.execute("begin")  # one transaction for all
        for place, n, text in by_hand:
            name, value = text.replace('"', '""'), text.replace("'", "''")
            db.execute(
                {
                    "table": f'create table "{name}" (a)',
                    "column": f'create table t{n} (a, "{name}" text)',
                    "default": f"alter table PROCESSES add column c{n} text default '{value}'",
                    "view": f"create view v{n} as select '{value}' as x",
                    "blob": f"create table CUDA_{n} as select cast('{value}' as blob) as a",
                }[place]
            )
        db.execute("commit")
    return found


def test_none_survives(tmp_path: Path) -> None:
    path, out = tmp_path / "in.sqlite", tmp_path / "out.sqlite"
    secrets = planted(path)
    raw = path.read_bytes()
    # Where a page of the file ends in a secret, its bytes do not follow each other.
    assert len([s for s in secrets if s[2].encode() not in raw]) <= 5
    redact(path, out)
    copy = out.read_bytes()
    assert [s for s in secrets if s[2].encode() in copy] == []
    plain, copied, hidden = (
        [(f.cause, f.severity) for f in found.findings if f.code != "CAP112"]
        for found in (diagnose(path), diagnose(out), diagnose(path, Options(redact=True)))
    )
    assert plain == copied == hidden


REPORTS = (
    "diagnose IN -v --format json -o OUT.json --html OUT.html --xlsx OUT.xlsx",
    "doctor IN -v",
    "facts IN --format json",
    "checklist IN --no-input --session OUT.yaml --format json",
    "stats IN -r kernels -r nvtx --format json",
    "export perfetto IN --with-trace -o OUT.bin",
)


@pytest.mark.parametrize("number", range(len(REPORTS)), ids=REPORTS)
def test_no_report_shows_one(number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All are made of the same redacted capture: each is given some of the kinds."""
    secrets = planted(tmp_path / "in.sqlite", list(KINDS)[number :: len(REPORTS)])
    assert_hidden(secrets, REPORTS[number], tmp_path / "in.sqlite", capsys)


def assert_hidden(
    secrets: list[tuple[str, str, str]], words: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No secret, and no folder, is in what these words print and write."""
    places = {"IN": path, "OUT": path.parent / "out"}
    for name, place in places.items():
        words = words.replace(name, str(place))
    assert main([*words.split(), "--redact"]) == 0
    shown = capsys.readouterr().out.encode()
    for out in path.parent.glob("out.*"):
        if out.suffix == ".xlsx":
            with zipfile.ZipFile(out) as book:
                shown += b"".join(map(book.read, book.namelist()))
        else:
            shown += out.read_bytes()
    assert len(shown) > 1_000
    assert [s for s in secrets if s[2].encode() in shown] == []
    assert str(path.parent).encode() not in shown


TRACED = ("annotation", "op", "kernel", "call", "python", "thread", "process", "label", "args", "metadata")


def planted_in_trace(path: Path) -> list[tuple[str, str, str]]:
    """The same for a trace of the PyTorch profiler."""
    profile = Profile().gpu().process(100)
    for i in range(40):
        profile.annotation(f"ProfilerStep#{i}", i * 100_000, 90_000)
        at = i * 100_000
        profile.launch(at=at, dur=5_000, kernel=f"k{i % 3}", kernel_start=at + 7_000, kernel_dur=10_000)
    profile.write(path)
    document = json.loads(path.read_text())
    events, found = document["traceEvents"], []
    roles = {
        "annotation": "user_annotation",
        "op": "cpu_op",
        "call": "cuda_runtime",
        "python": "python_function",
    }
    for n in range(len(KINDS) * len(TRACED)):
        kind, place = list(KINDS)[n % len(KINDS)], TRACED[n // len(KINDS)]
        make, around = KINDS[kind]
        found.append((kind, place, secret := make()))
        text, host = around.format(secret), {"pid": 100, "tid": 100, "ts": n * 3, "dur": 2}
        if place in roles:
            events.append({"ph": "X", "cat": roles[place], "name": text, "args": {}, **host})
        elif place == "kernel":
            args = {"device": 0, "stream": 7, "correlation": 0}
            where = {"pid": 0, "tid": 7, "ts": 5_000_000 + n * 30, "dur": 9}
            events.append({"ph": "X", "cat": "kernel", "name": f"void f<{text}>()", "args": args, **where})
        elif place == "args":
            events.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "args": {f"x{n}": text}, **host})
        elif place == "metadata":
            document[f"meta{n}"] = text
        else:
            name = "process_labels" if place == "label" else f"{place}_name"
            args = {"labels" if place == "label" else "name": text}
            events.append({"ph": "M", "name": name, "pid": 2_000 + n, "tid": n, "ts": 0, "args": args})
    path.write_text(json.dumps(document))
    return found


@pytest.mark.parametrize(
    "words",
    [
        "diagnose IN -v --format json -o OUT.json --html OUT.html --xlsx OUT.xlsx",
        "diagnose IN --format sarif -o OUT.sarif",
        "doctor IN -v",
        "explain LCH101 --trace IN",
        "stats IN -r kernels -r nvtx -r api --format json",
        "export perfetto IN --with-trace -o OUT.bin",
    ],
)
def test_no_report_of_a_trace_shows_one(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_hidden(planted_in_trace(tmp_path / "in.json"), words, tmp_path / "in.json", capsys)


def every_page(tools: Tools, report: str) -> Iterator[Any]:
    offset: int | None = 0
    while offset is not None:
        yield (found := tools.stats("in.sqlite", report, offset=offset, limit=100))
        offset = found.get("next_offset")


def test_no_answer_to_an_agent_shows_one(tmp_path: Path) -> None:
    """Neither whole nor cut off where an answer ends."""
    secrets = planted(tmp_path / "in.sqlite", list(KINDS)[::4])
    tools = Tools([tmp_path], redact=True)
    answers: list[Any] = [found := tools.diagnose("in.sqlite", limit=100)]
    for finding in found["findings"]["rows"]:
        answers += [tools.show("in.sqlite", finding["code"]), tools.explain(finding["code"], "in.sqlite")]
    answers += [tools.compare("in.sqlite", "in.sqlite"), tools.doctor("in.sqlite")]
    for report in ("kernels", "trace", "nvtx", "launch"):
        answers += every_page(tools, report)
    for wrong in (lambda: tools.whatif("in.sqlite", ["fp8_kv_cache"]), lambda: tools.diagnose("none.sqlite")):
        with pytest.raises(AdvisorError) as error:
            wrong()
        answers.append(tools.error_text(error.value, False))
    text = json.dumps(answers, ensure_ascii=False)
    assert len(text) > 10_000
    assert str(tmp_path) not in text
    assert [s for s in secrets if s[2][: max(12, len(s[2]) // 2)] in text] == []
