"""Steps: the GPU work that one pass of the serving or training loop launched."""

from advisor.metrics.steps.find import find_steps
from advisor.metrics.steps.model import Steps, no_steps

__all__ = ["Steps", "find_steps", "no_steps"]
