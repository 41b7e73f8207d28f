"""advisor: an expert system for GPU inference profiles.

Start-up is part of the product, so this module imports nothing heavy: the functions and types of
docs/api.md are resolved on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from advisor.errors import AdvisorError, InputError, RuleError
    from advisor.model.findings import Diagnosis
    from advisor.model.options import Options
    from advisor.pipeline.captures import ranks
    from advisor.pipeline.compare import compare
    from advisor.pipeline.diagnose import open_trace
    from advisor.pipeline.doctor import doctor, plan
    from advisor.pipeline.explain import explain, whatif
    from advisor.pipeline.stats import stats
    from advisor.watching import diagnose, watch

__all__ = [
    "AdvisorError",
    "Diagnosis",
    "InputError",
    "Options",
    "RuleError",
    "__version__",
    "compare",
    "diagnose",
    "doctor",
    "explain",
    "open_trace",
    "plan",
    "ranks",
    "stats",
    "watch",
    "whatif",
]

_NAMES = {
    "errors": ("AdvisorError", "InputError", "RuleError"),
    "model.findings": ("Diagnosis",),
    "model.options": ("Options",),
    "pipeline.captures": ("ranks",),
    "pipeline.compare": ("compare",),
    "pipeline.diagnose": ("open_trace",),
    "pipeline.doctor": ("doctor", "plan"),
    "pipeline.explain": ("explain", "whatif"),
    "pipeline.stats": ("stats",),
    "watching": ("diagnose", "watch"),
}
_LAZY = {name: f"advisor.{module}" for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'advisor' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
