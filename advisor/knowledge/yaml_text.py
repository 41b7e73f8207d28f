"""The YAML of `knowledge/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from advisor.errors import AdvisorError

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UniqueKeys(_Loader):  # type: ignore[misc]
    """Refuses a key that appears twice: YAML silently keeps the last one."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            if key.value in seen and not isinstance(key.value, list):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key.value}' appears twice", key.start_mark
                )
            seen.add(key.value if not isinstance(key.value, list) else id(key))
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def read_yaml(path: Path) -> Any:
    """The content of one YAML file; a fault is an error that names the file and the line."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as fault:
        raise AdvisorError(f"cannot read {path}: {fault}") from fault
