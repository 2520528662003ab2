"""Ray's start order with the real Ray and the scripts that the engines' ranks run, on two network namespaces.

Each node has a process tree, a /tmp/ray and a /dev/shm of its own, as a container has.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import engine_sites
import pytest
from headfirst.common.errors import InputError
from headfirst.decide import engines
from headfirst.decide.engines.base import LaunchRequest
from headfirst.decide.engines.layout import Layout
from netns import Lan
from sglang_launches import ONE

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2"
)

NODE = [
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c"),
    'mkdir -p /tmp/ray; mount -t tmpfs tmpfs /tmp/ray; mount -t tmpfs -o size=1g tmpfs /dev/shm; exec "$@"',
    "node",
]
# Takes the engine's place: it finds the cluster as LMDeploy and vLLM do, and reserves a GPU of every node.
SERVE = """
import os, ray
ray.init(log_to_driver=False)
print("alive:", sum(node["Alive"] for node in ray.nodes()))
group = ray.util.placement_group([{"GPU": 1}, {"GPU": 1}], strategy="PACK")
ray.get(group.ready(), timeout=60)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as On
@ray.remote(num_cpus=0, num_gpus=0.01)
def place():
    return ray.util.get_node_ip_address(), os.environ["ON_NODE"]
places = [place.options(scheduling_strategy=On(group, number)).remote() for number in range(2)]
print(sorted(ray.get(places, timeout=60)))
"""
STRANGER = """
import ray
ray.init(log_to_driver=False)
print(ray.get(ray.remote(lambda: "code ran").remote(), timeout=30))
"""


def request(lan: Lan, rank: int, config: Path) -> LaunchRequest:
    hosts = {"head_address": lan.addresses[0], "address": lan.addresses[rank], "nic": None}
    return replace(ONE, layout=Layout(2), nodes=2, rank=rank, **hosts, config_file=str(config), runtime="ray")


def with_ray() -> list[str]:
    """The engines that can run over Ray."""
    asked = request(_Addresses(), 0, Path("/none"))  # type: ignore[arg-type]
    found = []
    for name in engines.names():
        with suppress(InputError):
            command = engines.get(name).launch(asked).command
            found += [name] if "ray-head" in command else []
    return found


class _Addresses:
    addresses = ("192.0.2.1", "192.0.2.2")


def script(name: str, asked: LaunchRequest, serve: Sequence[str]) -> list[str]:
    """The command of a rank's container, with `serve` in the engine's place."""
    launch = engines.get(name).launch(asked)
    command = [*([launch.entrypoint] if launch.entrypoint else []), *launch.command]
    if asked.rank > 0:
        return command
    return [*command[: command.index(str(asked.config_file)) + 1], *serve]


@pytest.fixture
def lan() -> Iterator[Lan]:
    with Lan(2, "1gbit") as found:
        yield found


def start(lan: Lan, rank: int, argv: Sequence[str], log: Path, **more: str) -> subprocess.Popen[bytes]:
    path = f"{engine_sites.ray()}{os.pathsep}{os.environ['PATH']}"
    with log.open("wb") as out:
        return lan.run(
            rank,
            [*NODE, *argv],
            env=os.environ | {"ON_NODE": f"node{rank}", "PATH": path} | more,
            stdout=out,
            stderr=subprocess.STDOUT,
        )


@pytest.mark.parametrize("name", with_ray())
def test_the_head_starts_the_engine_when_all_nodes_have_joined(lan: Lan, name: str, tmp_path: Path) -> None:
    config, logs = tmp_path / "engine.yaml", [tmp_path / "head.log", tmp_path / "worker.log"]
    config.write_text("api-key: sekrit\n", encoding="utf-8")
    asked = request(lan, 0, config)
    worker = start(lan, 1, script(name, replace(asked, rank=1, address=lan.addresses[1]), []), logs[1])
    time.sleep(2)  # the worker comes first and waits
    assert worker.poll() is None
    head = start(lan, 0, script(name, asked, ["python3", "-c", SERVE]), logs[0])
    assert head.wait(300) == 0, logs[0].read_text()
    printed = logs[0].read_text()
    assert "Ray: 2 of 2 nodes have joined" in printed
    assert "alive: 2\n" in printed
    assert f"[('{lan.addresses[0]}', 'node0'), ('{lan.addresses[1]}', 'node1')]" in printed
    assert "waiting for the head" in logs[1].read_text()
    # The head's container has ended: the worker's ends too, so that both can come back together.
    assert worker.wait(120) != 0


@pytest.mark.parametrize("name", with_ray()[:1])
def test_a_stranger_runs_no_code(lan: Lan, name: str, tmp_path: Path) -> None:
    config = tmp_path / "engine.yaml"
    config.write_text("api-key: sekrit\n", encoding="utf-8")
    alone = replace(request(lan, 0, config), nodes=1)
    head_log, log = tmp_path / "head.log", tmp_path / "stranger.log"
    head = start(lan, 0, script(name, alone, ["sleep", "600"]), head_log)
    deadline = time.monotonic() + 300
    while "1 of 1 nodes" not in head_log.read_text():
        assert time.monotonic() < deadline
        assert head.poll() is None
        time.sleep(0.5)
    address = f"{lan.addresses[0]}:5000"
    for more in ({}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}):
        stranger = start(lan, 1, ["python3", "-c", STRANGER], log, RAY_ADDRESS=address, **more)
        assert stranger.wait(120) != 0
        assert "code ran" not in log.read_text()
        assert "uthenticat" in log.read_text()
