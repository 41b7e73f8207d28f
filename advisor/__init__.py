"""advisor: an expert system for GPU inference profiles.

Start-up is part of the product, so this module imports nothing heavy: :func:`diagnose`,
:func:`explain`, :func:`doctor` and the types are resolved on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from advisor.checkup import doctor
    from advisor.explanation import explain
    from advisor.model.findings import Diagnosis
    from advisor.pipeline import diagnose, open_trace

__all__ = ["Diagnosis", "__version__", "diagnose", "doctor", "explain", "open_trace"]

_LAZY = {
    "diagnose": "advisor.pipeline",
    "doctor": "advisor.checkup",
    "explain": "advisor.explanation",
    "open_trace": "advisor.pipeline",
    "Diagnosis": "advisor.model.findings",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'advisor' has no attribute {name!r}")
