"""Inventory files to a Cluster: read by Ansible's own library, then typed and checked before any SSH."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ansible_collections.headfirst.serving.plugins.module_utils.host_firewall import normal_ports
from pydantic import BaseModel, ValidationError

from headfirst.common.errors import InputError
from headfirst.control.inventory import proxy_login, secret_environment
from headfirst.control.inventory.address import address_of, is_reachable
from headfirst.control.inventory.local_files import missing_bundle
from headfirst.control.inventory.login import login_of
from headfirst.control.inventory.names import EXTRA, in_order, judged, refuse
from headfirst.control.inventory.reading import HostReading, Reading, ServiceReading, read
from headfirst.decide import engines
from headfirst.decide.cluster import ports
from headfirst.decide.cluster.division import ROLES, Members, divide, with_routers
from headfirst.decide.cluster.settings import (
    CLUSTER_NAMES,
    HOST_NAMES,
    OF_ROLE,
    SERVICE_NAMES,
    ClusterSettings,
    HostSettings,
    ServiceSettings,
)
from headfirst.decide.cluster.types import Cluster, Host, OutboundProxy
from headfirst.decide.hardware import gpus
from headfirst.decide.scrub import Scrubber, url_credentials

_Settings = TypeVar("_Settings", bound=BaseModel)
_ANY_MODEL = "/any"  # a folder, and no hub's name
_SERVICE_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_FORMS = dict.fromkeys(("bool_parsing", "bool_type"), "Input should be true or false")  # by pydantic's types
_EXAMPLE = (
    "A smallest inventory is:\n  [head]\n  node1 ansible_host=192.0.2.11 gpus=8 gpu=A100-80G\n"
    "`deploy init` writes one. For hosts of a scheduler, which are not listed: "
    "deploy render INVENTORY --to slurm --nodes 2."
)


def load(
    inventories: Sequence[Path],
    extra_vars: Sequence[str] = (),
    limit: str | None = None,
    *,
    needs_model: bool = True,
) -> Cluster:
    """Read and check an inventory. `extra_vars` are Ansible's `-e` values, `limit` its `--limit`.

    Without `needs_model` one that names no model yet is read as if it did.

    Raises InputError with file and line for whatever cannot be carried out as written.
    """
    paths = tuple(path.absolute() for path in inventories)
    files = state_of(paths)
    reading = read(paths, extra_vars, limit)
    _refuse_repeats(reading)
    _refuse_groups(reading)
    names = _names(reading)
    places = {key: place for name in names for key, place in reading.hosts[name].where.items()}
    wrong = [*reading.refused]
    values = _common(names, reading, CLUSTER_NAMES, wrong)
    settings = _valid(ClusterSettings, values, reading.hosts[names[0]], reading, wrong)
    typed = {name: _host_settings(reading.hosts[name], reading, wrong) for name in names}
    members = _members(reading, wrong, needs_model=needs_model)
    for service in members:
        try:
            engines.get(service.settings.engine, where=service.given.get("engine"))
        except InputError as error:
            wrong.append(error)
    unknown, notes = judged(
        sorted({place for name in names for place in reading.hosts[name].written.items()}, key=in_order),
        frozenset().union(*(reading.hosts[name].used for name in names)),
        settings.own_variables,
        _engine_names(reading),
        reading.prefix,
    )
    wrong += unknown
    # What is typed after -e is no variable of another program.
    advise = any(error.where != EXTRA for error in wrong[len(reading.refused) :])
    if wrong and (missing := missing_bundle(settings, paths[0], places.get("bundle"))):
        wrong.append(missing)
    refuse(wrong, paths[0], reading.prefix, advise=advise)
    for service in members:
        _refuse_contradictions(service.settings, service.given, reading.source)
    hosts = {name: _host(name, typed[name], reading) for name in names}
    _refuse_addresses([hosts[name] for name in names], reading)
    routers = [hosts[name] for name in reading.groups["router"]]
    members = [replace(service, hosts=_ranks(service, reading, hosts)) for service in members]
    services = with_routers(divide(members), routers)
    webui, monitoring = reading.groups["webui"], reading.groups["monitoring"]
    cluster = Cluster(
        name=settings.cluster_name or _name_of(paths[0]),
        inventories=paths,
        settings=settings,
        services=services,
        webui=hosts[webui[0]] if webui else services[0].replicas[0].head,
        monitoring=hosts[monitoring[0]] if monitoring else None,
        spares=tuple(hosts[name] for name in reading.groups["spares"]),
        notes=tuple(notes),
        hidden=url_credentials([reading.hosts[name].urls for name in names]),
        given=places,
        files=files,
        limit=None if reading.limited is None else frozenset(reading.limited),
    )
    _refuse_unequal_links(cluster.nodes, reading)
    _refuse_busy_spares(cluster, reading)
    _refuse_strangers(cluster, reading)
    _refuse_same_names(cluster)
    ports.refuse(cluster)
    _refuse_empty_limit(cluster, limit)
    return secret_environment.apart(proxy_login.read(cluster))


def state_of(paths: Sequence[Path]) -> frozenset[tuple[str, int, int]]:
    """Path, time of the last change (ns) and bytes of each file of an inventory."""
    folders = {path if path.is_dir() else path.parent for path in paths}
    beside = [folder / name for folder in folders for name in ("group_vars", "host_vars")]
    files = {*paths, *(file for folder in (*paths, *beside) for file in folder.rglob("*"))}
    stats = [(str(file), file.stat()) for file in files if file.is_file()]
    return frozenset((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


def _names(reading: Reading) -> list[str]:
    """Every host of the cluster once, ranks first."""
    groups = [reading.groups["head"], reading.groups["workers"]]
    groups += [service.hosts for service in reading.services.values()]
    groups += [reading.groups[name] for name in ("spares", "webui", "router", "monitoring")]
    return list(dict.fromkeys(name for group in groups for name in group))


def _engine_names(reading: Reading) -> set[str]:
    """The engines that the inventory names, or the default one."""
    values = [host.values.get("engine") for host in reading.hosts.values()]
    values += [service.values.get("engine") for service in reading.services.values()]
    engine_names = {value for value in values if value in engines.names()}
    return engine_names or {ServiceSettings.model_fields["engine"].default}


def _host_settings(host: HostReading, reading: Reading, wrong: list[InputError]) -> HostSettings:
    try:
        _closed_ports(host)
    except InputError as error:
        wrong.append(error)
    values = {key: value for key, value in host.values.items() if key in HOST_NAMES}
    return _valid(HostSettings, values, host, reading, wrong)


def _members(reading: Reading, wrong: list[InputError], *, needs_model: bool) -> list[Members]:
    """The services as the inventory lists them, without their hosts."""
    role_hosts = {role: frozenset(reading.groups[role]) for role in ROLES}
    if not reading.services:
        names = [*reading.groups["head"], *reading.groups["workers"]]
        head = reading.hosts[names[0]]
        values = _common(names, reading, SERVICE_NAMES, wrong)
        if not needs_model and not values.get("model") and values.get("model_source") != "demo":
            values["model"] = _ANY_MODEL
        settings = _valid(ServiceSettings, values, head, reading, wrong)
        place = head.where.get("replicas") or head.where.get("prefill_replicas") or reading.source
        return [Members(None, settings, (), place, head.where, role_hosts)]
    members = []
    for name, group in reading.services.items():
        if not _SERVICE_NAME.fullmatch(name):
            raise InputError(
                f"{name} cannot be the name of a service",
                where=reading.source,
                hint="The name of a group that sets model= has lower-case letters, digits and _, "
                "such as chat or embedding_2.",
            )
        wrong += [
            InputError(
                f"{reading.prefix}{key} is a setting of a service, and a host of [{name}] sets it",
                where=place,
                hint=f"Write it under [{name}:vars].",
            )
            for key, place in group.on_hosts.items()
        ]
        settings = _valid(ServiceSettings, group.values, group, reading, wrong)
        members.append(Members(name, settings, (), group.where.get("model"), group.where, role_hosts))
    return members


def _ranks(service: Members, reading: Reading, hosts: Mapping[str, Host]) -> tuple[Host, ...]:
    only = [*reading.groups["head"], *reading.groups["workers"]]
    return tuple(hosts[name] for name in (reading.services[service.name].hosts if service.name else only))


def _refuse_strangers(cluster: Cluster, reading: Reading) -> None:
    """[prefill] and [decode] choose among the hosts of services."""
    for role in ROLES:
        names = reading.groups[role]
        if stranger := next(
            (name for name in names if name not in {host.name for host in cluster.ranks}), None
        ):
            raise InputError(
                f"{stranger} is in [{role}] and runs no rank",
                where=reading.place_of(stranger),
                hint="List it in [head], [workers] or the group of a service, too.",
            )
        if names and not any(service.settings.prefill_replicas for service in cluster.services):
            raise InputError(
                f"the group [{role}] has no meaning without prefill_replicas and decode_replicas",
                where=reading.place_of(names[0]),
                hint="Set both, or remove the group.",
            )


def _refuse_groups(reading: Reading) -> None:
    head, workers = reading.groups["head"], reading.groups["workers"]
    if not head and not workers and not reading.services and (own_groups := reading.own_groups):
        likely_group = next((group for group in own_groups if "gpu" in group.lower()), own_groups[0])
        raise InputError(
            f"no group sets model=, and there is no [head]; the groups are {', '.join(own_groups)}",
            where=reading.source,
            hint=f"Give the group whose hosts serve a model its `model=`: under [{likely_group}:vars], or in "
            f"group_vars/{likely_group}.yml.",
        )
    if not head and (workers or not reading.services):
        raise InputError(
            "the inventory has no head: group [head] is missing or empty", where=reading.source, hint=_EXAMPLE
        )
    if len(head) > 1:
        raise InputError(
            f"two heads: {', '.join(head)}",
            where=reading.place_of(head[1]),
            hint="Keep one host in [head] (it gets rank 0) and move the others to [workers].",
        )
    for group in ("webui", "monitoring"):
        if len(reading.groups[group]) > 1:
            raise InputError(
                f"group [{group}] has {len(reading.groups[group])} hosts",
                where=reading.place_of(reading.groups[group][1]),
                hint="Keep one.",
            )
    both = [name for name in workers if name in head]
    if both:
        raise InputError(
            f"{both[0]} is both head and worker",
            where=reading.place_of(both[0]),
            hint="List it in [head] only.",
        )


def _refuse_repeats(reading: Reading) -> None:
    seen: dict[tuple[str, str], str] = {}
    for line in reading.lines:
        if line.group not in reading.groups:
            continue
        if first := seen.get((line.group, line.host)):
            raise InputError(
                f"{line.host} is listed twice in [{line.group}] (first at {first})",
                where=line.where,
                hint="Each host runs one rank: remove a line, or give the second host another name.",
            )
        seen[line.group, line.host] = line.where


def _common(
    names: list[str], reading: Reading, keys: frozenset[str], wrong: list[InputError]
) -> dict[str, Any]:
    """Settings as the first host has them; another host that has other values is a mistake."""
    head = reading.hosts[names[0]]
    first = {key: value for key, value in head.values.items() if key in keys}
    errors: dict[tuple[str, str | None], InputError] = {}  # one for a line
    for name in names[1:]:
        host_reading = reading.hosts[name]
        for key in sorted(keys & host_reading.values.keys()):
            value = host_reading.values[key]
            if key not in first or first[key] != value:
                what = (
                    f"{reading.prefix}{key} is a setting of the whole cluster, but {name} has "
                    f"{_shown(key, value)[1:]!r} and {names[0]} has {_shown(key, first.get(key))[1:]!r}"
                )
                hint = "Write it once, under [all:vars]."
                if key == "model":
                    hint = (
                        "Several models are services: leave out [head] and [workers], and each group that "
                        "sets model= serves it (docs/services.md)."
                    )
                where = host_reading.where[key]
                errors.setdefault((key, where), InputError(what, where=where, hint=hint))
    wrong += errors.values()
    return first


def _valid(
    model: type[_Settings],
    values: Mapping[str, Any],
    source: HostReading | ServiceReading,
    reading: Reading,
    wrong: list[InputError],
) -> _Settings:
    """The settings; of those that are `wrong` the defaults."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        bad = dict.fromkeys(str(each["loc"][0]) for each in error.errors())
        wrong += [_invalid(error, name, source.where.get(name), reading.prefix) for name in bad]
        return model.model_validate({key: value for key, value in values.items() if key not in bad})


def _refuse_contradictions(settings: ServiceSettings, where: Mapping[str, str | None], source: str) -> None:
    """Settings of a service that are right by themselves."""
    if not settings.model and settings.model_source != "demo":
        raise InputError(
            "no model is named",
            where=source,
            hint="`deploy models INVENTORY` lists what its GPUs serve, with the lines to paste: `model=…` "
            "under [all:vars], or `-e model=…`.",
        )
    models = settings.source
    if settings.model and not models.is_hub and not models.has(settings.model):
        raise InputError(
            f"model_source={models.name} has no model {settings.model}",
            where=where.get("model"),
            hint=f"With model_source={models.name}, model is {models.ids}.",
        )
    if settings.engine_image_source == "tarball" and not settings.engine_image_tarball:
        raise InputError(
            "engine_image_source=tarball needs engine_image_tarball",
            where=where.get("engine_image_source"),
            hint="Give the file made by `docker save IMAGE -o FILE`.",
        )
    _refuse_roles(settings, where)


def _refuse_roles(settings: ServiceSettings, where: Mapping[str, str | None]) -> None:
    """Settings of prefill and decode replicas that contradict each other."""
    both = {f"{role}_replicas" for role in ROLES}
    role_settings = settings.model_fields_set & {f"{role}_{name}" for role in ROLES for name in OF_ROLE}
    if role_settings and not both <= role_settings:
        name = min(role_settings & both or role_settings)
        raise InputError(
            f"{name} is set without {' and '.join(sorted(both - role_settings))}",
            where=where.get(name),
            hint="Prefill and decode are divided where both numbers are set: prefill_replicas=1 "
            "decode_replicas=1, for example.",
        )
    if role_settings and settings.replicas:
        raise InputError(
            "replicas is set beside prefill_replicas and decode_replicas",
            where=where.get("replicas"),
            hint="Remove replicas: its replicas would compute prompts and answers.",
        )


def _host(name: str, settings: HostSettings, reading: Reading) -> Host:
    host = reading.hosts[name]
    login = login_of(name, host.login, host.where)
    where = host.where.get("ansible_host") or reading.place_of(name)
    return Host(
        name=name,
        address=str(settings.address) if settings.address else address_of(name, login, where),
        login=login,
        gpus=settings.gpus,
        gpu=settings.gpu,
        gpu_memory_bytes=settings.gpu_memory,
        gpu_capability=gpus.capability(settings.gpu_capability) if settings.gpu_capability else None,
        nic=settings.nic,
        hca=settings.hca,
        ib_gid_index=settings.ib_gid_index,
        network_rate=settings.network_rate,
        disk_rate=settings.disk_rate,
        cpu_cores=settings.cpu_cores,
        lab=settings.lab,
        lab_memory=settings.lab_memory,
        lab_cpus=settings.lab_cpus,
        weights_port=host.role_values["weights_port"],
        weights_addresses=tuple(str(address) for address in settings.weights_addresses),
        firewall=host.role_values["host_tuning_firewall"],
        closed_ports=_closed_ports(host),
        outbound=_outbound(settings),
    )


def _outbound(settings: HostSettings) -> OutboundProxy | None:
    """The proxies of a host, without the login of their file; an empty setting is for none."""
    https = settings.https_proxy or settings.http_proxy
    if not https:
        return None
    return OutboundProxy(
        http=settings.http_proxy or None,
        https=https,
        exceptions=tuple(settings.no_proxy),
        login_file=settings.http_proxy_login_file or None,
    )


def _closed_ports(host: HostReading) -> frozenset[int]:
    try:
        spans = normal_ports(host.role_values["host_tuning_closed_ports"])
    except ValueError as error:
        raise InputError(
            f"host_tuning_closed_ports: {error}",
            where=host.where["host_tuning_closed_ports"],
            hint='Write it so: host_tuning_closed_ports=["5432","32768-60999"].',
        ) from None
    return frozenset(port for low, high in spans for port in range(low, high + 1))


def _refuse_addresses(hosts: list[Host], reading: Reading) -> None:
    """Addresses of two hosts, or that only a host itself reaches."""
    seen: dict[str, str] = {}
    for host in hosts:
        if len(hosts) > 1 and not is_reachable(host.address):
            raise InputError(
                f"{host.name} has the address {host.address}, which no other host reaches",
                where=reading.hosts[host.name].where.get("address") or reading.place_of(host.name),
                hint=f"Write the address that the other hosts reach: `{host.name} … address=192.0.2.11`.",
            )
        if first := seen.get(host.address):
            raise InputError(
                f"{first} and {host.name} have the same address {host.address}",
                where=reading.place_of(host.name),
                hint="Each rank needs its own host.",
            )
        seen[host.address] = host.name


def _refuse_unequal_links(nodes: Sequence[Host], reading: Reading) -> None:
    """Every host with weights has as many addresses for them, and none has another's."""
    seen: dict[str, str] = {}
    first = nodes[0]
    for host in nodes:
        where = reading.hosts[host.name].where.get("weights_addresses") or reading.place_of(host.name)
        addresses = host.weights_addresses
        if len(addresses) != len(first.weights_addresses):
            raise InputError(
                f"weights_addresses of {host.name} and {first.name} differ in number: "
                f"{len(addresses)} and {len(first.weights_addresses)}",
                where=where,
                hint="Name one address of each interface on every host, in the same order.",
            )
        for address in addresses:
            if address in seen:
                raise InputError(
                    f"weights_addresses: {seen[address]} and {host.name} have the same address {address}",
                    where=where,
                    hint="Name each interface's own address.",
                )
            seen[address] = host.name


def _refuse_busy_spares(cluster: Cluster, reading: Reading) -> None:
    for host in cluster.spares:
        if host in cluster.ranks:
            raise InputError(
                f"{host.name} is a spare and runs a rank",
                where=reading.place_of(host.name),
                hint="List it in [spares], or where it runs a rank.",
            )


def _refuse_same_names(cluster: Cluster) -> None:
    seen: dict[str, str] = {}
    for service in cluster.services:
        name = service.served_model_name
        if name in seen:
            raise InputError(
                f"services {seen[name]} and {service} are both served as {name}",
                where=str(cluster.inventories[0]),
                hint=f"Give one another name: served_model_name={name}-2 under [{service}:vars].",
            )
        seen[name] = str(service)


def _refuse_empty_limit(cluster: Cluster, limit: str | None) -> None:
    if not cluster.limited_hosts:
        names = [host.name for host in cluster.hosts]
        raise InputError(
            f"--limit {limit} matches no host of the inventory",
            where=str(cluster.inventories[0]),
            hint=f"Its hosts are {', '.join(names)}; groups and patterns work as in Ansible.",
        )


def _invalid(error: ValidationError, name: str, where: str | None, prefix: str) -> InputError:
    # A value of several types has an error of each.
    errors = [each for each in error.errors() if each["loc"][0] == name]
    texts = [_FORMS.get(each["type"], each["msg"].removeprefix("Value error, ")) for each in errors]
    message = ", or ".join(dict.fromkeys(texts))
    return InputError(
        f"{prefix}{name}{_shown(name, errors[0]['input'])}: {message[0].lower()}{message[1:]}",
        where=where,
        hint=f"Its description: deploy variables {name}.",
    )


def _shown(name: str, value: Any) -> str:
    """The value, or only its beginning where it is long; nothing where it may hold a secret."""
    shown = ",".join(map(str, value)) if isinstance(value, list) else value
    text = "" if name.endswith(("_env", "_proxy")) else Scrubber(()).text(f"={shown}")
    return text if len(text) <= 100 else f"{text[:100]}…"


def _name_of(path: Path) -> str:
    stem = path.stem if path.is_file() else path.name
    return "".join(char if char.isalnum() else "-" for char in stem.lower()).strip("-") or "cluster"
