"""Secret environment of containers, taken out of the settings: no plan and no rendered file has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ansible_collections.headfirst.serving.plugins.module_utils.container_spec import read_env_file

from headfirst.common.errors import InputError
from headfirst.control.inventory.local_files import local_file, private_file
from headfirst.decide.cluster.division import ROLES
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.cluster.values import engine_environment, environment
from headfirst.decide.scrub import SHORTEST, is_secret

_MOST_BYTES = 1 << 20
_Parts = tuple[dict[str, str], dict[str, str]]


def apart(cluster: Cluster) -> Cluster:
    """The cluster whose settings have no secret environment. InputError for a file that cannot be used."""
    settings = cluster.settings
    plain, secret = _divided("webui_env", settings.webui_env, cluster.given)
    secret |= _of_file(cluster, "webui_env_file", settings.webui_env_file, cluster.given)
    services = tuple(_apart(cluster, service) for service in cluster.services)
    every: list[Mapping[str, str]] = [secret]
    for service in services:
        every += [service.secret_env, *service.role_secret_env.values()]
    return replace(
        cluster,
        settings=settings.model_copy(update={"webui_env": plain}),
        services=services,
        webui_secret_env=secret,
        hidden=cluster.hidden | {text for env in every for text in env.values() if len(text) >= SHORTEST},
    )


def _apart(cluster: Cluster, service: Service) -> Service:
    settings, places = service.settings, service.given
    plain, secret = _divided("engine_env", settings.engine_env, places)
    secret |= _of_file(cluster, "engine_env_file", settings.engine_env_file, places)
    changed, of_roles = {"engine_env": plain}, {}
    for role in ROLES:
        name = f"{role}_engine_env"
        changed[name], of_roles[role] = _divided(name, getattr(settings, name), places)
    return replace(
        service,
        settings=settings.model_copy(update=changed),
        secret_env=secret,
        role_secret_env=of_roles,
    )


def _divided(setting: str, variables: Mapping[str, str], places: Mapping[str, str | None]) -> _Parts:
    """What may be seen, and what may not."""
    secret = {name: value for name, value in variables.items() if is_secret(name, value)}
    _refuse(setting, secret, places.get(setting))
    return {name: value for name, value in variables.items() if name not in secret}, secret


def _of_file(
    cluster: Cluster, setting: str, file: str | None, places: Mapping[str, str | None]
) -> dict[str, str]:
    if file is None:
        return {}
    path, where = local_file(cluster, file), places.get(setting) or "extra variables (-e)"
    content = private_file(path, setting, where, _MOST_BYTES, "lines NAME=VALUE")
    try:
        variables = read_env_file(content.decode())
    except ValueError as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeError) else str(error)
        raise InputError(reason, where=str(path), hint="Write one NAME=VALUE a line.") from None
    _refuse(setting, variables, str(path))
    return variables


def _refuse(setting: str, variables: Mapping[str, str], where: str | None) -> None:
    """InputError for what a file with lines NAME=VALUE cannot have; values are not in its text."""
    try:
        environment(dict(variables))
        engine_environment(dict.fromkeys(variables, "…"))
        for name, value in variables.items():
            if value.splitlines() not in ([], [value]):
                raise ValueError(f"the value of {name} has more than one line")
    except ValueError as error:
        raise InputError(f"{setting}: {error}", where=where, hint="Write one NAME=VALUE a line.") from None
