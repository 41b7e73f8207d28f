"""Side inputs: up to which size they are read, and what is offered in place of a missing one."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.errors import InputError
from advisor.reading import decoded, parse_json, parse_saved, read_bytes, similar


def test_a_file_of_the_largest_size_is_read_and_a_byte_more_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(bytes(3 << 20))
    assert len(read_bytes(path, 3 << 20)) == 3 << 20
    with pytest.raises(InputError, match="larger than 2 MB"):
        read_bytes(path, (3 << 20) - 1)


def test_the_nearest_name_is_offered_without_its_endings(tmp_path: Path) -> None:
    for name in ("decode.sqlite.xz", "prefill.sqlite"):
        (tmp_path / name).touch()
    assert similar(tmp_path / "decod.json") == f"; did you mean '{tmp_path / 'decode.sqlite.xz'}'?"
    assert similar(tmp_path / "other.sqlite") == similar(tmp_path / "no" / "decode.sqlite") == ""


@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_text_is_read_in_the_coding_that_its_first_bytes_say(coding: str) -> None:
    mark = "\ufeff" if coding in ("utf-16-le", "utf-16-be") else ""
    assert decoded((mark + "Größe\n").encode(coding)) == "Größe\n"
    assert decoded(b"a\xffb") == "a\ufffdb"


def test_json_that_is_nested_too_deeply_is_no_json() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 100_000)


def test_saved_numbers_stay_in_64_bits() -> None:
    text = f"[{2**63 - 1025}, {-(2**63) + 1025}, -0, 1.5e3, 5e-324]"
    assert parse_saved(text) == [2**63 - 1025, -(2**63) + 1025, 0, 1500.0, 5e-324]
    assert [type(n) for n in parse_saved(text)] == [int, int, int, float, float]
    for number in ("1e308", str(2**63), str(-(2**63)), "1e999", "NaN", "-Infinity", "9" * 5_000):
        assert isinstance(parse_json(f"[{number[:400]}]"), list)  # others may hold it
        with pytest.raises(ValueError, match="number out of range"):
            parse_saved(f"[{number}]")
    with pytest.raises(ValueError, match=f"number out of range: {'9' * 20}$"):
        parse_saved(f"[{'9' * 5_000}]")
