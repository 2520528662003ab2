"""`deploy rehearse` on lab nodes: dummies start, fail with their cause, and leave nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from headfirst.decide.cluster.settings import ServiceSettings
from readme_lab import INVENTORY, ROOT, Service, deploy, on_node, succeeds

pytestmark = [pytest.mark.lab, pytest.mark.replaces_the_service]
NODES = ("node1", "node2")
MODELS = "/var/lib/headfirst/models"
CONFIG = f"{MODELS}/headfirst-demo-bf16/config.json"
NAMED = "docker ps --all --quiet --filter name=^headfirst-rehearsal-"
IMAGE = "headfirst/sglang-cpu:0.5.23"
PORT = ServiceSettings().dist_port
WRONG = "engine_args='--attention-backend flashinfer'"


def rehearse(*options: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the only replica."""
    done = deploy("rehearse", options=["--json", *options])
    replica: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["replicas"][0]
    return done.returncode, replica


def left() -> list[str]:
    return [on_node(node, f"{NAMED}; ls /run/headfirst/rehearsals 2>/dev/null || true") for node in NODES]


def wait_for(count: int, seconds: float) -> float:
    """Seconds until so many nodes have a container of a rehearsal."""
    began = time.monotonic()
    while sum(bool(on_node(node, NAMED)) for node in NODES) != count:
        assert time.monotonic() - began < seconds
        time.sleep(0.5)
    return time.monotonic() - began


@pytest.fixture(scope="module")
def stopped(service: Service) -> None:
    """Nodes with the image and the weights, on which nothing serves."""
    assert deploy("down", options=["--plain"]).returncode == 0


@contextmanager
def blocked(target: str) -> Iterator[None]:
    """The worker does not get through to the head's rendezvous."""
    rule = f"INPUT --protocol tcp --dport {PORT} ! --source 127.0.0.0/8 --jump {target}"
    on_node("node1", f"iptables --insert {rule}")
    try:
        yield
    finally:
        on_node("node1", f"iptables --delete {rule}")


def test_nothing_starts_beside_ranks_that_serve(service: Service) -> None:
    code, replica = rehearse()
    assert code == 3
    assert (replica["state"], replica["why"]) == ("not rehearsed", "headfirst-engine serves here")
    assert left() == ["", ""]


def test_without_the_weights_all_ranks_start_and_answer(stopped: None) -> None:
    for node in NODES:
        on_node(node, f"mv {MODELS} {MODELS}.away")
    try:
        code, replica = rehearse()
    finally:
        for node in NODES:
            on_node(node, f"mv {MODELS}.away {MODELS}")
    assert code == 0, replica
    assert replica["state"] == "passed"
    assert list(replica["phases"])[:3] == ["container started", "starting", "joining the other ranks"]
    assert replica["found"]["notes"] == []
    assert left() == ["", ""]


def test_hosts_are_accepted_with_a_model_of_ours(stopped: None) -> None:
    code, replica = rehearse("--acceptance")
    assert (code, replica["state"], replica["service"]) == (0, "passed", "headfirst-acceptance")
    assert left() == ["", ""]


def test_a_wrong_argument_has_the_engines_own_words(stopped: None) -> None:
    code, replica = rehearse("-e", WRONG)
    assert code == 1
    assert "flashinfer" in replica["why"]
    assert replica["seconds"] < 120
    assert any("flashinfer" in log.read_text() for log in Path(replica["logs"]).glob("*rank0*"))
    assert left() == ["", ""]


@pytest.mark.slow
def test_a_missing_class_is_named(stopped: None) -> None:
    for node in NODES:
        on_node(node, f"cp {CONFIG} /root/kept.json; sed -i s/DeepseekV3For/NoSuchFor/ {CONFIG}")
    try:
        code, replica = rehearse()
    finally:
        for node in NODES:
            on_node(node, f"cp /root/kept.json {CONFIG}")
    assert code == 1
    assert "NoSuchForCausalLM" in replica["why"]


@pytest.mark.slow
def test_too_little_memory_is_named(stopped: None) -> None:
    code, replica = rehearse("-e", "engine_args='--max-total-tokens 2000000000'")
    assert code == 1
    assert replica["found"]["decisive"]["rule"] == "kernel-oom"
    assert left() == ["", ""]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "why", "limit"), [("REJECT", "Connection refused", 120), ("DROP", "no answer", 240)]
)
def test_a_firewall_is_named(stopped: None, target: str, why: str, limit: float) -> None:
    with blocked(target):
        code, replica = rehearse()
    assert code == 1
    assert replica["found"]["decisive"]["rule"] == "rendezvous-blocked"
    assert (replica["host"], replica["why"].rpartition(": ")[2]) == ("node2", why)
    assert replica["seconds"] < limit


@pytest.mark.slow
@pytest.mark.parametrize(("number", "limit"), [(signal.SIGKILL, 20), (signal.SIGSTOP, 100)])
def test_the_ranks_end_with_the_controller(stopped: None, number: int, limit: float) -> None:
    command = [str(ROOT / ".venv/bin/python"), "-m", "headfirst.control.cli.main", "rehearse", str(INVENTORY)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as controller:
        try:
            wait_for(2, 60)
            controller.send_signal(number)
            seconds = wait_for(0, limit)
        finally:
            controller.kill()
    print(f"ranks gone {seconds:.0f} s after signal {number}")
    assert left() == ["", ""]


@pytest.mark.slow
def test_down_removes_what_is_left(stopped: None) -> None:
    for node in NODES:
        on_node(
            node, "docker run --detach --name headfirst-rehearsal-r0 headfirst/sglang-cpu:0.5.23 sleep 600"
        )
        on_node(node, "mkdir --parents /run/headfirst/rehearsals/headfirst-rehearsal-r0")
    assert deploy("down", options=["--plain"]).returncode == 0
    assert left() == ["", ""]


@pytest.mark.slow
def test_strict_ends_up_while_the_weights_go_on_coming(stopped: None) -> None:
    for node in NODES:
        on_node(node, f"rm --recursive --force {MODELS}")
    # To hosts that had these weights before, they come too soon for a rehearsal.
    other = ["-e", "rehearse=strict", "-e", "weights_dir=/var/lib/headfirst/others"]
    slow = "tc qdisc replace dev eth0 root tbf rate 700kbit burst 16kbit latency 800ms"
    on_node("node1", slow)
    try:
        done = deploy("up", options=["--plain", *other, "-e", WRONG])
        assert done.returncode == 1, done.stdout[-2000:]
        assert "the rehearsal failed" in done.stderr
        assert "flashinfer" in done.stderr
        assert on_node("node2", "systemctl is-active headfirst-job-weights") == "active"
    finally:
        on_node("node1", "tc qdisc delete dev eth0 root")
    assert left() == ["", ""]
    succeeds("up", options=["--plain", *other])
