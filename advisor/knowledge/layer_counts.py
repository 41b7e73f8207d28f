"""How many layers a model has at least, by its name in llama-bench and its parameters."""

from __future__ import annotations

from functools import cache
from typing import Annotated

from advisor.knowledge.files import shipped
from advisor.knowledge.shapes import Data, File, Text
from advisor.model.file_content import Constraint

_Layers = Annotated[int, Constraint(ge=1, le=1_000)]


class Floor(Data, frozen=True, kw_only=True):
    """Models of `parameters` and more have `layers` or more."""

    parameters: Annotated[float, Constraint(ge=1e6)]
    layers: _Layers


class LayerFile(File, frozen=True, kw_only=True):
    source: Text
    named: dict[Text, dict[Text, _Layers]]
    by_parameters: list[Floor]


@cache
def _known() -> LayerFile:
    return shipped("layer_counts.yaml", LayerFile)


def least_layers(model: str, parameters: float | None) -> int | None:
    """Layers of ``llama 8B Q4_K - Medium`` at least, without that of the output; None if nothing is known."""
    architecture, size, *_ = [*model.split(), "", ""]
    if (named := _known().named.get(architecture.casefold(), {}).get(size)) is not None:
        return named
    reached = [
        f.layers for f in _known().by_parameters if parameters is not None and parameters >= f.parameters
    ]
    return max(reached, default=None)
