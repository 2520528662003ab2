"""The inventory that `deploy init` writes, from templates/inventory.ini.j2."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from headfirst.collection import data_dir
from headfirst.errors import InputError

_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_NUMERIC = re.compile(r"[0-9.]+")


@dataclass(frozen=True)
class HostAddress:
    """A server to list."""

    name: str
    address: str

    @classmethod
    def parse(cls, text: str, number: int) -> HostAddress:
        """`192.0.2.11`, `name=192.0.2.11` or a DNS name; without a name it is `node<number>`."""
        name, _, address = text.rpartition("=")
        name = name or f"node{number}"
        for part in (name, address):
            if not _HOST_NAME.fullmatch(part):
                raise InputError(
                    f"{text!r} is not a server's address", hint="Examples: 192.0.2.11, node1=192.0.2.11"
                )
        if _NUMERIC.fullmatch(address):
            try:
                ipaddress.IPv4Address(address)
            except ValueError:
                raise InputError(
                    f"{address} is not an IPv4 address", hint="Examples: 192.0.2.11, node1=192.0.2.11"
                ) from None
        return cls(name, address)


@dataclass(frozen=True)
class Answers:
    """What `deploy init` asks for."""

    hosts: list[HostAddress]
    user: str
    private_key: str | None
    gpus: int
    gpu: str
    model: str
    model_source: str
    weights_dir: str
    nic: str | None
    hca: str | None


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
