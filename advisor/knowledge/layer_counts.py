"""How many layers a model has at least, by its name in llama-bench and its parameters."""

from __future__ import annotations

from functools import cache
from typing import Annotated

from pydantic import Field

from advisor.knowledge.files import shipped
from advisor.knowledge.shapes import Data, File, Text

_Layers = Annotated[int, Field(ge=1, le=1_000)]


class Floor(Data):
    """Models of `parameters` and more have `layers` or more."""

    parameters: float = Field(ge=1e6)
    layers: _Layers


class LayerFile(File):
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
