"""Five hundred secrets of 25 kinds in 15 places of an export: none survives, and it is diagnosed alike."""

from __future__ import annotations

import base64
import random
import sqlite3
import string
import zipfile
from pathlib import Path

import pytest

from advisor.capture.redact import redact
from advisor.cli.main import main
from advisor.pipeline.diagnose import diagnose
from tests.builder import Export

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
    "mac": (lambda: ":".join(word(2, HEX) for _ in range(6)), "nic {}"),
    "user": (lambda: "u" + word(9, string.ascii_lowercase), "load /home/{}/model/x.bin"),
    "slack": (lambda: "xoxb-" + word(12, string.digits) + "-" + word(24), "post {}"),
    "jwt": (lambda: f"eyJ{word(20)}.eyJ{word(40)}.{word(43)}", "jwt {}"),
    "nvapi": (lambda: "nvapi-" + word(60), "ngc {}"),
    "mail": (lambda: word(8, string.ascii_lowercase) + "@acme-corp.example", "mail {}"),
}
PLACES = (
    "nvtx", "inline", "argument", "environment", "thread", "process", "kernel", "diagnostic", "option",
    "system", "table", "column", "default", "view", "blob",
)  # fmt: skip


def planted(path: Path) -> list[tuple[str, str, str]]:
    """Writes the export; returns kind, place and value of each secret."""
    e = Export("3.17").gpu().process(100)
    for i in range(30):
        e.launch(i * 20_000, 3_000, f"k{i % 3}", i * 20_000 + 5_000, 9_000)
    found, arguments, by_hand = [], ["python"], []
    for n in range(500):
        kind, place = list(KINDS)[n % len(KINDS)], PLACES[n // len(KINDS) % len(PLACES)]
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
    with sqlite3.connect(path) as db:
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
    return found


def test_none_of_500_survives(tmp_path: Path) -> None:
    path, out = tmp_path / "in.sqlite", tmp_path / "out.sqlite"
    secrets = planted(path)
    raw = path.read_bytes()
    assert [s for s in secrets if s[2].encode() not in raw] == []
    redact(path, out)
    copy = out.read_bytes()
    assert [s for s in secrets if s[2].encode() in copy] == []
    causes = [
        [(f.cause, f.severity) for f in diagnose(p).findings if f.code != "CAP112"] for p in (path, out)
    ]
    assert causes[0] == causes[1]


@pytest.mark.parametrize(
    "words",
    [
        "diagnose IN -v --format json -o OUT.json --html OUT.html --xlsx OUT.xlsx",
        "doctor IN -v",
        "stats IN -r kernels -r nvtx --format json",
        "export perfetto IN --with-trace -o OUT.bin",
    ],
)
def test_no_report_shows_one(words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secrets = planted(tmp_path / "in.sqlite")
    places = {"IN": tmp_path / "in.sqlite", "OUT": tmp_path / "out"}
    for name, path in places.items():
        words = words.replace(name, str(path))
    assert main([*words.split(), "--redact"]) == 0
    shown = capsys.readouterr().out.encode()
    for path in tmp_path.glob("out.*"):
        if path.suffix == ".xlsx":
            with zipfile.ZipFile(path) as book:
                shown += b"".join(map(book.read, book.namelist()))
        else:
            shown += path.read_bytes()
    assert len(shown) > 1_000
    assert [s for s in secrets if s[2].encode() in shown] == []
    assert str(tmp_path).encode() not in shown
