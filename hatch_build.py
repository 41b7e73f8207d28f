"""What a wheel holds besides the sources: rules and knowledge as plain data, and the page decoder where there
is a C compiler; without one advisor reads with NumPy."""

from __future__ import annotations

import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_DATA = "advisor/_data"
_PACKAGE = "advisor/sources/sqlite"
_FAILED = "the page decoder was not compiled; advisor will read SQLite files with NumPy"


class Built(BuildHookInterface):
    """Editable installs hold what is built in the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        self._folder = tempfile.TemporaryDirectory()
        self._add(_parsed(Path(self.root), Path(self._folder.name)), _DATA, version, build_data)
        try:
            built = _compiled(Path(self.root), Path(self._folder.name))
        except Exception as error:  # whatever is amiss with the compiler: it is not needed
            self.app.display_warning(f"{_FAILED} ({error})")
            return
        if built is None:
            self.app.display_warning(_FAILED)
            return
        self._add(built, _PACKAGE, version, build_data)
        if version != "editable":  # one file for every Python from 3.11 on (abi3)
            build_data["pure_python"] = False
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"cp311-abi3-{platform}"

    def _add(self, built: Path, folder: str, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            place = Path(self.root) / folder / built.name
            place.parent.mkdir(exist_ok=True)
            new = place.with_name(f"{place.name}.new")
            new.write_bytes(built.read_bytes())
            new.replace(place)  # a process that runs keeps the file that it has loaded
        else:
            build_data["force_include"][str(built)] = f"{folder}/{built.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        if self.target_name == "wheel":
            self._folder.cleanup()


def _parsed(root: Path, folder: Path) -> Path:
    """The plain data of rules and knowledge, in a file in `folder`."""
    sys.path.insert(0, str(root))
    from advisor.knowledge.package_data import BUILT, build

    built = folder / BUILT.name
    built.write_bytes(build(root))
    return built


def _compiled(root: Path, folder: Path) -> Path | None:
    """The extension, built in `folder`; None where the compiler gave up."""
    from setuptools import Distribution, Extension

    source = Extension(
        f"{_PACKAGE.replace('/', '.')}._pages",
        [str(root / _PACKAGE / "_pages.c")],
        optional=True,
        py_limited_api=True,
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
    )
    command = Distribution({"name": "advisor", "ext_modules": [source]}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(folder / "lib"), str(folder / "temp")
    command.ensure_finalized()
    command.run()
    return next((path for path in map(Path, command.get_outputs()) if path.is_file()), None)
