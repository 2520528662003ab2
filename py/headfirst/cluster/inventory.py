"""Inventory files to a Cluster: read by Ansible's own library, then typed and checked before any SSH."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headfirst.cluster import ports
from headfirst.cluster.address import address_of
from headfirst.cluster.login import login_of
from headfirst.cluster.names import refuse_unknown
from headfirst.cluster.reading import HostReading, Reading, read
from headfirst.cluster.settings import CLUSTER_NAMES, HOST_NAMES, ClusterSettings, HostSettings
from headfirst.cluster.types import Cluster, Host
from headfirst.errors import InputError
from headfirst.run.scrub import url_credentials

_EXAMPLE = (
    "A smallest inventory is:\n  [head]\n  node1 ansible_host=192.0.2.11 gpus=8 gpu=A100-80G\n"
    "`deploy init` writes one."
)


def load(inventories: Sequence[Path], extra_vars: Sequence[str] = (), limit: str | None = None) -> Cluster:
    """Read and check an inventory. `extra_vars` are Ansible's `-e` values, `limit` its `--limit`.

    Raises InputError with file and line for whatever cannot be carried out as written.
    """
    paths = tuple(path.absolute() for path in inventories)
    for path in paths:
        if not path.exists():
            raise InputError(f"no such inventory: {path}", hint=_suggest_inventory(path))
    reading = read(paths, extra_vars, limit)
    _refuse_repeats(reading)
    head, workers, webui = (reading.groups[name] for name in ("head", "workers", "webui"))
    _refuse_groups(reading, paths)
    names = list(dict.fromkeys([*head, *workers, *webui]))
    settings = _cluster_settings(names, reading, paths)
    given = {key: place for name in names for key, place in reading.hosts[name].where.items()}
    notes = refuse_unknown(
        given,
        frozenset().union(*(reading.hosts[name].used for name in names)),
        settings.own_variables,
    )
    hosts = {name: _host(name, reading, paths) for name in names}
    _refuse_shared_addresses([hosts[name] for name in names], reading, paths)
    cluster = Cluster(
        name=settings.cluster_name or _name_of(paths[0]),
        inventories=paths,
        settings=settings,
        head=hosts[head[0]],
        workers=tuple(hosts[name] for name in workers),
        webui=hosts[(webui or head)[0]],
        notes=notes,
        url_credentials=url_credentials([reading.hosts[name].urls for name in names]),
        given=given,
    )
    _refuse_ports(cluster, reading)
    _refuse_empty_limit(cluster, reading, limit)
    return cluster


def _refuse_groups(reading: Reading, paths: tuple[Path, ...]) -> None:
    head, workers, webui = (reading.groups[name] for name in ("head", "workers", "webui"))
    if not head:
        raise InputError(
            "the inventory has no head: group [head] is missing or empty", where=str(paths[0]), hint=_EXAMPLE
        )
    if len(head) > 1:
        raise InputError(
            f"two heads: {', '.join(head)}",
            where=_where_host(head[1], reading, paths),
            hint="Keep one host in [head] (it gets rank 0) and move the others to [workers].",
        )
    if len(webui) > 1:
        raise InputError(
            f"group [webui] has {len(webui)} hosts",
            where=_where_host(webui[1], reading, paths),
            hint="Keep one.",
        )
    both = [name for name in workers if name in head]
    if both:
        raise InputError(
            f"{both[0]} is both head and worker",
            where=_where_host(both[0], reading, paths),
            hint="List it in [head] only.",
        )


def _suggest_inventory(path: Path) -> str:
    ready = sorted(p for p in Path("inventories").glob("*.ini")) if Path("inventories").is_dir() else []
    listing = f"Here are: {', '.join(str(p) for p in ready)}. " if ready else ""
    return f"{listing}`deploy init {path.name}` writes a new one."


def _where_host(name: str, reading: Reading, paths: tuple[Path, ...]) -> str:
    """The last line that lists the host: that is the one too many."""
    lines = [line.where for line in reading.lines if line.host == name]
    return lines[-1] if lines else str(paths[0])


def _refuse_repeats(reading: Reading) -> None:
    seen: dict[tuple[str, str], str] = {}
    for line in reading.lines:
        if line.group not in reading.groups:
            continue
        if first := seen.get((line.group, line.host)):
            raise InputError(
                f"{line.host} is listed twice in [{line.group}] (first at {first})",
                where=line.where,
                hint="Each host runs one rank: remove a line, or give the second host a name of its own.",
            )
        seen[line.group, line.host] = line.where


def _cluster_settings(names: list[str], reading: Reading, paths: tuple[Path, ...]) -> ClusterSettings:
    """Settings as the head sees them; another host that sees other values is a mistake."""
    head = reading.hosts[names[0]]
    first = {key: value for key, value in head.values.items() if key in CLUSTER_NAMES}
    for name in names[1:]:
        other = reading.hosts[name]
        for key in sorted(CLUSTER_NAMES & other.values.keys()):
            value = other.values[key]
            if key not in first or first[key] != value:
                raise InputError(
                    f"{key} is a setting of the whole cluster, but {name} has {value!r} "
                    f"and {names[0]} has {first.get(key)!r}",
                    where=other.where[key],
                    hint="Write it once, under [all:vars].",
                )
    try:
        settings = ClusterSettings.model_validate(first)
    except ValidationError as error:
        raise _invalid(error, head) from None
    if not settings.model and settings.model_source != "demo":
        raise InputError(
            "no model is named",
            where=str(paths[0]),
            hint="Add `model=deepseek-ai/DeepSeek-R1` under [all:vars], or give `-e model=…`.",
        )
    if settings.model_source == "path" and not settings.model.startswith("/"):
        raise InputError(
            f"model={settings.model} is no absolute path",
            where=head.where.get("model"),
            hint="With model_source=path, model is a folder on the head, e.g. /data/DeepSeek-R1.",
        )
    if settings.engine_image_source == "tarball" and not settings.engine_image_tarball:
        raise InputError(
            "engine_image_source=tarball needs engine_image_tarball",
            where=head.where.get("engine_image_source"),
            hint="Give the file made by `docker save IMAGE -o FILE`.",
        )
    return settings


def _host(name: str, reading: Reading, paths: tuple[Path, ...]) -> Host:
    host = reading.hosts[name]
    try:
        own = HostSettings.model_validate(
            {key: value for key, value in host.values.items() if key in HOST_NAMES}
        )
    except ValidationError as error:
        raise _invalid(error, host) from None
    login = login_of(host.login, host.where)
    where = host.where.get("ansible_host") or _where_host(name, reading, paths)
    return Host(
        name=name,
        address=str(own.address) if own.address else address_of(name, login, where),
        login=login,
        gpus=own.gpus,
        gpu=own.gpu,
        nic=own.nic,
        hca=own.hca,
        ib_gid_index=own.ib_gid_index,
        network_rate=own.network_rate,
        disk_rate=own.disk_rate,
        cpu_cores=own.cpu_cores,
        lab=own.lab,
        lab_memory=own.lab_memory,
        lab_cpus=own.lab_cpus,
    )


def _refuse_shared_addresses(hosts: list[Host], reading: Reading, paths: tuple[Path, ...]) -> None:
    seen: dict[str, str] = {}
    for host in hosts:
        if first := seen.get(host.address):
            raise InputError(
                f"{first} and {host.name} have the same address {host.address}",
                where=_where_host(host.name, reading, paths),
                hint="Each rank needs a host of its own.",
            )
        seen[host.address] = host.name


def _refuse_ports(cluster: Cluster, reading: Reading) -> None:
    for host in cluster.hosts:
        found = reading.hosts[host.name]
        wanted = ports.services(cluster, host, found.role_values)
        if taken := ports.clash(host.login.port, wanted):
            name, other, port = taken
            place = next((found.where[key] for key in (name, other) if found.where.get(key)), None)
            raise InputError(
                f"{name} and {other} have the same port {port} on {host.name}",
                where=place,
                hint=f"Give {name} a free port, for example {name}={port + 100}.",
            )


def _refuse_empty_limit(cluster: Cluster, reading: Reading, limit: str | None) -> None:
    names = [host.name for host in cluster.hosts]
    if reading.limited is not None and not set(names) & set(reading.limited):
        raise InputError(
            f"--limit {limit} matches no host of the inventory",
            where=str(cluster.inventories[0]),
            hint=f"Its hosts are {', '.join(names)}; groups and patterns work as in Ansible.",
        )


def _invalid(error: ValidationError, host: HostReading) -> InputError:
    first = error.errors()[0]
    name = str(first["loc"][0])
    message = first["msg"].removeprefix("Value error, ")
    return InputError(
        f"{name}={_shown(first['input'])}: {message[0].lower()}{message[1:]}",
        where=host.where.get(name),
        hint=f"Its meaning: deploy variables {name}",
    )


def _shown(value: Any) -> str:
    """The value, or only its beginning where it is long."""
    text = str(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _name_of(path: Path) -> str:
    stem = path.stem if path.is_file() else path.name
    return "".join(char if char.isalnum() else "-" for char in stem.lower()).strip("-") or "cluster"
