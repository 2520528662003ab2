"""The base of typed values that another version may have written."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Tolerant(BaseModel):
    """A value that nobody changes; fields that this version does not have are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")
