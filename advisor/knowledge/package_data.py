"""What comes with the package: its folders, and the files of `rules/` and `knowledge/` as plain data.

Parsing their YAML takes 0.2 s. So `hatch_build.py` parses it when the package is built, and an installed
package reads the one file that it wrote. A checkout reads the YAML, so that a change counts at once, and
the built file while nothing that it was made of has changed since.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from advisor.errors import AdvisorError
from advisor.knowledge import yaml_files

_PACKAGE = Path(__file__).resolve().parents[1]
_CHECKOUT = _PACKAGE.parent
#: The file that is built: JSON, the content of each file by its path.
BUILT = _PACKAGE / "_data" / "parsed.json"

#: Cases of rules, which only `advisor rules test` reads.
CASES_SUFFIX = ".cases.yaml"

Kind = Literal["rules", "knowledge"]
_KINDS: tuple[Kind, ...] = ("rules", "knowledge")


def data_dir(kind: Kind) -> Path:
    """The folder of our rules or knowledge: in the installed package, else in the checkout."""
    return first_there(f"folder '{kind}'", _PACKAGE / "_data" / kind, _CHECKOUT / kind)


def page_of_docs(name: str) -> str:
    """A page of docs/ by its name without ending."""
    shipped = _PACKAGE / "_data" / "docs" / f"{name}.md"
    place = first_there(f"page {name}", shipped, _CHECKOUT / "docs" / f"{name}.md")
    return place.read_text(encoding="utf-8")


def demo_capture() -> Path:
    """The capture that ``advisor demo`` diagnoses."""
    in_checkout = _CHECKOUT / "examples" / "captures" / "decode_eager_bs1.sqlite.xz"
    return first_there("demo capture", _PACKAGE / "_data" / "demo.sqlite.xz", in_checkout)


def first_there(what: str, *paths: Path) -> Path:
    for path in paths:
        if path.exists():
            return path
    raise AdvisorError(f"{what} not found at {paths[-1]}: reinstall advisor")


# --- rules and knowledge as plain data --------------------------------------------------------------


def plain(kind: Kind, name: str) -> Any:
    """What a file says, such as ``("knowledge", "engines/vllm.yaml")``: lists, and dictionaries whose keys
    are texts. AdvisorError with a line for each fault."""
    known = _built().get(f"{kind}/{name}")
    return parsed(data_dir(kind) / name) if known is None else msgspec.json.decode(known)


def names(kind: Kind, folder: str = "") -> list[str]:
    """The names of the files below a folder, in order of path."""
    start = f"{kind}/{folder}/" if folder else f"{kind}/"
    top = data_dir(kind)
    paths: Iterable[str] = _built() or (f"{kind}/{p.relative_to(top).as_posix()}" for p in yaml_paths(top))
    return sorted(path.removeprefix(f"{kind}/") for path in paths if path.startswith(start))


def is_built() -> bool:
    """Whether plain data come from the built file."""
    return bool(_built())


def parsed(path: Path) -> Any:
    """The content of a YAML file of ours. AdvisorError with a line for each fault."""
    source = yaml_files.read(path, aliases=True)
    if source.problems:
        raise AdvisorError("\n".join(map(str, source.problems)))
    return source.data


def build(top: Path) -> bytes:
    """The file that is built from the folders below `top`."""
    paths = sorted(path for kind in _KINDS for path in yaml_paths(top / kind))
    found = {path.relative_to(top).as_posix(): parsed(path) for path in paths}
    built = msgspec.json.encode(found)
    read = msgspec.json.decode(built)
    if changed := [path for path in found if read[path] != found[path]]:
        raise AdvisorError(f"numbers that JSON cannot hold: {', '.join(changed)}")
    return built


def yaml_paths(folder: Path) -> Iterator[Path]:
    """The YAML files below a folder, without cases of rules."""
    return (p for p in folder.rglob("*.yaml") if not p.name.endswith(CASES_SUFFIX))


@cache
def _built() -> Mapping[str, msgspec.Raw]:
    """The built file; nothing where it is missing or, in a checkout, older than what it is made of."""
    if not BUILT.is_file() or (data_dir("rules").is_relative_to(_CHECKOUT / "rules") and _outdated()):
        return {}
    return msgspec.json.decode(BUILT.read_bytes(), type=dict[str, msgspec.Raw])


def _outdated() -> bool:
    """Whether a file of rules or knowledge, a folder of them or what parses them changed since the build."""
    made = BUILT.stat().st_mtime_ns
    walked = (found for kind in _KINDS for found in os.walk(_CHECKOUT / kind))
    below = (os.path.join(at, name) for at, _, names in walked for name in (".", *names))
    made_of = (path for path in below if not path.endswith(CASES_SUFFIX))
    return any(os.stat(path).st_mtime_ns > made for path in (__file__, yaml_files.__file__, *made_of))
