"""Where an export keeps what is private, table by table: what goes, what stays, what is counted."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from advisor.capture.redact import Redaction, redact
from advisor.errors import InputError
from tests.builder import Export


def redacted(export: Export, folder: Path, *statements: str) -> tuple[Redaction, Callable[[str], list[Any]]]:
    """The redaction of an export after these statements, and what a query finds in the copy."""
    path, out = export.write(folder / "in.sqlite"), folder / "out.sqlite"
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()

    def asked(sql: str) -> list[Any]:
        with closing(sqlite3.connect(out)) as db:
            return [value for (value,) in db.execute(sql)]

    return redact(path, out), asked


def working() -> Export:
    return Export("3.7").gpu().process(100, "python3").launch(0, 3_000, "k", 5_000, 9_000)


@pytest.mark.parametrize(
    "shown",
    [
        ("META_DATA_EXPORT", "EXPORT_HOST", "box17.lan"),
        ("META_DATA_CAPTURE", "PROCESS_0:HOSTNAME", "box17.lan"),
        ("TARGET_INFO_SYSTEM_ENV", "DeviceEnvironment", "A=1\0HOSTNAME=box17.lan\0B=2\0"),
    ],
    ids=lambda shown: shown[1],
)
def test_a_host_goes_from_texts_by_its_short_name_too(shown: tuple[str, str, str], tmp_path: Path) -> None:
    table, name, value = shown
    export = working().range_inline("step on box17", 0, 9)
    _, asked = redacted(export.row(table, name=name, value=value), tmp_path)
    assert asked("select text from NVTX_EVENTS") == ["step on redacted"]


@pytest.mark.parametrize("text", ["load /home/zoe/weights.bin", "SHELL=/bin/sh\0USER=zoe\0TERM=xterm"])
def test_a_user_whom_a_string_names_goes_from_every_text(text: str, tmp_path: Path) -> None:
    export = working().range_inline("zoe waits, xterm waits", 0, 9)
    export.string(text)
    _, asked = redacted(export, tmp_path)
    assert asked("select text from NVTX_EVENTS") == ["redacted waits, xterm waits"]


def test_of_the_environment_the_number_of_the_rank_stays(tmp_path: Path) -> None:
    export = working().environment("RANK", "3").environment("PMI_RANK", "box17").environment("PORT", "8080")
    done, asked = redacted(export, tmp_path)
    assert done.kept[0].shown == ("RANK",)
    assert asked("select value from META_DATA_CAPTURE where name like '%ENVIRONMENT%'") == ['RANK="3"']


def test_names_of_machines_that_name_none_stay(tmp_path: Path) -> None:
    export = working().option("DEVICE_DISPLAY_NAME", "Local (CLI)").option("PROCESS_0:USER_NAME", "")
    _, asked = redacted(export, tmp_path)
    kept = asked("select value from META_DATA_CAPTURE where name like '%NAME' order by value")
    assert kept == ["", "Local (CLI)"]


def test_ids_of_gpus_are_counted(tmp_path: Path) -> None:
    give = "update TARGET_INFO_GPU set uuid = 'GPU-12345678'"
    done, _ = redacted(working(), tmp_path, give)
    counts = {removed.table: removed.count for removed in done.removed if removed.what == "ids of GPUs"}
    assert counts["TARGET_INFO_GPU"] == 1


def test_a_process_that_only_a_message_names_is_no_traced_one(tmp_path: Path) -> None:
    _, asked = redacted(
        working().process(200, "other-tool"),
        tmp_path,
        "create table DIAGNOSTIC_EVENT (timestamp integer, text text, globalPid integer)",
        f"insert into DIAGNOSTIC_EVENT values (0, 'hello', {200 << 24})",
    )
    assert asked("select name from PROCESSES") == ["python3"]


def test_threads_of_a_traced_process_stay_though_they_left_no_event(tmp_path: Path) -> None:
    _, asked = redacted(working().thread(101, "loader"), tmp_path)
    names = "select value from StringIds where id in (select nameId from ThreadNames)"
    assert "loader" in asked(names)


def test_a_kernel_is_called_what_it_is_called_and_a_library_too(tmp_path: Path) -> None:
    """Where a user has the name of a kernel, texts lose it, and names of kernels keep it."""
    export = working().environment("USER", "flash").range_inline("flash runs", 0, 9)
    export.launch(20_000, 3_000, "flash<float>", 25_000, 9_000)
    export.callchain(1, [("main", "/home/flash/acme/server"), ("run", "/home/flash/lib/libx.so")])
    _, asked = redacted(export, tmp_path)
    assert asked("select text from NVTX_EVENTS") == ["redacted runs"]
    used = "select value from StringIds where id in (select {} from {}) order by value"
    assert asked(used.format("demangledName", "CUPTI_ACTIVITY_KIND_KERNEL")) == ["flash<float>", "k"]
    assert asked(used.format("module", "CUDA_CALLCHAINS")) == ["/redacted/libx.so", "/redacted/server"]


@pytest.mark.parametrize(("secret", "found"), [("s3cr3t78", True), ("s3cr3t7", False)])
def test_a_secret_that_cannot_be_taken_out_stops_it(secret: str, found: bool, tmp_path: Path) -> None:
    """Tables of NVIDIA's tools stay as they are. Shorter ones could be there by chance."""
    export = working().environment("DB_PASSWORD", secret)
    add = (
        "create table if not exists ENUM_NVTX_EVENT_TYPE (id integer, name text, label text)",
        f"insert into ENUM_NVTX_EVENT_TYPE (id, name, label) values (9999, 'x', '{secret}')",
    )
    if not found:
        redacted(export, tmp_path, *add)
        return
    with pytest.raises(InputError, match="a secret of 8 characters cannot be taken out"):
        redacted(export, tmp_path, *add)
    assert not (tmp_path / "out.sqlite").exists()
