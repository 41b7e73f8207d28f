"""axe-core in an open page: what it finds against WCAG A and AA. Its script comes with a test
dependency of ours, and is read as a file. Contrast is left to `contrast.js`: axe takes minutes for it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.reports.browser import Browser

_RUN = """axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], resultTypes: ["violations"],
  rules: {"color-contrast": {enabled: false}}})
  .then((r) => r.violations.map((v) => [v.id, v.nodes.slice(0, 3).map((n) => n.target.join(" "))]))"""


def violations(opened: Browser) -> list[Any]:
    """Rule and the first elements of each violation."""
    spec = find_spec("axe_core_python")
    if spec is None or spec.origin is None:
        pytest.skip("axe-core-python is not installed")
    opened.ask((Path(spec.origin).parent / "axe.min.js").read_text(encoding="utf-8") + ";undefined")
    found: list[Any] = opened.ask(_RUN)
    return found
