"""Whether nftables can match the ranks' sockets by the cgroup of their containers. Python 3.8+."""

from __future__ import annotations

import typing as t

from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource

ROOT = "/sys/fs/cgroup"
DAEMON = "/etc/docker/daemon.json"
OBSTACLES = {
    "cgroup-v1": "the host has cgroup v1",
    "nested": "the host is a container itself",
    "cgroup-driver": "its container runtime does not leave cgroups to systemd",
    "nftables": "its kernel or its nft cannot match a socket by its cgroup",
    "no-rules": "its kernel takes no rules of nftables",
}
EMPTY = "table inet headfirst-trial {}\n"
# system.slice is on every host that systemd has booted.
RULE = """\
table inet headfirst-trial {
  chain trial {
    type filter hook input priority filter
    socket cgroupv2 level 1 "system.slice" reject with icmpx type admin-prohibited
  }
}
"""


def obstacle(source: HostSource, docker: t.Dict[str, t.Any], uid: int) -> str:
    """What prevents rules by cgroup here, a key of OBSTACLES; "" for nothing.

    `docker` is what host_docker.gather returns; `uid` that of this login. What is not installed yet comes
    with the settings of its distribution and is no obstacle; where nft is missing, the role that loads the
    rules reports the kernel.
    """
    obstacle = _of_cgroups(source, docker)
    # Without an obstacle the role loads the rules, and reports the kernel that does not take them.
    refuses_all = obstacle and uid == 0 and source.run("nft", "--version") and not takes(source, (), EMPTY)
    return "no-rules" if refuses_all else obstacle


def _of_cgroups(source: HostSource, docker: t.Dict[str, t.Any]) -> str:
    names = source.names(ROOT)
    version = docker["cgroup_version"] or ("2" if "cgroup.controllers" in names else "1")
    if version != "2":
        return "cgroup-v1"
    # Only the root of all cgroups has no type. A container sees another root than kernels count levels from.
    if "cgroup.type" in names:
        return "nested"
    by_file = "" if "native.cgroupdriver=cgroupfs" in source.read(DAEMON).replace(" ", "") else "systemd"
    if (docker["cgroup_driver"] or by_file) != "systemd":
        return "cgroup-driver"
    return "nftables" if _refuses(source) else ""


def _refuses(source: HostSource) -> bool:
    """Whether the kernel takes an empty table and refuses the expression."""
    # A login without root has the right in a network of its own, where it may make one.
    for prefix in ((), ("unshare", "--map-root-user", "--net")):
        if takes(source, prefix, EMPTY):
            return not takes(source, prefix, RULE)
    return False


def takes(source: HostSource, prefix: t.Sequence[str], rules: str) -> bool:
    """Whether nft and the kernel take rules, which are not loaded; `prefix` is before nft's command."""
    argv = ("sh", "-c", '"$@" && echo taken', "nft", *prefix, "nft", "--check", "--file", "-")
    return "taken" in source.run(*argv, stdin=rules)
