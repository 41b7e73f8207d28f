"""Where nsys is, which release it is, and its command lines for a plan."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from advisor.capture.nsys_options import Release, joined, newer
from advisor.errors import InputError
from advisor.numerals import read_int

#: The first release that writes `.nsys-rep`; older ones write `.qdrep` and know few options of a plan.
OLDEST: Release = (2021, 4)
#: Where the toolkit and the packages of NVIDIA and Debian install it.
_PLACES = (
    "/usr/local/cuda/bin/nsys",
    "/usr/local/cuda-*/bin/nsys",
    "/opt/nvidia/nsight-systems/*/bin/nsys",
    "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "/opt/nvidia/nsight-systems/*/target-linux-*/nsys",
    "/opt/nvidia/nsight-systems-cli/*/target-linux-*/nsys",
    "/usr/lib/nsight-systems/bin/nsys",
)
#: Of a report whose conversion nsys left out: some packages install this program where nsys does not look.
_IMPORTERS = (
    "../host-linux-*/QdstrmImporter",
    "../../host-linux-*/QdstrmImporter",
    "/usr/lib/nsight-systems/host-linux-*/QdstrmImporter",
    "/opt/nvidia/nsight-systems*/*/host-linux-*/QdstrmImporter",
)
_ANSWER_S = 30


class NoNsys(InputError):
    """There is none on this machine."""


class Nsys(Struct, frozen=True):
    """A program of this name, its release (2023, 4) and the whole version."""

    path: Path
    release: Release
    version: str

    def profile(self, options: Iterable[str], output: Path, command: Sequence[str]) -> list[str]:
        """The command line that records `command` into `output`, which has no ending."""
        return [str(self.path), "profile", *options, f"--output={output}", *command]

    def export(self, report: Path, target: Path) -> list[str]:
        """The command line that exports a report."""
        return [
            *(str(self.path), "export", "--type=sqlite", "--force-overwrite=true"),
            *(f"--output={target}", str(report)),
        ]

    def importer(self, stream: Path) -> list[str] | None:
        """The command line that makes a report of a `.qdstrm`; None if the program is missing."""
        homes = (self.path.parent, self.path.resolve().parent)
        for found in _matching(*(os.path.join(home, place) for home in homes for place in _IMPORTERS)):
            return [str(found), f"--input-file={stream}"]
        return None

    def known(self, options: Sequence[str]) -> tuple[list[str], list[str]]:
        """The options as this release spells them, and what it is too old for."""
        too_new = newer(options, self.release)
        kept = [o for o in options if not newer([o], self.release)]
        return joined(kept, self.release), too_new


def find(named: Path | None) -> Nsys:
    """The nsys that was named (a program or the folder of it), else that of PATH, else the newest in the
    usual places. Raises InputError where there is none, and for one that is too old or does not run."""
    if named is not None:
        program = named / "nsys" if named.is_dir() else named
        path = Path(shutil.which(program) or program)
        if not path.is_file():
            raise InputError(f"--nsys {named}: no such program")
        return _asked(path)
    if (on_path := shutil.which("nsys")) is not None:
        return _asked(Path(on_path))
    homes = [f"{os.environ[name]}/bin/nsys" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    found, fault = [], None
    for path in _matching(*homes, *_PLACES):
        try:
            found.append(_asked(path))
        except InputError as error:
            fault = error
    if found:
        return max(found, key=lambda n: n.release)
    raise fault or NoNsys(
        "nsys is neither on PATH nor where the CUDA toolkit installs it; install Nsight Systems (its command "
        "line tools are enough), or name it: --nsys PATH"
    )


def _matching(*patterns: str) -> Iterator[Path]:
    """Programs at these places, each once."""
    seen = set()
    for pattern in patterns:
        for path in sorted(Path("/").glob(os.path.normpath(pattern).lstrip("/"))):
            if path.is_file() and os.access(path, os.X_OK) and path.resolve() not in seen:
                seen.add(path.resolve())
                yield path


def _asked(path: Path) -> Nsys:
    """Its version, as it says itself."""
    try:
        done = subprocess.run(
            [path.absolute(), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ANSWER_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InputError(
            f"{path}: reports no version within {_ANSWER_S} s; name another: --nsys PATH"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be run ({error.strerror or error})") from error
    printed = re.search(rb"\b(20\d\d)\.(\d+)[\w.-]*", done.stdout + done.stderr)
    if printed is None:
        raise InputError(f"{path}: is not nsys, or reports no version; name another: --nsys PATH")
    release, version = (read_int(printed[1]) or 0, read_int(printed[2]) or 0), printed[0].decode()
    if release < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise InputError(f"{path}: nsys {version} is too old; {oldest} or newer is needed: --nsys PATH")
    return Nsys(path.absolute(), release, version)
