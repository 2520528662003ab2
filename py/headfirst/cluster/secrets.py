"""A cluster's generated secrets: made once, kept on the controller with mode 0600, never logged."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headfirst.errors import InputError
from headfirst.paths import state_dir


def _token(prefix: str, size: int) -> str:
    return prefix + secrets.token_urlsafe(size)


class Secrets(BaseModel):
    """What `deploy up` hands to the roles and a person needs to sign in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine_api_key: str = Field(default_factory=lambda: _token("sk-", 32))
    webui_admin_email: str = "admin@headfirst.local"
    webui_admin_password: str = Field(default_factory=lambda: _token("", 18))
    webui_secret_key: str = Field(default_factory=lambda: _token("", 32))
    weights_token: str = Field(default_factory=lambda: _token("", 32))

    def values(self) -> list[str]:
        """The texts that must not appear in a log."""
        return [self.engine_api_key, self.webui_admin_password, self.webui_secret_key, self.weights_token]


def credentials_file(cluster: str) -> Path:
    """Where the secrets of a cluster lie."""
    return state_dir("clusters", cluster) / "credentials.json"


def existing(cluster: str) -> Secrets | None:
    """Secrets of the cluster named so, or None where it was never brought up from this machine."""
    path = credentials_file(cluster)
    if path.exists():
        try:
            return Secrets.model_validate_json(path.read_text())
        except ValidationError as error:
            raise InputError(
                f"the credentials of cluster {cluster} cannot be read: {error.errors()[0]['msg']}",
                where=str(path),
                hint="Mend the file, or move it away: `deploy up` makes new ones and restarts the service.",
            ) from None
    return None


def load_or_create(cluster: str) -> Secrets:
    """Secrets of the cluster named so; generated at the first call."""
    if found := existing(cluster):
        return found
    path, made = credentials_file(cluster), Secrets()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(made.model_dump_json(indent=2) + "\n")
    return made
