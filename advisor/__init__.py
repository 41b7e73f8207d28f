"""advisor: an expert system for GPU inference profiles.

Start-up is part of the product, so this module imports nothing heavy: :func:`diagnose`,
:func:`explain`, :func:`doctor`, :func:`stats`, :func:`whatif` and the types are resolved on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from advisor.model.findings import Diagnosis
    from advisor.pipeline.diagnose import diagnose, open_trace
    from advisor.pipeline.doctor import doctor
    from advisor.pipeline.explain import explain
    from advisor.pipeline.stats import stats
    from advisor.pipeline.whatif import whatif

__all__ = ["Diagnosis", "__version__", "diagnose", "doctor", "explain", "open_trace", "stats", "whatif"]

_LAZY = {
    "diagnose": "advisor.pipeline.diagnose",
    "doctor": "advisor.pipeline.doctor",
    "explain": "advisor.pipeline.explain",
    "open_trace": "advisor.pipeline.diagnose",
    "stats": "advisor.pipeline.stats",
    "whatif": "advisor.pipeline.whatif",
    "Diagnosis": "advisor.model.findings",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'advisor' has no attribute {name!r}")
