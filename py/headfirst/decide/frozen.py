"""The bases of typed values that nobody changes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value with these fields and no others."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Tolerant(BaseModel):
    """A value that another program or version may have written: further fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")
