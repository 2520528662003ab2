"""The lab's own network: a bridge on this machine, with the subnet that the inventory gives."""

from __future__ import annotations

import ipaddress
import socket
import struct
from pathlib import Path

import docker
from docker.errors import APIError, NotFound
from docker.types import IPAMConfig, IPAMPool

from headfirst.common.errors import NotReadyError
from headfirst.control.lab.nodes import LABEL
from headfirst.control.lab.types import Lab

_HINT = "Choose another subnet (and addresses) for the lab nodes in the inventory, e.g. in 10.213.0.0/16."


def ensure(client: docker.DockerClient, lab: Lab) -> None:
    """Makes the lab's network where it is missing.

    Raises NotReadyError where the subnet overlaps one that this machine uses already.
    """
    try:
        network = client.networks.get(lab.network_name)
    except NotFound:
        _create(client, lab)
        return
    subnet = network.attrs["IPAM"]["Config"][0]["Subnet"]
    if subnet != lab.subnet:
        if network.attrs["Containers"]:
            raise NotReadyError(
                f"Lab {lab.name} runs on {subnet}, and the inventory now has {lab.subnet}.",
                hint="Stop it first: `deploy lab down`, then repeat the command.",
            )
        network.remove()
        _create(client, lab)


def remove(client: docker.DockerClient, lab: Lab) -> None:
    """Removes the lab's network if there is one."""
    try:
        client.networks.get(lab.network_name).remove()
    except NotFound:
        return


def _create(client: docker.DockerClient, lab: Lab) -> None:
    subnet = ipaddress.IPv4Network(lab.subnet)
    for device, route in routes(Path("/proc/net/route").read_text()):
        if route.overlaps(subnet):
            raise NotReadyError(
                f"The lab's subnet {lab.subnet} overlaps {route}, which {device} of this machine uses.",
                hint=_HINT,
            )
    pool = IPAMPool(subnet=lab.subnet, gateway=lab.gateway)
    try:
        client.networks.create(
            lab.network_name, driver="bridge", ipam=IPAMConfig(pool_configs=[pool]), labels={LABEL: lab.name}
        )
    except APIError as error:
        raise NotReadyError(f"The lab's network cannot be made: {error.explanation}.", hint=_HINT) from error


def routes(table: str) -> list[tuple[str, ipaddress.IPv4Network]]:
    """(device, network) of each route but the default ones, from the text of /proc/net/route."""
    networks = []
    for line in table.splitlines()[1:]:
        device, destination, _, _, _, _, _, mask, *_ = line.split()
        if int(mask, 16):
            pair = [socket.inet_ntoa(struct.pack("=I", int(value, 16))) for value in (destination, mask)]
            networks.append((device, ipaddress.IPv4Network(f"{pair[0]}/{pair[1]}")))
    return networks
