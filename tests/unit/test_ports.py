"""No two programs of a host have the same port: those of the settings, and those that engines take beside."""

from __future__ import annotations

from pathlib import Path

import pytest
from headfirst.common.errors import InputError
from headfirst.control.deployment.prepare import prepare
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.plan.types import Plan

pytestmark = pytest.mark.usefixtures("no_hub")

ENGINE = ServiceSettings().engine_port
MODEL = "Qwen/Qwen3-30B-A3B-Instruct-2507"
ALL = f"[all:vars]\nmodel={MODEL}\ngpu=H100-80G\ngpus=8\nnic=eth0\nhca=none\n"
ONE = "[head]\nn1 ansible_host=192.0.2.1\n"
TWO = ONE + "[workers]\nn2 ansible_host=192.0.2.2\n"
GROUPS = "engine_args='--enable-dp-attention --dp-size 2'\n"
VLLM = "engine=vllm\nengine_args='--data-parallel-size 2'\n"
LMDEPLOY = "engine=lmdeploy\nengine_args='--dp 2'\n"


def plan(folder: Path, hosts: str, settings: str) -> Plan:
    path = folder / "cluster.ini"
    path.write_text(f"{hosts}{ALL}{settings}")
    return prepare([path], [], probe=False).plan


@pytest.mark.parametrize(
    ("hosts", "settings", "message", "hint"),
    [
        (TWO, GROUPS + "supervisor_port=5006\n", "after dist_port and supervisor_port .* 5006 on n1", ""),
        (TWO, GROUPS + "weights_port=5003\n", "after dist_port and weights_port have the same port 5003", ""),
        (TWO, GROUPS + "dist_port=5018\n", "after dist_port and supervisor_port", "dist_port=5170."),
        (TWO, GROUPS + "dist_port=65531\nwebui_port=65525\n", "after dist_port and webui_port", ""),
        (TWO, VLLM + "dist_port=5019\nengine_args='--data-parallel-size 1'\n", "", ""),
        (TWO, LMDEPLOY + "dist_port=5019\n", "after dist_port and supervisor_port", ""),
        (
            TWO,
            LMDEPLOY + f"grafana_port={ENGINE + 1}\n[monitoring]\nn1\n",
            "after engine_port and grafana_port",
            "",
        ),
        (
            TWO,
            LMDEPLOY + f"node_exporter_port={ENGINE + 1}\n[monitoring]\nn1\n",
            "after engine_port and node_exp",
            "",
        ),
        (
            ONE,
            GROUPS + f"webui_port={ENGINE + 235}\n",
            f"after engine_port and webui_port .* {ENGINE + 235} on n1",
            "",
        ),
        (ONE, GROUPS + "engine_port=65400\nwebui_port=65170\n", "after engine_port and webui_port", ""),
        (ONE, GROUPS + "supervisor_port=5003\n", "", ""),
        (ONE, "engine_args='--nccl-port 5020'\n", "--nccl-port in engine_args and supervisor_port", "5170."),
        (
            ONE,
            "replicas=2\nengine_args='--nccl-port 7000'\n",
            r"--nccl-port in engine_args \(replica 1\) and --nccl-port",
            "hosts of their own",
        ),
        (ONE, f"replicas=2\n{LMDEPLOY}", "after engine_port and engine_port", "hosts of their own"),
        (ONE, "replicas=2\nengine_port=65535\n", "would be 65536 on n1, and no port is above", "lower"),
        (ONE, "replicas=4\ndist_port=65400\n", "would be 65600 on n1, and no port is above", "lower"),
    ],
)
def test_ports_of_engines_are_compared(
    tmp_path: Path, hosts: str, settings: str, message: str, hint: str
) -> None:
    if not message:
        assert plan(tmp_path, hosts, settings)
        return
    with pytest.raises(InputError, match=message) as caught:
        plan(tmp_path, hosts, settings)
    assert caught.value.where
    assert hint in str(caught.value.hint)


def test_replicas_of_attention_groups_share_a_host(tmp_path: Path) -> None:
    """SGLang's ports follow the engine's by 233: those of a second replica would be those of the first."""
    replicas = plan(tmp_path, ONE, GROUPS + "replicas=2\n").services[0].replicas
    first, second = (replica.nodes[0].container.command for replica in replicas)
    assert "--dist-init-addr" not in first
    assert second[second.index("--dist-init-addr") + 1] == "127.0.0.1:5100"
    assert replicas[0].nodes[0].more_ports == list(range(ENGINE + 233, ENGINE + 240))
    assert (replicas[1].nodes[0].more_ports, replicas[1].rendezvous_ports) == ([], list(range(5100, 5107)))
