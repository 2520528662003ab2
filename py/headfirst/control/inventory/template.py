"""The inventory that `deploy init` writes, from templates/inventory.ini.j2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from headfirst.collection import data_dir
from headfirst.common.errors import InputError
from headfirst.control.inventory.address import is_ipv4, this_machine
from headfirst.control.inventory.login import LOCALHOST

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_NUMERIC = re.compile(r"[0-9.]+")
_EXAMPLES = "Examples: 192.0.2.11, node1=192.0.2.11"


@dataclass(frozen=True)
class HostAddress:
    """A server to list; `comment` is about it, `variables` are on its line. `local`: this machine."""

    name: str
    address: str
    comment: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    local: bool = False

    @classmethod
    def parse(cls, text: str, number: int, *, labelled: bool = False) -> HostAddress:
        """`192.0.2.11`, `name=192.0.2.11`, `localhost` or a DNS name; without a name it is `node<number>`.

        With `labelled` a DNS name without a name of its own is called by its first label.
        """
        name, _, address = text.rpartition("=")
        if labelled and not name and address not in LOCALHOST and not _NUMERIC.fullmatch(address):
            name = address.partition(".")[0]
        name, local = name or f"node{number}", address in LOCALHOST
        if local:
            address = this_machine()
        if not _HOST_NAME.fullmatch(name) or not _HOST_NAME.fullmatch(address):
            raise InputError(f"{text!r} is not a server's address", hint=_EXAMPLES)
        if _NUMERIC.fullmatch(address) and not is_ipv4(address):
            raise InputError(f"{address} is not an IPv4 address", hint=_EXAMPLES)
        return cls(name, address, local=local)


@dataclass(frozen=True)
class ServiceLines:
    """A service to write: its hosts, and the lines under [NAME:vars]."""

    name: str
    hosts: list[HostAddress]
    lines: list[str]


@dataclass(frozen=True)
class Answers:
    """What `deploy init` asks for.

    `layout` are the lines of the model and of how it is served, `services` those of several models; where
    both are empty the plan decides.
    """

    hosts: list[HostAddress]
    user: str | None
    private_key: str | None
    model: str | None
    model_source: str
    weights_dir: str
    # Variables of all hosts: gpus, gpu, nic, hca, ib_gid_index, engine_device.
    common: Mapping[str, str] = field(default_factory=dict)
    engine: str | None = None
    trust_remote_code: bool = False
    layout: list[str] = field(default_factory=list)
    services: list[ServiceLines] = field(default_factory=list)


def render_inventory(answers: Answers, path: Path) -> str:
    """Text of the inventory file for `path`."""
    if not answers.hosts:
        raise InputError("no server is given", hint="Example: --host 192.0.2.11 --host 192.0.2.12")
    environment = Environment(  # noqa: S701 - an INI file, not HTML
        loader=FileSystemLoader(data_dir("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("inventory.ini.j2").render(**asdict(answers), path=path)
