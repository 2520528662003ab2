"""Through which proxy a host reaches what is outside of the cluster, and what it reaches without. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.plan.types import Outbound

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def of_host(cluster: Cluster, host: Host) -> Outbound | None:
    """The proxies of a host. Programs read no_proxy in different ways: it has exact names and addresses."""
    if host.outbound is None:
        return None
    names = [*host.outbound.exceptions, *_LOOPBACK]
    for other in cluster.hosts:
        names += [other.address, *other.weights_addresses, other.login.address, other.name]
    names += [name.removeprefix("*") for name in (cluster.proxy_names if cluster.has_proxy else ())]
    return Outbound(
        host=host.name,
        http_proxy=host.outbound.http,
        https_proxy=host.outbound.https,
        no_proxy=list(dict.fromkeys(names)),
        has_login=host.outbound.login is not None,
    )


def variables(cluster: Cluster, host: Host) -> dict[str, str]:
    """Environment of what asks outside, but for the variables that are secret."""
    if (planned := of_host(cluster, host)) is None:
        return {}
    urls = {} if planned.has_login else _urls(planned)
    return urls | {"no_proxy": ",".join(planned.no_proxy)}


def secret_variables(cluster: Cluster, host: Host) -> dict[str, str]:
    """The rest of that environment: URLs of proxies with the login that they ask for."""
    planned = of_host(cluster, host)
    if planned is None or host.outbound is None or host.outbound.login is None:
        return {}
    user, _, password = host.outbound.login.partition(":")
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@"
    return {name: url.replace("://", f"://{login}") for name, url in _urls(planned).items()}


def _urls(planned: Outbound) -> dict[str, str]:
    """In lower case: apt and curl read no other form of http_proxy."""
    urls = {"http_proxy": planned.http_proxy, "https_proxy": planned.https_proxy}
    return {name: url for name, url in urls.items() if url}


def notes(cluster: Cluster) -> Iterator[str]:
    """What of the settings has no effect, or not everywhere."""
    for name in ("no_proxy", "http_proxy_login_file"):
        if name in cluster.given and not any(host.outbound for host in cluster.hosts):
            yield f"{cluster.given[name] or 'extra variables (-e)'}: {name} has no effect without http_proxy"
    exceptions = {name for host in cluster.hosts if host.outbound for name in host.outbound.exceptions}
    if networks := sorted(name for name in exceptions if "/" in name):
        yield f"no_proxy={','.join(networks)}: only Docker, Podman and pip read networks; add the addresses"
