"""Inventory files to a Cluster: read by Ansible's own parser, then typed and checked before any SSH."""

from __future__ import annotations

import ipaddress
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headfirst.cluster.names import refuse_unknown
from headfirst.cluster.settings import CLUSTER_NAMES, HOST_NAMES, ClusterSettings, HostSettings
from headfirst.cluster.source import host_lines, locate_variable
from headfirst.cluster.types import Cluster, Host, Login
from headfirst.errors import InputError

_EXAMPLE = (
    "A smallest inventory is:\n  [head]\n  node1 ansible_host=192.0.2.11 gpus=8 gpu=A100-80G\n"
    "`deploy init` writes one."
)


def load(inventories: Sequence[Path], extra_vars: Sequence[str] = ()) -> Cluster:
    """Read and check an inventory. `extra_vars` are Ansible's `-e` values.

    Raises InputError with file and line for whatever cannot be carried out as written.
    """
    paths = tuple(path.absolute() for path in inventories)
    for path in paths:
        if not path.exists():
            raise InputError(f"no such inventory: {path}", hint=_suggest_inventory(path))
    listing = _ansible_inventory(paths, extra_vars)
    hostvars: dict[str, dict[str, Any]] = listing.get("_meta", {}).get("hostvars", {})

    def members(group: str) -> list[str]:
        return _members(listing, group)

    _refuse_repeats(paths)
    head, workers, webui = members("head"), members("workers"), members("webui")
    if not head:
        raise InputError(
            "the inventory has no head: group [head] is missing or empty", where=str(paths[0]), hint=_EXAMPLE
        )
    if len(head) > 1:
        raise InputError(
            f"two heads: {', '.join(head)}",
            where=_where_host(head[1], "head", paths),
            hint="Keep one host in [head] (it gets rank 0) and move the others to [workers].",
        )
    if len(webui) > 1:
        raise InputError(
            f"group [webui] has {len(webui)} hosts",
            where=_where_host(webui[1], "webui", paths),
            hint="Keep one.",
        )
    both = [name for name in workers if name in head]
    if both:
        raise InputError(
            f"{both[0]} is both head and worker",
            where=_where_host(both[0], "workers", paths),
            hint="List it in [head] only.",
        )
    names = list(dict.fromkeys([*head, *workers, *webui]))
    refuse_unknown(sorted({key for name in names for key in hostvars.get(name, {})}), paths)
    settings = _cluster_settings(names, hostvars, paths)
    hosts = {name: _host(name, hostvars.get(name, {}), paths) for name in names}
    _refuse_shared_addresses([hosts[name] for name in names], paths)
    return Cluster(
        name=settings.cluster_name or _name_of(paths[0]),
        inventories=paths,
        settings=settings,
        head=hosts[head[0]],
        workers=tuple(hosts[name] for name in workers),
        webui=hosts[(webui or head)[0]],
        given=frozenset(key for name in names for key in hostvars.get(name, {})),
    )


def _suggest_inventory(path: Path) -> str:
    ready = sorted(p for p in Path("inventories").glob("*.ini")) if Path("inventories").is_dir() else []
    listing = f"Here are: {', '.join(str(p) for p in ready)}. " if ready else ""
    return f"{listing}`deploy init {path.name}` writes a new one."


def _ansible_inventory(paths: tuple[Path, ...], extra_vars: Sequence[str]) -> dict[str, Any]:
    command = [str(Path(sys.executable).parent / "ansible-inventory"), "--list"]
    for path in paths:
        command += ["-i", str(path)]
    for item in extra_vars:
        command += ["-e", item]
    # An inventory that Ansible cannot parse is otherwise a warning and an empty list of hosts.
    env = os.environ | {
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",  # Ansible refuses a locale that is not UTF-8 or not installed
    }
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise InputError(
            "Ansible cannot read the inventory: " + " ".join(lines[-6:]),
            where=str(paths[0]),
            hint=f"Try `ansible-inventory -i {paths[0]} --list` and mend what it names.",
        )
    listing: dict[str, Any] = json.loads(done.stdout)
    return listing


def _members(listing: Mapping[str, Any], group: str) -> list[str]:
    """Hosts of a group and of its children, in inventory order."""
    entry = listing.get(group, {})
    found = list(entry.get("hosts", []))
    for child in entry.get("children", []):
        found += _members(listing, child)
    return list(dict.fromkeys(found))


def _where_host(name: str, group: str, paths: tuple[Path, ...]) -> str:
    lines = [line.where for line in host_lines(paths) if line.host == name and line.group == group]
    return lines[-1] if lines else str(paths[0])


def _refuse_repeats(paths: tuple[Path, ...]) -> None:
    seen: dict[tuple[str, str], str] = {}
    for line in host_lines(paths):
        if line.group not in {"head", "workers", "webui"}:
            continue
        if first := seen.get((line.group, line.host)):
            raise InputError(
                f"{line.host} is listed twice in [{line.group}] (first at {first})",
                where=line.where,
                hint="Each host runs one rank: remove a line, or give the second host a name of its own.",
            )
        seen[line.group, line.host] = line.where


def _cluster_settings(
    names: list[str], hostvars: Mapping[str, Mapping[str, Any]], paths: tuple[Path, ...]
) -> ClusterSettings:
    """Settings as the head sees them; another host that sees other values is a mistake."""
    first = {key: value for key, value in hostvars.get(names[0], {}).items() if key in CLUSTER_NAMES}
    for name in names[1:]:
        for key in sorted(CLUSTER_NAMES & hostvars.get(name, {}).keys()):
            value = hostvars[name][key]
            if key not in first or first[key] != value:
                raise InputError(
                    f"{key} is a setting of the whole cluster, but {name} has {value!r} "
                    f"and {names[0]} has {first.get(key)!r}",
                    where=locate_variable(key, paths),
                    hint="Write it once, under [all:vars].",
                )
    try:
        settings = ClusterSettings.model_validate(first)
    except ValidationError as error:
        raise _invalid(error, paths) from None
    if not settings.model and settings.model_source != "demo":
        raise InputError(
            "no model is named",
            where=str(paths[0]),
            hint="Add `model=deepseek-ai/DeepSeek-R1` under [all:vars], or give `-e model=…`.",
        )
    if settings.model_source == "path" and not settings.model.startswith("/"):
        raise InputError(
            f"model={settings.model} is no absolute path",
            where=locate_variable("model", paths),
            hint="With model_source=path, model is a folder on the head, e.g. /data/DeepSeek-R1.",
        )
    if settings.engine_image_source == "tarball" and not settings.engine_image_tarball:
        raise InputError(
            "engine_image_source=tarball needs engine_image_tarball",
            where=locate_variable("engine_image_source", paths),
            hint="Give the file made by `docker save IMAGE -o FILE`.",
        )
    return settings


def _host(name: str, variables: Mapping[str, Any], paths: tuple[Path, ...]) -> Host:
    try:
        own = HostSettings.model_validate(
            {key: value for key, value in variables.items() if key in HOST_NAMES}
        )
    except ValidationError as error:
        raise _invalid(error, paths) from None
    ssh_host = str(variables.get("ansible_host", name))
    address = str(own.address) if own.address else ssh_host
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        raise InputError(
            f"{name} has no address: {address!r} is no IPv4 address",
            where=_where_any(name, paths),
            hint=f"Write `{name} ansible_host=192.0.2.11`, or `address=…` for another network.",
        ) from None
    user = variables.get("ansible_user") or variables.get("ansible_ssh_user")
    key = variables.get("ansible_ssh_private_key_file") or variables.get("ansible_private_key_file")
    login = Login(
        host=ssh_host,
        port=int(variables.get("ansible_port") or 22),
        user=str(user) if user else None,
        private_key=str(Path(str(key)).expanduser()) if key else None,
        known_hosts=_known_hosts(variables),
    )
    return Host(
        name=name,
        address=address,
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


def _known_hosts(variables: Mapping[str, Any]) -> str | None:
    """The file that `-o UserKnownHostsFile=` names in the options that Ansible hands to ssh."""
    options = " ".join(str(variables.get(f"ansible_ssh_{kind}_args", "")) for kind in ("common", "extra"))
    for word in shlex.split(options):
        name, _, value = word.removeprefix("-o").partition("=")
        if name.lower() == "userknownhostsfile":
            return str(Path(value).expanduser())
    return None


def _where_any(name: str, paths: tuple[Path, ...]) -> str:
    return next((line.where for line in host_lines(paths) if line.host == name), str(paths[0]))


def _refuse_shared_addresses(hosts: list[Host], paths: tuple[Path, ...]) -> None:
    seen: dict[str, str] = {}
    for host in hosts:
        if first := seen.get(host.address):
            raise InputError(
                f"{first} and {host.name} have the same address {host.address}",
                where=_where_any(host.name, paths),
                hint="Each rank needs a host of its own.",
            )
        seen[host.address] = host.name


def _invalid(error: ValidationError, paths: tuple[Path, ...]) -> InputError:
    first = error.errors()[0]
    name = str(first["loc"][0])
    message = first["msg"].removeprefix("Value error, ")
    return InputError(
        f"{name}={first['input']}: {message[0].lower()}{message[1:]}",
        where=locate_variable(name, paths),
        hint=f"Its meaning: deploy variables {name}",
    )


def _name_of(path: Path) -> str:
    stem = path.stem if path.is_file() else path.name
    return "".join(char if char.isalnum() else "-" for char in stem.lower()).strip("-") or "cluster"
