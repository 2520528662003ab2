"""What prevents rules of nftables by the cgroup of a socket, as module host_facts reports it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils import host_cgroups
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource
from headfirst.decide.hardware.facts import CgroupObstacle


class Host(HostSource):
    """A host below a folder, whose kernel takes the rules with these words; None: nft is not installed."""

    def __init__(
        self, root: Path, taken: Sequence[str] | None, files: Sequence[str], root_user: bool
    ) -> None:
        super().__init__(str(root))
        for file in files:
            path, _, text = file.partition(" ")
            (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            (root / path.lstrip("/")).write_text(text)
        self.taken, self.root_user = taken, root_user

    def run(self, *argv: str, stdin: str = "") -> str:
        if argv == ("nft", "--version"):
            return "" if self.taken is None else "nftables v1.0.6"
        may = self.root_user or "unshare" in argv
        return (
            "taken\n" if may and self.taken is not None and any(word in stdin for word in self.taken) else ""
        )


V2, NESTED = "/sys/fs/cgroup/cgroup.controllers cpu", "/sys/fs/cgroup/cgroup.type domain"
CGROUPFS = '/etc/docker/daemon.json {"exec-opts": ["native.cgroupdriver=cgroupfs"]}'
ALL = ("headfirst-trial",)


@pytest.mark.parametrize("root_user", [True, False])
@pytest.mark.parametrize(
    ("taken", "files", "driver", "version", "obstacle"),
    [
        (ALL, [V2], "systemd", "2", ""),
        (ALL, [V2], "", "", ""),  # Docker is installed later, with the distribution's settings
        (None, [V2], "systemd", "2", ""),  # so is nft
        (["trial {}"], [V2], "systemd", "2", "nftables"),
        (ALL, [], "", "", "cgroup-v1"),
        (ALL, [], "systemd", "1", "cgroup-v1"),
        (ALL, [V2, NESTED], "systemd", "2", "nested"),
        (ALL, [V2], "cgroupfs", "2", "cgroup-driver"),
        (ALL, [V2, CGROUPFS], "", "", "cgroup-driver"),
    ],
)
def test_what_prevents_rules_by_cgroup(
    tmp_path: Path,
    root_user: bool,
    taken: Sequence[str] | None,
    files: list[str],
    driver: str,
    version: str,
    obstacle: str,
) -> None:
    host = Host(tmp_path, taken, files, root_user)
    docker = {"cgroup_driver": driver, "cgroup_version": version}
    assert host_cgroups.obstacle(host, docker, 0 if root_user else 1000) == obstacle
    assert obstacle in get_args(CgroupObstacle) and {"", *host_cgroups.OBSTACLES} == set(
        get_args(CgroupObstacle)
    )


@pytest.mark.parametrize(("files", "obstacle"), [([], "no-rules"), ([V2, NESTED], "no-rules"), ([V2], "")])
def test_a_host_that_takes_no_rules_at_all(tmp_path: Path, files: list[str], obstacle: str) -> None:
    """Known to root alone. Where cgroups allow rules, the role that loads them reports the kernel."""
    docker = {"cgroup_driver": "", "cgroup_version": ""}
    found = [host_cgroups.obstacle(Host(tmp_path, [], files, True), docker, uid) for uid in (0, 1000)]
    assert found[0] == obstacle and "no-rules" not in found[1:]
