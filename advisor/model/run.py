"""A run: a command that was recorded and diagnosed, kept in a folder of its own."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from advisor.model.findings import SCHEMA_VERSION
from advisor.model.records import Frozen


class Run(Frozen):
    """One run. `options` are those of the recorder as they were used, `variables` the plan's; `exit_code` is
    of the command, null where the recording ended it; `stopped` says why a recording ended early, `notes`
    what was done otherwise than planned; `captures` are names in its folder. `commit` and `dirty` are of
    the working folder's git repository."""

    schema_version: int = SCHEMA_VERSION
    kind: Literal["run"] = "run"
    name: str
    begun: str
    state: Literal["begun", "recorded", "diagnosed", "failed"] = "begun"
    command: tuple[str, ...]
    goal: str
    serving_engine: str
    request: dict[str, str | int | bool] = Field(default_factory=dict)
    options: tuple[str, ...] = ()
    variables: dict[str, str] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    at_most: int | None = None
    commit: str | None = None
    dirty: bool | None = None
    seconds: float | None = None
    bytes: int = 0
    exit_code: int | None = None
    stopped: str | None = None
    notes: tuple[str, ...] = ()
    captures: tuple[str, ...] = ()
