"""API keys of people and programs: each has a name and can be revoked. Of the key only a hash is kept."""

from __future__ import annotations

import datetime
import hashlib
import secrets
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

# A key has 256 random bits: a plain hash of it cannot be guessed from.
_KEY_BYTES = 32

KeyName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]


class NamedKey(BaseModel):
    """What is kept of a key. `service` is the only one that it is for, None: all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    service: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")] | None = None
    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    created: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]


def new_key(service: str | None, requests_per_minute: int | None) -> tuple[str, NamedKey]:
    """A key, and what is kept of it."""
    key = "sk-" + secrets.token_urlsafe(_KEY_BYTES)
    created = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    digest = hashlib.sha256(key.encode()).hexdigest()
    return key, NamedKey(
        sha256=digest, service=service, requests_per_minute=requests_per_minute, created=created
    )
