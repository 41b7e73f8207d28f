"""Rules and knowledge as plain data: an installed package reads the file that was built, a checkout YAML."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from advisor.errors import AdvisorError
from advisor.knowledge import package_data, yaml_files
from advisor.knowledge.package_data import BUILT, build, data_dir, is_built, names, plain

ROOT = Path(__file__).resolve().parents[1]


# --- a wheel ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of a wheel of this checkout, without any rule or knowledge in YAML."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "site")
    data = folder / "site" / "advisor" / "_data"
    for path in [*data.joinpath("rules").rglob("*.yaml"), *data.joinpath("knowledge").rglob("*.yaml")]:
        path.write_text("no: [data")
    return folder / "site"


#: Prints each file of ours and each rule, as the package of this process reads them.
SAYS = """
import json
from pathlib import Path
import advisor
from advisor.engine.load import load_rules
from advisor.knowledge.engine_signs import engines
from advisor.knowledge.package_data import is_built, names, plain
package = str(Path(advisor.__file__).parents[1])
data = {f"{kind}/{name}": plain(kind, name) for kind in ("rules", "knowledge") for name in names(kind)}
print(json.dumps([package, is_built(), data, list(map(repr, load_rules())), list(engines())]))
"""


def said(top: Path) -> list[object]:
    env = {**os.environ, "PYTHONPATH": str(top)}
    done = subprocess.run([sys.executable, "-c", SAYS], cwd=top, env=env, check=True, stdout=subprocess.PIPE)
    found: list[object] = json.loads(done.stdout)
    assert found.pop(0) == str(top)
    return found


def test_an_installed_package_says_what_the_yaml_of_the_checkout_says(
    installed: Path, tmp_path: Path
) -> None:
    for kind in ("rules", "knowledge", "advisor"):
        shutil.copytree(ROOT / kind, tmp_path / kind, ignore=shutil.ignore_patterns("_data", "__pycache__"))
    built, *there = said(installed)
    parsed, *here = said(tmp_path)
    assert (built, parsed) == (True, False)
    assert there == here


def test_an_installed_package_diagnoses_like_the_checkout(installed: Path) -> None:
    capture = ROOT / "examples" / "captures" / "decode_eager_bs1.sqlite.xz"
    outputs = [
        subprocess.run(
            [sys.executable, "-m", "advisor", str(capture), "--format", "json"],
            cwd=top,
            env={**os.environ, "PYTHONPATH": str(top)},
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
        for top in (installed, ROOT)
    ]
    assert outputs[0] == outputs[1]
    assert len(json.loads(outputs[0])["findings"]) > 3


# --- a checkout ------------------------------------------------------------------------------------


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout of one rule, its cases and two files of knowledge, with a file that was just built; its
    package is `checkout/advisor`."""
    files = {
        "rules/host/HST101.yaml": "code: HST101",
        "rules/host/HST101.cases.yaml": "cases: []",
        "knowledge/gpus.yaml": "gpus: [{sm: 90}]",
        "knowledge/engines/vllm.yaml": "first: &a [1, no]\nagain: *a",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(package_data, "_PACKAGE", tmp_path / "advisor")
    monkeypatch.setattr(package_data, "_CHECKOUT", tmp_path)
    monkeypatch.setattr(package_data, "BUILT", tmp_path / "advisor" / "_data" / BUILT.name)
    package_data.BUILT.parent.mkdir(parents=True)
    package_data.BUILT.write_bytes(build(tmp_path))
    package_data._built.cache_clear()
    yield tmp_path
    package_data._built.cache_clear()


EVERYTHING = {
    ("rules", "host/HST101.yaml"): {"code": "HST101"},
    ("knowledge", "gpus.yaml"): {"gpus": [{"sm": 90}]},
    ("knowledge", "engines/vllm.yaml"): {"first": [1, "no"], "again": [1, "no"]},
}


def later(path: Path) -> None:
    """As if the file or folder was changed a second after the build."""
    when = package_data.BUILT.stat().st_mtime_ns + 10**9
    os.utime(path, ns=(when, when))


def test_while_nothing_has_changed_the_built_file_is_read(checkout: Path) -> None:
    later(checkout / "rules" / "host" / "HST101.cases.yaml")  # it is not in there
    assert is_built()
    assert {(kind, name): plain(kind, name) for kind, name in EVERYTHING} == EVERYTHING
    assert [names("rules"), names("knowledge"), names("knowledge", "engines")] == [
        ["host/HST101.yaml"],
        ["engines/vllm.yaml", "gpus.yaml"],
        ["engines/vllm.yaml"],
    ]


@pytest.mark.parametrize(
    "changed",
    ["rules/host/HST101.yaml", "rules/host", "rules", "knowledge/gpus.yaml", "knowledge/engines/vllm.yaml"],
)
def test_after_any_change_the_yaml_is_read(changed: str, checkout: Path) -> None:
    """A file that was taken away or renamed changes its folder."""
    later(checkout / changed)
    assert not is_built()
    assert {(kind, name): plain(kind, name) for kind, name in EVERYTHING} == EVERYTHING
    assert names("knowledge", "engines") == ["engines/vllm.yaml"]


@pytest.mark.parametrize("module", [package_data, yaml_files], ids=["package_data", "yaml_files"])
def test_after_a_change_of_what_parses_it_the_yaml_is_read(
    module: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in (package_data, yaml_files):
        code = checkout / Path(one.__file__ or "").name
        code.touch()
        os.utime(code, ns=(0, 0))
        monkeypatch.setattr(one, "__file__", str(code))
    assert is_built()
    package_data._built.cache_clear()
    later(Path(module.__file__ or ""))
    assert not is_built()


@pytest.mark.usefixtures("checkout")
def test_without_the_built_file_the_yaml_is_read() -> None:
    package_data.BUILT.unlink()
    assert not is_built()
    assert {(kind, name): plain(kind, name) for kind, name in EVERYTHING} == EVERYTHING


def test_an_edit_counts_at_once(checkout: Path) -> None:
    path = checkout / "knowledge" / "gpus.yaml"
    path.write_text("gpus: []")
    later(path)
    assert plain("knowledge", "gpus.yaml") == {"gpus": []}


def test_an_installed_package_compares_no_times(checkout: Path) -> None:
    """Some installers give files the times of the archive, others that of the installation."""
    for kind in ("rules", "knowledge"):
        shutil.move(checkout / kind, package_data.BUILT.parent / kind)
    later(package_data.BUILT.parent / "rules" / "host" / "HST101.yaml")
    assert data_dir("rules") == package_data.BUILT.parent / "rules"
    assert is_built()


@pytest.mark.parametrize("text", ["code: [", "a: 1\na: 2", f"a: {10**50}"])
def test_what_cannot_be_plain_data_fails_the_build(text: str, checkout: Path) -> None:
    (checkout / "rules" / "host" / "HST101.yaml").write_text(text)
    with pytest.raises(AdvisorError, match="HST101"):
        build(checkout)
