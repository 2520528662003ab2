"""Reads an inventory with Ansible's own library: hosts in order, values, logins. JSON in, JSON out.

reading.py starts it. Ansible keeps its settings in globals, checks the locale, writes into HOME and prints to
stdout: none of that belongs into the process of `deploy`. The answer carries passwords, on a pipe only.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible import context
from ansible._internal._datatag._tags import Origin, TrustedAsTemplate
from ansible.cli import CLI
from ansible.errors import AnsibleError, AnsibleUndefinedVariable
from ansible.inventory import manager as inventory_manager
from ansible.inventory.group import Group
from ansible.inventory.manager import InventoryManager
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.collections import ImmutableDict
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import become_loader, connection_loader, init_plugin_loader, inventory_loader
from ansible.template import Templar
from ansible.utils.vars import combine_vars, load_extra_vars
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible.vars.plugins import get_vars_from_inventory_sources

from headfirst.control.inventory.ansible_errors import (
    VAULT_HINT,
    InventoryRefusal,
    RecordingDisplay,
    is_vault,
    kind_of,
    place_of,
    reason,
    refusal,
    unreadable,
    vaulted,
)

GROUPS = ("head", "workers", "prefill", "decode", "webui", "router", "spares", "monitoring")
_NOT_OWN = ("all", "ungrouped", *GROUPS)
# Set by Ansible on every host.
_MAGIC = C.INTERNAL_STATIC_VARS | {"environment", "omit", "vars"}
_EXTRA = "extra variables (-e)"
_REFUSED = object()
_EXPRESSION = re.compile(r"\{[{%](.*?)[%}]\}", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*")
_SECTION = re.compile(r"^\[([^\]:\s]+)(?::(\w+))?\]")


class _Loader(DataLoader):  # type: ignore[misc]
    """Reads files, and some of them from texts that nobody has written yet."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        super().__init__()
        self._texts = texts

    def _get_file_contents(self, file_name: str) -> tuple[bytes, bool]:
        text = self._texts.get(self.path_dwim(file_name))
        if text is None:
            contents: tuple[bytes, bool] = super()._get_file_contents(file_name)
            return contents
        return Origin(path=file_name).tag(text.encode(errors="surrogateescape")), True


class _Reader:
    """One inventory, read."""

    def __init__(self, sources: list[str], extra_vars: list[str], texts: Mapping[str, str]) -> None:
        origin = Origin(description=_EXTRA)
        trusted = tuple(TrustedAsTemplate().tag(origin.tag(item)) for item in extra_vars)
        context.CLIARGS = ImmutableDict(extra_vars=trusted)
        self._sources = sources
        self._loader = _Loader(texts)
        try:
            secrets = CLI.setup_vault_secrets(
                self._loader, vault_ids=list(C.DEFAULT_VAULT_IDENTITY_LIST), auto_prompt=False
            )
        except AnsibleError as error:
            raise InventoryRefusal(
                f"the vault password cannot be read: {reason(error)}", hint=VAULT_HINT
            ) from error
        self._loader.set_vault_secrets(secrets)
        try:
            self._extra = load_extra_vars(self._loader)
        except AnsibleError as error:
            raise InventoryRefusal(
                reason(error), place_of(error) or _EXTRA, "Ansible takes -e KEY=VALUE, JSON, or @FILE."
            ) from error
        self._inventory = self._parse()
        self._variables = VariableManager(
            loader=self._loader, inventory=self._inventory, version_info=CLI.version_info(gitinfo=False)
        )
        HostVars(self._inventory, self._variables, self._loader)  # makes itself known to the manager
        self.refused: list[dict[str, str | None]] = []  # variables whose values cannot be read

    def _parse(self) -> InventoryManager:
        recorder = RecordingDisplay(inventory_manager.display)
        inventory_manager.display = recorder
        try:
            return InventoryManager(loader=self._loader, sources=self._sources)
        except AnsibleError as error:
            raise unreadable(recorder.failures, error, self._sources) from error

    def has(self, names: Iterable[str]) -> bool:
        """Whether any source has a variable of these names."""
        entities = [*self._inventory.groups.values(), *self._inventory.hosts.values()]
        there = {name for entity in entities for name in entity.vars}
        return not there.union(self._extra, self._in_files(entities)).isdisjoint(names)

    def limited(self, pattern: str) -> list[str]:
        """Names of the hosts that `--limit pattern` leaves."""
        try:
            self._inventory.subset(pattern)
            return [host.name for host in self._inventory.get_hosts("all")]
        except AnsibleError as error:
            raise InventoryRefusal(
                reason(error), "--limit", "Ansible takes a host, a group, or a pattern of them."
            ) from error
        finally:
            self._inventory.subset(None)

    def groups(self) -> dict[str, list[str]]:
        """Hosts of our groups, with those of child groups, in the order in which they are written."""
        groups = self._inventory.groups
        return {name: _hosts_of(groups[name]) if name in groups else [] for name in GROUPS}

    def own_groups(self) -> list[str]:
        """Groups of the user that have hosts."""
        groups = self._inventory.groups.items()
        return [str(name) for name, group in groups if name not in _NOT_OWN and _hosts_of(group)]

    def stated(self) -> dict[str, Any]:
        """What the inventory's own files state, no value templated or decrypted."""
        inventory = self._inventory
        return {
            "hosts": {str(name): _own_variables(host.vars) for name, host in inventory.hosts.items()},
            "groups": {
                str(name): {
                    "hosts": [str(host.name) for host in group.hosts],
                    "children": sorted(str(child.name) for child in group.child_groups),
                    "vars": _own_variables(group.vars),
                }
                for name, group in inventory.groups.items()
            },
        }

    def services(self, keys: set[str], model: str) -> dict[str, dict[str, Any]]:
        """Groups that set `model` of their own: hosts in order, and the group's values of `keys`.

        A host may be in several: its own variables do not distinguish them. Where there is a head, the
        inventory is one service and has none of these.
        """
        if "head" in self._inventory.groups and _hosts_of(self._inventory.groups["head"]):
            return {}
        services = {}
        for name, group in self._inventory.groups.items():
            if name in _NOT_OWN or model not in self._of_group(group):
                continue
            if hosts := _hosts_of(group):
                services[str(name)] = self._service(group, hosts, keys)
        order = {place[0]: number for number, place in reversed(list(enumerate(self.host_lines())))}
        return dict(sorted(services.items(), key=lambda item: order.get(item[0], len(order))))

    def _service(self, group: Group, hosts: list[str], keys: set[str]) -> dict[str, Any]:
        variables: dict[str, Any] = {}
        for layer in sorted([*group.get_ancestors(), group], key=lambda layer: (layer.depth, layer.priority)):
            variables = combine_vars(variables, self._of_group(layer))
        variables = combine_vars(variables, self._extra)
        where = {str(key): self._where(key, value) for key, value in variables.items()}
        host = self._inventory.get_host(hosts[0])
        templar = Templar(loader=self._loader, variables=self._variables.get_vars(host=host) | variables)
        values = self._values(templar, variables, where, keys)
        alone = [item for name in hosts for item in self._inventory.get_host(name).get_vars().items()]
        places = {str(key): self._where(key, value) for key, value in alone if key in keys}
        return {"hosts": hosts, "values": values, "where": where, "on_hosts": places}

    def _of_group(self, group: Group) -> dict[str, Any]:
        """Variables of the group itself, from the inventory and from group_vars."""
        variables: dict[str, Any] = combine_vars(group.get_vars(), self._in_files([group]))
        return variables

    def _in_files(self, entities: list[Any]) -> Any:
        """Variables of groups and hosts in group_vars and host_vars."""
        try:
            return get_vars_from_inventory_sources(self._loader, self._sources, entities, "all")
        except AnsibleError as error:
            raise refusal(error, str(self._sources[0])) from error

    def _values(
        self, templar: Templar, variables: Mapping[str, Any], where: Mapping[str, str | None], keys: set[str]
    ) -> dict[str, Any]:
        """Values of those of `keys` that there are and that can be read."""
        return {
            key: value
            for key in sorted(keys & variables.keys())
            if (value := self._tried(_value, templar, key, variables[key], where[key])) is not _REFUSED
        }

    def _tried(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns, or _REFUSED; `refused` has why, once for hosts that share a group."""
        try:
            return function(*arguments)
        except InventoryRefusal as error:
            if error.answer not in self.refused:
                self.refused.append(error.answer)
            return _REFUSED

    def host(self, name: str, keys: set[str], role_options: Mapping[str, Any]) -> dict[str, Any]:
        """Variables of a host: names and places of all, values of `keys`, and its login."""
        try:
            variables = self._variables.get_vars(host=self._inventory.get_host(name), stage="all")
        except AnsibleError as error:
            raise refusal(error, str(self._sources[0])) from error
        assignments = {key: value for key, value in variables.items() if key not in _MAGIC}
        where = {str(key): self._where(key, value) for key, value in assignments.items()}
        templar = Templar(loader=self._loader, variables=variables)
        of_roles = {}
        for key in sorted(role_options.keys() & assignments.keys()):
            variable = (key, assignments[key], where[key], role_options[key])
            if (value := self._tried(_role_variable, templar, *variable)) is not _REFUSED:
                of_roles[key] = value
        values = self._values(templar, assignments, where, keys)
        login = self._tried(_login, templar, variables, where)
        return {
            "where": where,
            "values": values,
            "of_roles": of_roles,
            "used": sorted(_names_in(assignments.values())),
            "urls": sorted({text for text in _texts([of_roles, values]) if "://" in text}),
            "login": {} if login is _REFUSED else login,
        }

    def _where(self, key: str, value: Any) -> str | None:
        # The place of a value is that of its last assignment; a truth value or null carries none. A name that
        # an extra variable assigns again is still the object that the inventory has.
        name = next((name for name in self._extra if name == key), key)
        for origin in (Origin.get_tag(value), Origin.get_tag(name)):
            if origin is not None and origin.path:
                return f"{origin.path}:{origin.line_num}" if origin.line_num else str(origin.path)
        return _EXTRA if key in self._extra else None

    def host_lines(self) -> list[tuple[str, str, str, int]]:
        """(group, host, file, number) for each host that a line of an INI file names, ranges taken apart."""
        plugin = inventory_loader.get("ansible.builtin.ini")
        lines: list[tuple[str, str, str, int]] = []
        for path in _ini_files(self._sources):
            group, kind, plugin._origin = "ungrouped", None, Origin(path=str(path))
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
                text = line.strip()
                if not text or text.startswith(("#", ";")):
                    continue
                if match := _SECTION.match(text):
                    group, kind = match.group(1), match.group(2)
                elif kind in (None, "hosts"):
                    names, _, _ = plugin._parse_host_definition(text)
                    lines += [(group, str(name), str(path), number) for name in names]
        return lines


def _own_variables(variables: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): repr(value) for name, value in variables.items() if name not in _MAGIC}


def _hosts_of(group: Group) -> list[str]:
    """Depth first: Ansible's own order of grandchildren follows the hashes of their names."""
    names = [host.name for host in group.hosts]
    for child in group.child_groups:
        names += _hosts_of(child)
    return list(dict.fromkeys(str(name) for name in names))


def _ini_files(sources: Iterable[str]) -> Iterator[Path]:
    for source in map(Path, sources):
        files = sorted(source.iterdir()) if source.is_dir() else [source]
        for path in files:
            if path.is_file() and kind_of(path) == "ini":
                yield path


def _value(templar: Templar, key: str, value: Any, where: str | None) -> Any:
    try:
        return _plain(templar.template(value))
    except AnsibleError as error:
        if is_vault(error):
            raise vaulted(key, where) from error
        raise InventoryRefusal(
            f"{key}: {reason(error)}", where, "Define what the template names, in the inventory or with -e."
        ) from error


def _plain(value: Any) -> Any:
    """The value without Ansible's tags, decrypted."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return str(value)


def _role_variable(
    templar: Templar, key: str, value: Any, where: str | None, option: Mapping[str, Any]
) -> Any:
    """A role's variable in the type of its argument specification; None where it needs facts.

    What the specification refuses is refused.
    """
    try:
        plain_value = _plain(templar.template(value))
    except AnsibleError as error:
        if is_vault(error):
            raise vaulted(key, where) from error
        if isinstance(error, AnsibleUndefinedVariable):  # it names facts, which are there when the role runs
            return None
        raise InventoryRefusal(f"{key}: {reason(error)}", where) from error
    sources = option.get("sources")
    if sources and str(plain_value) not in sources and "/" not in str(plain_value):
        raise InventoryRefusal(
            f"{key}={plain_value} is not a source of packages",
            where,
            f"It is one of {', '.join(sources)}, or the URL of a mirror.",
        )
    result = ArgumentSpecValidator({key: dict(option["spec"])}).validate({key: plain_value})
    if result.error_messages:
        raise InventoryRefusal(
            "; ".join(result.error_messages), where, f"See `{key}` of role {option['role']}."
        )
    return _plain(result.validated_parameters[key])


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def _names_in(values: Iterable[Any]) -> set[str]:
    """Names that are in templates: a variable that another one uses is not a misspelt setting."""
    expressions = [expression for text in _texts([*values]) for expression in _EXPRESSION.findall(text)]
    return {name for expression in expressions for name in _NAME.findall(expression)}


def _login(templar: Templar, variables: Mapping[str, Any], where: Mapping[str, str | None]) -> dict[str, Any]:
    """What Ansible's ssh and sudo plugins take from variables, environment and ansible.cfg for this host."""
    ssh, ssh_origins = _options(templar, connection_loader, "connection", "ssh", variables, where)
    sudo, _ = _options(templar, become_loader, "become", "sudo", variables, where)

    def variable(name: str, default: Any) -> Any:
        return _value(templar, name, variables[name], where.get(name)) if name in variables else default

    become = variable("ansible_become", True)
    try:
        becomes = boolean(become)
    except TypeError as error:
        raise InventoryRefusal(
            f"ansible_become={become} is neither true nor false", where.get("ansible_become")
        ) from error
    return {
        "connection": str(variable("ansible_connection", C.DEFAULT_TRANSPORT)).rpartition(".")[2],
        "host": ssh["host"],
        "port": ssh["port"],
        "user": ssh["remote_user"],
        "private_key": ssh["private_key_file"],
        "password": ssh["password"],
        "password_mechanism": ssh["password_mechanism"],
        "ssh_args": "" if ssh_origins["ssh_args"] == "default" else ssh["ssh_args"],
        "ssh_more_args": f"{ssh['ssh_common_args'] or ''} {ssh['ssh_extra_args'] or ''}".strip(),
        "host_key_checking": ssh["host_key_checking"],
        "become": becomes,
        "become_method": str(variable("ansible_become_method", C.DEFAULT_BECOME_METHOD)).rpartition(".")[2],
        "become_user": sudo["become_user"],
        "become_exe": sudo["become_exe"],
        "become_flags": sudo["become_flags"],
        "become_password": sudo["become_pass"],
    }


def _options(
    templar: Templar,
    loader: Any,
    kind: str,
    name: str,
    variables: Mapping[str, Any],
    where: Mapping[str, str | None],
) -> tuple[dict[str, Any], dict[str, Any]]:
    loader.get(name, class_only=True)  # makes its options known
    names = C.config.get_plugin_vars(kind, name)
    values = {key: _value(templar, key, variables[key], where.get(key)) for key in names if key in variables}
    for key in ("ansible_port", "ansible_ssh_port"):
        if key in values and not _is_port(values[key]):
            raise InventoryRefusal(
                f"{key}={values[key]} is not a port number",
                where.get(key),
                f"Write a number from 1 to 65535, for example {key}=22, or remove it.",
            )
    try:
        options, origins = C.config.get_plugin_options_and_origins(kind, name, variables=values)
    except AnsibleError as error:
        raise InventoryRefusal(reason(error)) from error
    return {key: _plain(value) for key, value in options.items()}, origins


def _is_port(value: Any) -> bool:
    text = str(value)
    return text.isascii() and text.isdigit() and 1 <= int(text) <= 65535


def read(request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a request of reading.py: `inventories`, `extra_vars`, and the names that are `wanted`.

    It may have `prefix`, `service_names`, `role_options`, `limit`, and `texts`: contents by path.
    """
    init_plugin_loader()
    reader = _Reader(request["inventories"], request["extra_vars"], request.get("texts", {}))
    groups = reader.groups()
    prefix: str = request.get("prefix", "")
    if not reader.has(prefix + name for name in request["wanted"]):
        prefix = ""
    services = reader.services({prefix + name for name in request.get("service_names", ())}, f"{prefix}model")
    listed = [*groups.values(), *(service["hosts"] for service in services.values())]
    names = list(dict.fromkeys(name for members in listed for name in members))
    keys = {prefix + name for name in request["wanted"]}
    return {
        "groups": groups,
        "own_groups": reader.own_groups(),
        "services": services,
        "lines": reader.host_lines(),
        "stated": reader.stated(),
        "hosts": {name: reader.host(name, keys, request.get("role_options", {})) for name in names},
        "limited": None if (limit := request.get("limit")) is None else reader.limited(limit),
        "prefix": prefix,
        "refused": reader.refused,
    }


def main() -> None:
    """JSON from stdin to JSON on stdout; what Ansible or its plugins print goes to stderr."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        reply = read(json.load(sys.stdin))
    except InventoryRefusal as refused:
        reply = {"error": refused.answer}
    with answer:
        json.dump(reply, answer)


if __name__ == "__main__":
    main()
