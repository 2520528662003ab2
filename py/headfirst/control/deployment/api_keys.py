"""API keys that people have already: the files on this machine that `api_key_file` names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from headfirst.common.errors import InputError
from headfirst.control.credentials import secrets as stored
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.stages import starts_ranks
from headfirst.control.inventory.local_files import local_file, private_file
from headfirst.decide.cluster.types import Cluster, Service

SETTING = "api_key_file"
Keys = Mapping[str | None, str]  # by the name of their service

_LEAST, _MOST = 8, 200
# Of ASCII without spaces: no quotes, braces and backslashes, which a template or a shell could read, and no
# `;`, which separates the keys of the chat page. Engines would read a key that begins with `-` as an option.
_KEY = re.compile(r"(?!-)[!#-&(-:<-\[\]-_a-z|~]*")
_WRITE = (
    "Write the key on one line: 8 to 200 letters, digits and characters such as . _ - / + =, without spaces."
)


def read(cluster: Cluster) -> dict[str | None, str]:
    """The keys that files of this machine hold. InputError for a file that cannot be used."""
    return {
        service.name: _key(path, service.given.get(SETTING) or "extra variables (-e)")
        for service in cluster.services
        if (path := file_of(cluster, service))
    }


def file_of(cluster: Cluster, service: Service) -> Path | None:
    """Where the inventory states that the key is."""
    if not service.settings.api_key_file:
        return None
    return local_file(cluster, service.settings.api_key_file)


def applied(secrets: Secrets, keys: Keys, brought: Service | None, tags: Sequence[str]) -> Secrets:
    """The secrets for a run of `brought` (None: all services) and the stages of `tags`.

    A service whose ranks the run does not start keeps its key, since they have that one.
    """
    started = {
        name: key
        for name, key in keys.items()
        if _starts(name, brought, tags) or (name and name not in secrets.service_api_keys)
    }
    return secrets.with_api_keys(started)


def changes(
    cluster: Cluster,
    keys: Keys,
    before: Secrets | None,
    brought: Service | None = None,
    tags: Sequence[str] = (),
) -> list[str]:
    """A sentence for each file that has another key than `before`, the credentials that the cluster has."""
    if before is None:
        return []
    texts = []
    for service in cluster.services:
        present = before.known_api_key(service.name)
        if service.name not in keys or present in (None, keys[service.name]):
            continue
        text = f"{file_of(cluster, service)} ({SETTING}) has another API key of {service}"
        if _starts(service.name, brought, tags):
            text += (
                ": its ranks restart, its routers, the chat page and the proxy get the key, and clients with "
                f"the present one get 401. Without {SETTING} the present key stays; "
                f"`deploy credentials {cluster.inventories[0]}` prints it"
            )
        else:
            text += f", and this run does not apply it: deploy up {cluster.inventories[0]}"
        texts.append(text)
    return texts


def notes(cluster: Cluster) -> list[str]:
    """As changes(), for a plan, which asks no host: by what this controller has stored."""
    keys = read(cluster)
    before = stored.existing(cluster) if keys else None
    if before or not keys:
        return changes(cluster, keys, before)
    return [
        f"{SETTING} sets the API key of {', '.join(str(cluster.service(name)) for name in keys)}, and this "
        "controller has no credentials of the cluster: clients with another one would get 401. "
        f"Compare first: deploy up {cluster.inventories[0]} --check"
    ]


def origin(cluster: Cluster, service: Service, key: str) -> str:
    """Where the key of a service comes from, for a person; empty where it was generated."""
    path = file_of(cluster, service)
    if path is None:
        return ""
    try:
        same = _key(path, None) == key
    except InputError:
        return f"{path} ({SETTING}), which cannot be used here"
    return f"{path} ({SETTING})" + (
        "" if same else f" has another key, until: deploy up {cluster.inventories[0]}"
    )


def refuse_rotation(cluster: Cluster, present: Secrets) -> None:
    """InputError where a file has the present key still: a rotation replaces all of them."""
    keys = read(cluster)
    for service in cluster.services:
        if service.name in keys and keys[service.name] == present.known_api_key(service.name):
            raise InputError(
                f"the API key of {service} is that of {SETTING}, and the file has the present key",
                where=service.given.get(SETTING),
                hint=f"Write another key into {file_of(cluster, service)} and run this again, or "
                f"`deploy up {cluster.inventories[0]}` to replace this key alone. Without {SETTING} a "
                "rotation generates the key.",
            )


def _starts(name: str | None, brought: Service | None, tags: Sequence[str]) -> bool:
    """Whether a run starts the ranks of the service with this name."""
    return (brought is None or brought.name == name) and starts_ranks(tags)


def _key(path: Path, where: str | None) -> str:
    # A longer key, or the end of the line.
    content = private_file(path, SETTING, where, _MOST + 3, "the key")
    line = content.removesuffix(b"\n").removesuffix(b"\r").decode("latin-1")
    if problem := _problem(line):
        raise InputError(f"the API key in {path} {problem}", where=where, hint=_WRITE)
    return line


def _problem(line: str) -> str:
    """What is wrong with a key; its text is not in it."""
    if not line:
        return "is empty"
    if "\n" in line or "\r" in line:
        return "has more than one line"
    match = _KEY.match(line)
    good = match.end() if match else 0
    if good < len(line):
        return f"has a character that a key cannot have: character {good + 1}"
    if len(line) > _MOST:
        return f"has more than {_MOST} characters"
    return f"has {len(line)} characters only" if len(line) < _LEAST else ""
