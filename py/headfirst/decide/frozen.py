"""The base of typed values that nobody changes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value with these fields and no others."""

    model_config = ConfigDict(frozen=True, extra="forbid")
