"""The rules about states of the ranks. Those about lines of a log are a profile (subject.py)."""

from __future__ import annotations

from functools import cache
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

from headfirst.collection import collection_root

Weight = Literal["cause", "general", "mismatch", "hang", "consequence", "note"]


class ConditionRule(BaseModel):
    """A state of the ranks and its meaning; `means` and `fix` may hold {words} that are filled in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    failures: list[int]
    weight: Weight
    means: str
    fix: str


@cache
def conditions() -> dict[str, ConditionRule]:
    """All rules over states, by id."""
    path = collection_root() / "plugins" / "plugin_utils" / "failure_rules" / "conditions.yml"
    entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    rules = [ConditionRule.model_validate(entry) for entry in entries]
    return {rule.id: rule for rule in rules}
