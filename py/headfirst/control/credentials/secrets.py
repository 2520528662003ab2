"""A cluster's generated secrets on the controller: one file with mode 0600, never logged."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import operator
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from headfirst.common.errors import InputError
from headfirst.common.state_files import exclusive, read_file, replace_file
from headfirst.control.credentials.identity import cluster_folder
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.frozen import Frozen
from headfirst.decide.plan.front.webui import ADMIN_EMAIL

# A key has 256 random bits: a plain hash of it cannot be guessed from.
_KEY_BYTES = 32

KeyName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
ServiceName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")]


class NamedKey(Frozen):
    """What is kept of a key. `service` is the only one that it is for, None: all."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    service: ServiceName | None = None
    requests_per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    created: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]


def _secret() -> str:
    return secrets.token_urlsafe(_KEY_BYTES)


def random_api_key() -> str:
    """A new key, as OpenAI's look."""
    return f"sk-{_secret()}"


def _password() -> str:
    return secrets.token_urlsafe(18)


def new_key(service: str | None, requests_per_minute: int | None) -> tuple[str, NamedKey]:
    """A key, and what is kept of it."""
    key = random_api_key()
    created = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    digest = hashlib.sha256(key.encode()).hexdigest()
    return key, NamedKey(
        sha256=digest, service=service, requests_per_minute=requests_per_minute, created=created
    )


# The head's copy becomes Ansible variables here: without braces no value is a template.
Secret = Annotated[str, Field(pattern=r"^[!#-&(-\[\]-_a-z|~]{8,200}$")]

# Becomes an Ansible variable: without braces it is no template.
Pem = Annotated[str, Field(pattern=r"^-----BEGIN [A-Z ]+-----\n[A-Za-z0-9+/=\n]+-----END [A-Z ]+-----\n$")]


class LocalCa(BaseModel):
    """The authority, and its present certificate for the proxy, in PEM: on the head and all controllers."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    ca_certificate: Pem
    certificate: Pem
    key: Pem

    @model_validator(mode="before")
    @classmethod
    def _without_its_key(cls, fields: Any) -> Any:
        """Earlier releases kept the key of the authority here; what is read is never written again."""
        if not isinstance(fields, dict):
            return fields
        return {name: value for name, value in fields.items() if name != "ca_key"}


class Secrets(BaseModel):
    """What `deploy up` hands to the roles and a person needs to sign in."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    engine_api_key: Secret = Field(default_factory=random_api_key)
    webui_admin_email: Annotated[str, Field(pattern=r"^[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9.-]{1,190}$")] = (
        ADMIN_EMAIL
    )
    webui_admin_password: Secret = Field(default_factory=_password)
    webui_secret_key: Secret = Field(default_factory=_secret)
    weights_token: Secret = Field(default_factory=_secret)
    # Of it each pair of hosts gets a key of its own: it stays on the controller and the head.
    supervisor_secret: Secret = Field(default_factory=_secret)
    grafana_admin_password: Secret | None = None  # of a cluster with a group [monitoring]
    # API keys of services that have a name; engine_api_key is that of the short form.
    service_api_keys: dict[ServiceName, Secret] = {}
    # Set from a rotation until Open WebUI, which keeps its users in a database, has the new password.
    webui_admin_password_before: Secret | None = None
    # Those that the proxy accepts.
    named_keys: dict[KeyName, NamedKey] = Field(default={}, exclude_if=operator.not_)
    local_ca: LocalCa | None = None

    def values(self) -> list[str]:
        """The texts that must not appear in a log."""
        texts = [self.engine_api_key, self.webui_admin_password, self.webui_secret_key, self.weights_token]
        texts += self.service_api_keys.values()
        texts += [self.supervisor_secret, self.supervisor_token, self.router_key, self.engine_admin_key]
        texts += filter(None, (self.webui_admin_password_before, self.grafana_admin_password))
        return [*texts, *([self.local_ca.key] if self.local_ca else [])]

    @property
    def supervisor_token(self) -> str:
        """What the supervisors of the nodes share; it changes with weights_token."""
        return self._derived("supervisor")

    def supervisor_keys(self, address: str, members: Iterable[str]) -> dict[str, str]:
        """By address: the key that the supervisor at `address` shares with each of the other members."""
        secret = self.supervisor_secret.encode()
        pairs = {
            member: " ".join(sorted((address, member))).encode() for member in members if member != address
        }
        return {member: hmac.new(secret, pair, "sha256").hexdigest() for member, pair in pairs.items()}

    @property
    def router_key(self) -> str:
        """What opens the routers' lists of replicas; it changes with weights_token."""
        return self._derived("router")

    @property
    def engine_admin_key(self) -> str:
        """What administers the engines; made of what no API user and no member has."""
        return hmac.new(self.supervisor_secret.encode(), b"engine-admin", "sha256").hexdigest()

    def _derived(self, purpose: str) -> str:
        return hmac.new(self.weights_token.encode(), purpose.encode(), "sha256").hexdigest()

    def api_key(self, service: str | None) -> str:
        """The key of a service's API."""
        return self.engine_api_key if service is None else self.service_api_keys[service]

    def known_api_key(self, service: str | None) -> str | None:
        """The same, None where the service has none yet."""
        return self.engine_api_key if service is None else self.service_api_keys.get(service)

    def with_api_keys(self, keys: Mapping[str | None, str]) -> Secrets:
        """The same secrets, with these keys of services."""
        new = {name: key for name, key in keys.items() if key != self.known_api_key(name)}
        if not new:
            return self
        service_keys = {name: key for name, key in new.items() if name}
        return self.model_copy(
            update={
                "engine_api_key": new.get(None, self.engine_api_key),
                "service_api_keys": self.service_api_keys | service_keys,
            }
        )

    def with_keys(self, services: Iterable[str | None]) -> Secrets:
        """The same secrets, with a key for every service."""
        new = {name: random_api_key() for name in services if name and name not in self.service_api_keys}
        if new and not self.service_api_keys:
            # A service that gets a name, and others beside it, keeps its clients.
            new[next(iter(new))] = self.engine_api_key
        return self.model_copy(update={"service_api_keys": self.service_api_keys | new}) if new else self

    def with_grafana_password(self) -> Secrets:
        """The same secrets, with a password of Grafana's administrator."""
        new = {} if self.grafana_admin_password else {"grafana_admin_password": _password()}
        return self.model_copy(update=new) if new else self

    @property
    def is_rotating(self) -> bool:
        """Whether a rotation began that Open WebUI has not confirmed yet."""
        return self.webui_admin_password_before is not None

    def rotated(self) -> Secrets:
        """New secrets for the same administrator."""
        return Secrets(
            webui_admin_email=self.webui_admin_email,
            webui_admin_password_before=self.webui_admin_password,
            # Grafana's database keeps the first one.
            grafana_admin_password=self.grafana_admin_password,
            # The keys of people are revoked one by one, and the authority is trusted by their machines.
            named_keys=self.named_keys,
            local_ca=self.local_ca,
        ).with_keys(self.service_api_keys)

    def applied(self) -> Secrets:
        """The same secrets, when every service has them."""
        return self.model_copy(update={"webui_admin_password_before": None})


def hidden(cluster: Cluster, credentials: Secrets | None) -> list[str]:
    """The texts that nothing of a cluster shows: its generated secrets, and those of its inventory."""
    return [*(credentials.values() if credentials else ()), *cluster.hidden]


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
            hint="Correct the file, or move it away: the copy on the head is then used.",
        ) from None


def save(cluster: Cluster, credentials: Secrets) -> None:
    """Keep the secrets on this controller."""
    replace_file(credentials_file(cluster), document(credentials))


def load_or_create(cluster: Cluster) -> Secrets:
    """The cluster's secrets; generated at the first call. Two first calls at once return the same."""
    with exclusive(cluster_folder(cluster)):
        credentials = existing(cluster)
        if credentials is None:
            credentials = Secrets()
            save(cluster, credentials)
        return credentials


def document(credentials: Secrets) -> str:
    """The content of the file, here and on the head."""
    return credentials.model_dump_json(indent=2, exclude_none=True) + "\n"


def _reason(error: ValidationError) -> str:
    first = error.errors()[0]
    return ": ".join([*(str(part) for part in first["loc"]), first["msg"]])
