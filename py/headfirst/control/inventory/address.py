"""The IPv4 address at which the other ranks reach a host, where the inventory gives a name."""

from __future__ import annotations

import ipaddress
import socket

from headfirst.common.errors import InputError
from headfirst.control.live.ssh_access import openssh
from headfirst.decide.cluster.login import HostAccess


def address_of(name: str, login: HostAccess, where: str | None) -> str:
    """ansible_host as an IPv4 address: as it stands, through ssh's configuration, or resolved here.

    Of this machine, where there is none, that of its default route. Raises InputError where that is no
    address which other hosts can use.
    """
    if login.local and not (is_ipv4(login.address) and is_reachable(login.address)):
        return this_machine()
    if is_ipv4(login.address):
        return login.address
    hint = f"Write the address that the other nodes reach: `{name} … address=192.0.2.11`."
    try:
        settings = openssh.settings([*login.options, *login.more_options, login.address])
        target = openssh.value_of(settings, "hostname", login.address)
    except openssh.BadOptionError as error:
        raise InputError(f"ssh refuses the options of {name}: {error}", where=where) from None
    if is_ipv4(target):
        return target
    try:
        answers = socket.getaddrinfo(target, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise InputError(
            f"{name} has no address: {target} does not resolve to an IPv4 address on this machine",
            where=where,
            hint=f"{hint} Or add the name on this machine (/etc/hosts, DNS).",
        ) from None
    addresses = sorted({str(answer[4][0]) for answer in answers})
    if len(addresses) > 1:
        raise InputError(f"{target} resolves to {', '.join(addresses)}", where=where, hint=hint)
    if not is_reachable(addresses[0]):
        raise InputError(
            f"{target} resolves to {addresses[0]} here: neither other nodes nor clients reach that address",
            where=where,
            hint=f"The machine that `deploy` runs on: `{name} ansible_connection=local`. Another one: the "
            f"address that the other nodes reach, `{name} ansible_host=192.0.2.11`.",
        )
    return addresses[0]


def this_machine() -> str:
    """The IPv4 address from which this machine sends to others; 127.0.0.1 where it has no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # of a datagram socket: chooses the route, and sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def is_reachable(address: str) -> bool:
    """Whether other hosts can send to the IPv4 address."""
    parsed = ipaddress.IPv4Address(address)
    return not (parsed.is_loopback or parsed.is_unspecified or parsed.is_multicast)


def is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True
