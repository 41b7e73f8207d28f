"""Scripts of this repository that are no part of the package, as modules."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


@cache
def script(path: str) -> ModuleType:
    """The script at `path` from the root, imported without running it."""
    name = f"script_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    if (folder := str((ROOT / path).parent)) not in sys.path:
        sys.path.append(folder)  # as for a script that is run, so that it finds its neighbours
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
