"""What ssh or sudo printed about a host → the error that a person reads."""

from __future__ import annotations

import re

from headfirst.common.errors import InputError, NotReadyError, UnreachableError
from headfirst.control.live.ssh_access import openssh
from headfirst.control.live.ssh_access.access import HostAccess
from headfirst.control.live.ssh_access.host_troubles import NOT_READY, UNREACHABLE, Rule


def unreachable(access: HostAccess, said: str) -> NotReadyError:
    """The error for a host that no command could be run on; `said` is what ssh (or paramiko) reported."""
    if (known := _from_rules(access, said, UNREACHABLE)) is not None:
        return UnreachableError(known.what, where=known.where, hint=known.hint)
    by_hand = f"Try: {access.ssh_command('true')}"
    return not_ready(access, said) or UnreachableError(
        f"the host does not answer on SSH: {said}", where=access.host, hint=by_hand
    )


def bad_options(access: HostAccess, said: str) -> InputError:
    """The error for options or a configuration that ssh refuses."""
    return InputError(
        f"ssh refuses its options: {said}",
        where=access.host,
        hint="Correct ansible_ssh_common_args, ansible_ssh_extra_args or ansible_ssh_args in the inventory, "
        "or ~/.ssh/config.",
    )


def no_way(access: HostAccess, through: str, said: str) -> NotReadyError:
    """The error for a jump host or a proxy command that does not lead to the host."""
    last = (said.splitlines() or ["it printed nothing"])[-1]
    return UnreachableError(
        f"{access.address} cannot be reached through {through}: {last}",
        where=access.host,
        hint=f"Try: {access.ssh_command('true')}",
    )


def not_ready(access: HostAccess, said: str) -> NotReadyError | None:
    """The error for a host that answers but lacks sudo, Python or disk space; None: it is something else."""
    return _from_rules(access, said, NOT_READY)


def _from_rules(access: HostAccess, said: str, rules: tuple[Rule, ...]) -> NotReadyError | None:
    rule = next((rule for rule in rules if rule.pattern.search(said)), None)
    if rule is None:
        return None
    words = _words(access, said)
    return NotReadyError(rule.what.format(**words), where=access.host, hint=rule.fix.format(**words))


def _words(access: HostAccess, said: str) -> dict[str, str]:
    """What a rule's sentences may name. ssh's own message names the port and the key that it used."""
    port = str(access.port or _found(r"port (\d+)", said) or 22)
    key = access.private_key or _found(r"(?:no such identity: |Load key \"|for ')([^:\"']+)", said)
    return {
        "host": access.host,
        "address": access.address,
        "port": port,
        "key": str(key or "that ssh tries"),
        "key_name": access.address if port == "22" else f"[{access.address}]:{port}",
        "known_hosts": _known_hosts(access),
        "ssh": access.ssh_command("true"),
        "ssh_python": access.ssh_command("sudo", "apt-get", "install", "-y", "python3"),
        "ssh_df": access.ssh_command("df", "-h"),
    }


def _known_hosts(access: HostAccess) -> str:
    """The file to which ssh writes the keys of hosts."""
    try:
        listed = openssh.settings(access.ssh_words()).get("userknownhostsfile", [])
    except openssh.BadOptionError:
        listed = []
    return listed[0].split()[0] if listed else "~/.ssh/known_hosts"


def _found(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return match.group(1) if match else None
