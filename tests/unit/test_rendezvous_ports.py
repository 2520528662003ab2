"""The ports at which ranks meet are closed to strangers without a setting; see docs/security.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils.host_firewall import normal_ports
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.role_vars import HostVars
from headfirst.control.deployment.running.role_vars.hosts import hardware_vars

SECURITY = Path(__file__).resolve().parents[2] / "docs" / "security.md"
INVENTORY = """[head]
node1 ansible_host=192.0.2.11 gpus=8 gpu=A100-80G nic=eth0 hca=none
{workers}
[all:vars]
model=deepseek-ai/DeepSeek-R1
model_source=modelscope
{settings}
"""
WORKER = "[workers]\nnode2 ansible_host=192.0.2.12 gpus=8 gpu=A100-80G nic=eth0 hca=none\n"
PAGE = "[webui]\npage ansible_host=192.0.2.15\n\n[monitoring]\npage\n"
EVERYTHING = "proxy=true\nprefill_replicas=1\ndecode_replicas=1\n"


def variables(folder: Path, workers: str, settings: str) -> HostVars:
    path = folder / "cluster.ini"
    path.write_text(INVENTORY.format(workers=workers, settings=settings))
    prepared = prepare([path], [], probe=False)
    return hardware_vars(prepared.cluster, prepared.plan)


def closed(folder: Path, workers: str, settings: str) -> dict[str, list[str]]:
    found = variables(folder, workers, settings)
    return {host: given["host_tuning_rendezvous_ports"] for host, given in found.items()}


@pytest.mark.parametrize(
    ("settings", "ports"),
    [
        ("", ["5000"]),
        ("dist_port=25000", ["25000"]),
        ("engine_args=--enable-dp-attention --dp-size 2", [str(port) for port in range(5000, 5007)]),
    ],
)
def test_only_the_head_of_several_ranks_has_them(tmp_path: Path, settings: str, ports: list[str]) -> None:
    assert closed(tmp_path, WORKER, settings) == {"node1": ports, "node2": []}


def test_a_rank_alone_meets_nobody(tmp_path: Path) -> None:
    assert closed(tmp_path, "", "") == {"node1": []}


def test_the_kernels_ports_stay_open_unless_they_are_named(tmp_path: Path) -> None:
    """What docs/security.md gives as open, and the setting that closes it."""
    assert not [port for port in closed(tmp_path, WORKER, "")["node1"] if int(port) >= 22000]
    setting = 'host_tuning_closed_ports=["22000-29999","32768-60999"]'
    assert setting in SECURITY.read_text(encoding="utf-8")
    assert closed(tmp_path, WORKER, setting)["node1"] == ["5000"]  # the role adds its own variable's ports
    assert normal_ports(["22000-29999", "32768-60999"]) == [(22000, 29999), (32768, 60999)]


def test_the_page_names_each_port_that_members_alone_reach(tmp_path: Path) -> None:
    """Rows of "What listens where" that are closed to strangers: the ports that role host_tuning closes."""
    workers = "".join(
        WORKER.replace("node2", f"node{n}").replace("192.0.2.12", f"192.0.2.1{n}") for n in (2, 3, 4)
    )
    hosts = variables(tmp_path, workers + PAGE, EVERYTHING).values()
    names = ("host_tuning_rendezvous_ports", "headfirst_proxied_ports")
    ports = {int(port.partition("-")[0]) for host in hosts for name in names for port in host[name]}
    page = SECURITY.read_text(encoding="utf-8")
    rows = page.partition("## What listens where\n")[2].partition("\n\n")[0].splitlines()[2:]
    # Where the host has rules by cgroup, ports of no number are closed, too.
    stated = [row for row in rows if "open only to the cluster's hosts" in row and "by cgroup" not in row]
    assert ports == {
        int(port) for row in stated for port in re.findall(r"(\d+) (?:\(|to )", row.split("|")[1])
    }
