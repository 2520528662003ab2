"""The inventory that `deploy init` writes, from templates/inventory.ini.j2."""

from __future__ import annotations

import ipaddress
from dataclasses import asdict, dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from headfirst.collection import data_dir
from headfirst.errors import InputError


@dataclass(frozen=True)
class HostAddress:
    """A server to list."""

    name: str
    address: str

    @classmethod
    def parse(cls, text: str, number: int) -> HostAddress:
        """`192.0.2.11` or `name=192.0.2.11`; without a name it is `node<number>`."""
        name, _, address = text.rpartition("=")
        try:
            ipaddress.IPv4Address(address)
        except ValueError:
            raise InputError(
                f"{address!r} is no IPv4 address", hint="For example --host node1=192.0.2.11"
            ) from None
        return cls(name or f"node{number}", address)


@dataclass(frozen=True)
class Answers:
    """What `deploy init` asks."""

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
    """Text of the inventory file, to be written at `path`."""
    if not answers.hosts:
        raise InputError("no server is named", hint="For example --host 192.0.2.11 --host 192.0.2.12")
    environment = Environment(  # noqa: S701 - an INI file, not HTML
        loader=FileSystemLoader(data_dir("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("inventory.ini.j2").render(**asdict(answers), path=path)
