"""Logins of outbound proxies: files on this machine that `http_proxy_login_file` names; no plan has them."""

from __future__ import annotations

from dataclasses import replace

from headfirst.common.errors import InputError
from headfirst.control.inventory.local_files import local_file, private_file
from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.scrub import SHORTEST

_FORM = "one line USER:PASSWORD"


def read(cluster: Cluster) -> Cluster:
    """The cluster whose hosts have the logins of their proxies. InputError for a file that cannot be used."""

    def with_login(host: Host) -> Host:
        if host.outbound is None or host.outbound.login_file is None:
            return host
        login = _login(cluster, host.outbound.login_file)
        return replace(host, outbound=replace(host.outbound, login=login))

    result = cluster.replaced(with_login)
    logins = [host.outbound.login or "" for host in result.hosts if host.outbound]
    passwords = {login.partition(":")[2] for login in logins}
    return replace(result, hidden=result.hidden | {text for text in passwords if len(text) >= SHORTEST})


def _login(cluster: Cluster, file: str) -> str:
    path, setting = local_file(cluster, file), "http_proxy_login_file"
    content = private_file(path, setting, cluster.given.get(setting) or "extra variables (-e)", 4096, _FORM)
    login = content.decode(errors="replace").removesuffix("\n").removesuffix("\r")
    user, _, password = login.partition(":")
    if not (user and password and login.isprintable()) or "\ufffd" in login:
        raise InputError(f"this is not {_FORM}", where=str(path), hint="Write the proxy's login so.")
    return login
