"""Sources of released packages, read without importing or installing them."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Parts of a package that are no source of the engine's own options and kernels; `util/reference` are the
#: kernels that CUTLASS compares its own with.
SKIPPED = re.compile(
    r"(?:^|/)(?:(?:op_)?tests?|testing|util/reference|multimodal_gen|\.agents|examples?|node_modules)/"
)
_MOST_BYTES = 8_000_000


def download(package: str, version: str, folder: Path) -> Path:
    """The wheel or sdist of a release, from the folder where it is there already."""
    place = folder / f"{package}-{version}"
    place.mkdir(parents=True, exist_ok=True)
    there = [p for p in place.iterdir() if p.suffix in (".whl", ".gz")]
    if not there:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", place]
        subprocess.run([*map(str, command), f"{package}=={version}"], check=True)
        there = [p for p in place.iterdir() if p.suffix in (".whl", ".gz")]
    return there[0]


def files(source: Path, endings: tuple[str, ...], version: str = "HEAD") -> Iterator[tuple[str, bytes]]:
    """Sources of a wheel, an sdist, a folder or a release in a git directory, with their names."""
    for name, size, read in _members(source, version):
        if name.endswith(endings) and size <= _MOST_BYTES and not SKIPPED.search(name):
            yield name, read()


def _members(source: Path, version: str) -> Iterator[tuple[str, int, Any]]:
    if source.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(source) as wheel:
            for info in wheel.infolist():
                yield info.filename, info.file_size, lambda i=info: wheel.read(i)
    elif source.is_dir() and (source / "HEAD").exists():
        git = ("git", "-C", source)
        refs = subprocess.run([*git, "show-ref"], check=True, capture_output=True, text=True).stdout
        named = [ref for ref in refs.split() if ref.endswith((f"/v{version}", f"/r{version}"))]
        archive = [*git, "archive", named[0] if named else version]
        yield from _packed(io.BytesIO(subprocess.run(archive, check=True, capture_output=True).stdout))
    elif source.is_dir():
        for path in sorted(p for p in source.rglob("*") if p.is_file()):
            yield path.relative_to(source).as_posix(), path.stat().st_size, path.read_bytes
    else:
        yield from _packed(io.BytesIO(source.read_bytes()))


def _packed(content: io.BytesIO) -> Iterator[tuple[str, int, Any]]:
    with tarfile.open(fileobj=content) as archive:
        for member in archive:
            if member.isfile():
                yield member.name, member.size, lambda m=member: archive.extractfile(m).read()  # type: ignore[union-attr]
