"""A cluster's generated secrets on the controller: one file with mode 0600, never logged."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headfirst.cluster.identity import cluster_folder
from headfirst.cluster.types import Cluster
from headfirst.errors import InputError
from headfirst.state_files import exclusive, read_file, replace_file

# The head's copy becomes Ansible variables here: without braces no value is a template.
Secret = Annotated[str, Field(pattern=r"^[!#-&(-\[\]-_a-z|~]{8,200}$")]


def _token(prefix: str, size: int) -> str:
    return prefix + secrets.token_urlsafe(size)


class Secrets(BaseModel):
    """What `deploy up` hands to the roles and a person needs to sign in."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    engine_api_key: Secret = Field(default_factory=lambda: _token("sk-", 32))
    webui_admin_email: Annotated[str, Field(pattern=r"^[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9.-]{1,190}$")] = (
        "admin@headfirst.local"
    )
    webui_admin_password: Secret = Field(default_factory=lambda: _token("", 18))
    webui_secret_key: Secret = Field(default_factory=lambda: _token("", 32))
    weights_token: Secret = Field(default_factory=lambda: _token("", 32))
    # Set from a rotation until Open WebUI, which keeps its users in a database, has the new password.
    webui_admin_password_before: Secret | None = None

    def values(self) -> list[str]:
        """The texts that must not appear in a log."""
        found = [self.engine_api_key, self.webui_admin_password, self.webui_secret_key, self.weights_token]
        return [*found, *([self.webui_admin_password_before] if self.webui_admin_password_before else [])]

    @property
    def is_rotating(self) -> bool:
        """Whether a rotation began that Open WebUI has not confirmed yet."""
        return self.webui_admin_password_before is not None

    def rotated(self) -> Secrets:
        """New secrets for the same administrator."""
        return Secrets(
            webui_admin_email=self.webui_admin_email, webui_admin_password_before=self.webui_admin_password
        )

    def applied(self) -> Secrets:
        """The same secrets, when every service has them."""
        return self.model_copy(update={"webui_admin_password_before": None})


def credentials_file(cluster: Cluster) -> Path:
    """Where this controller keeps the secrets of a cluster."""
    return cluster_folder(cluster) / "credentials.json"


def existing(cluster: Cluster) -> Secrets | None:
    """The cluster's secrets on this controller, or None where it has none yet."""
    path = credentials_file(cluster)
    text = read_file(path)
    if text is None:
        return None
    try:
        return Secrets.model_validate_json(text)
    except ValidationError as error:
        raise InputError(
            f"the credentials of cluster {cluster.name} cannot be read: {_reason(error)}",
            where=str(path),
            hint="Correct the file, or move it away: the copy on the head is used then.",
        ) from None


def save(cluster: Cluster, wanted: Secrets) -> None:
    """Keep the secrets on this controller."""
    replace_file(credentials_file(cluster), document(wanted))


def load_or_create(cluster: Cluster) -> Secrets:
    """The cluster's secrets; generated at the first call. Two first calls at once return the same."""
    with exclusive(cluster_folder(cluster)):
        found = existing(cluster)
        if found is None:
            found = Secrets()
            save(cluster, found)
        return found


def document(wanted: Secrets) -> str:
    """The content of the file, here and on the head."""
    return wanted.model_dump_json(indent=2, exclude_none=True) + "\n"


def _reason(error: ValidationError) -> str:
    first = error.errors()[0]
    return ": ".join([*(str(part) for part in first["loc"]), first["msg"]])
