"""Logins of outbound proxies: files on this machine that `http_proxy_login_file` names; no plan has them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from headfirst.common.errors import InputError
from headfirst.control.inventory.local_files import local_file, private_file
from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.scrub import SHORTEST

SETTING = "http_proxy_login_file"
_FORM = "one line USER:PASSWORD"
_MOST_BYTES = 4096


def read(cluster: Cluster) -> Cluster:
    """The cluster whose hosts have the logins of their proxies. InputError for a file that cannot be used."""
    login_of = cache(lambda named: _login(cluster, named))

    def with_login(host: Host) -> Host:
        if host.outbound is None or host.outbound.login_file is None:
            return host
        return replace(host, outbound=replace(host.outbound, login=login_of(host.outbound.login_file)))

    known = cluster.replaced(with_login)
    logins = [host.outbound.login for host in known.hosts if host.outbound and host.outbound.login]
    passwords = {login.partition(":")[2] for login in logins}
    return replace(known, hidden=known.hidden | {text for text in passwords if len(text) >= SHORTEST})


def _login(cluster: Cluster, named: str) -> str:
    path, where = local_file(cluster, named), cluster.given.get(SETTING) or "extra variables (-e)"
    content = private_file(path, SETTING, where, _MOST_BYTES, _FORM)
    try:
        login = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeError:
        login = ""
    user, _, password = login.partition(":")
    if not (user and password and login.isprintable()):
        raise InputError(f"this is not {_FORM}", where=str(path), hint="Write the proxy's login so.")
    return login
