"""The rules that ship, parsed once."""

from __future__ import annotations

from functools import cache

from advisor.engine.load import RuleSet, builtin_dir, load_rules


@cache
def shipped_rules() -> RuleSet:
    return load_rules(builtin_dir())
