"""One machine without sshd and without ssh: `deploy` on it serves on it, and every verb works."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from headfirst.control import demo
from headfirst.control.paths import cache_dir
from pristine import Pristine, local_folders, pristine

pytestmark = pytest.mark.lab
ROOT = Path(__file__).resolve().parents[2]
QUESTION = "Hello!"
# What the demo model needs beside what `deploy init` writes; the last section of the file is [all:vars].
MORE = """
model=/root/headfirst/py/headfirst/control/demo/checkpoint
engine_image_source=build
webui_image_source=build
served_model_name=headfirst-demo
shm_size=64m
ready_timeout=900
"""


def deploy(machine: Pristine, words: str, *, status: int = 0) -> str:
    """What `deploy` printed, started by a shell whose settings are not for the node."""
    code, printed = machine.run(
        f"cd headfirst && PYTHONPATH=/nowhere DOCKER_HOST=tcp://192.0.2.1:2375 ./deploy {words}", check=False
    )
    assert code == status, printed[-4000:]
    assert "SSH" not in printed or words.startswith("plan"), printed[-4000:]
    return printed


@pytest.fixture(scope="module")
def machine() -> Iterator[Pristine]:
    images = cache_dir("share", "images")  # what this machine has built of the same recipes
    with pristine(ROOT, {"/srv/images": images, **local_folders()}) as machine:
        machine.run("mkdir -p .cache/headfirst && cp -r /srv/images .cache/headfirst/")
        machine.run("git clone --quiet -c advice.detachedHead=false /srv/checkout.bundle headfirst")
        # Every installation of Debian has it; this root is smaller.
        machine.run("apt-get -qq update")
        machine.run("DEBIAN_FRONTEND=noninteractive apt-get -qq install -y iproute2 >/dev/null")
        machine.run("! command -v ssh && ! command -v sshd && ! command -v sudo")
        yield machine


@pytest.fixture(scope="module")
def inventory(machine: Pristine) -> str:
    deploy(machine, "init box.ini --model-source path </dev/null")
    machine.run(f"cat >>headfirst/box.ini <<'END'\n{MORE}END")
    return "box.ini"


@pytest.fixture(scope="module")
def up(machine: Pristine, inventory: str) -> str:
    return deploy(machine, f"up {inventory} --plain")


def test_init_writes_this_machine(machine: Pristine, inventory: str) -> None:
    address = machine.run("hostname --ip-address")[1].split()[0]
    line = f"node1 ansible_host={address} ansible_connection=local"
    assert line in machine.run(f"cat headfirst/{inventory}")[1].splitlines()


def test_before_up_every_verb_reports_that_nothing_is_there(machine: Pristine, inventory: str) -> None:
    assert "Docker is not installed" in deploy(machine, f"status {inventory}", status=3)
    assert "Docker is not installed" in deploy(machine, f"logs {inventory}", status=3)
    # With cgroup v1 it prints a warning, and exits with 1.
    assert "Ready" in deploy(machine, f"check {inventory} --plain || test $? = 1")


def test_up_serves(machine: Pristine, inventory: str, up: str) -> None:
    assert "The service is up." in up
    assert json.loads(deploy(machine, f"status {inventory} --json"))["ready"]
    answer = " ".join(deploy(machine, f"chat {inventory} '{QUESTION}'").split())
    assert demo.answers()[QUESTION] in answer


def test_the_verbs_of_a_running_service(machine: Pristine, inventory: str, up: str) -> None:
    assert "[rank 0 node1]" in deploy(machine, f"logs {inventory} --tail 5")
    deploy(machine, f"test {inventory} --only 'chat.*'")
    deploy(machine, f"events {inventory}")
    deploy(machine, f"diagnose {inventory}")
    deploy(machine, f"credentials {inventory} --json")


def test_a_second_run_changes_nothing(machine: Pristine, inventory: str, up: str) -> None:
    summary = json.loads(deploy(machine, f"up {inventory} --json").splitlines()[-1])
    assert summary["changed"] == 0


def test_down_leaves_what_deploy_needs(machine: Pristine, inventory: str, up: str) -> None:
    deploy(machine, f"down {inventory} --yes")
    assert "headfirst-engine" not in machine.run("docker ps --all --format '{{.Names}}'")[1]
    deploy(machine, f"status {inventory}", status=3)
    deploy(machine, f"plan {inventory}")
