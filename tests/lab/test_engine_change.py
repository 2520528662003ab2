"""A change that fails leaves the version that served: wrong image, wrong flag, full GPU, a dying rank."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from bare_nodes import bare_nodes
from supervised import BIN, NAME, PORT, WITH_IMAGE, StandIns

pytestmark = pytest.mark.lab
HEAD = "10.213.97.11"

PLAY = """\
- hosts: "{{ ranks | default('all') }}"
  become: true
  gather_facts: false
  any_errors_fatal: true
  tasks:
    - ansible.builtin.include_role:
        name: headfirst.serving.engine
        tasks_from: "{{ entry | default('main') }}"
      vars:
        config: "/etc/headfirst/{{ name | default('headfirst-engine') }}.conf"
        engine_name: "{{ name | default('headfirst-engine') }}"
        engine_planned: "{{ planned | default([]) }}"
        engine_ranks: "{{ 2 if ranks | default('all') == 'all' else 1 }}"
        engine_rank: "{{ rank }}"
        engine_url: http://HEAD:PORT
        engine_model_name: "{{ says }}"
        engine_api_key: "{{ key }}"
        engine_config: {api-key: "{{ key }}"}
        engine_config_path: "{{ config }}"
        engine_ready_timeout: 60
        engine_stop_timeout: 5
        engine_container:
          image: "{{ image | default('headfirst/stand-in:1') }}"
          command: "{{ ['python3', '/srv/headfirst/stand_in_engine.py', '--rank', rank | string,
                        '--ranks', ansible_play_hosts_all | length | string, '--head', 'HEAD',
                        '--port', 'PORT', '--says', says, '--config', config] + (more | default([])) }}"
          network_mode: host
          restart_policy: unless-stopped
          volumes: "{{ ['/usr:/usr:ro', '/srv/headfirst:/srv/headfirst:ro']
                       + ([config ~ ':' ~ config ~ ':ro'] if rank | int == 0 else [])
                       + (mounts | default([])) }}"
""".replace("HEAD", HEAD).replace("PORT", str(PORT))


class Service(StandIns):
    """Two ranks of the stand-in on two nodes, changed with Ansible alone."""

    def apply(self, *options: str, **variables: Any) -> subprocess.CompletedProcess[str]:
        given = {"says": "one", "key": "sk-one", **variables}
        return self.play("play.yml", "-e", json.dumps(given), *options)

    def works(self, **variables: Any) -> str:
        done = self.apply(**variables)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr
        return done.stdout

    def fails(self, **variables: Any) -> str:
        done = self.apply(**variables)
        assert done.returncode != 0, done.stdout[-4000:]
        return done.stdout

    def inspect(self, node: int, what: str, name: str = NAME) -> str:
        return self.on(node, f"docker inspect --format '{what}' {name}")

    def ids(self) -> list[str]:
        return [self.inspect(node, "{{.Id}}") for node in (1, 2)]


@pytest.fixture(scope="module")
def lab_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("change")
    with bare_nodes("test-change", "10.213.97", 2, folder) as nodes:
        service = Service(nodes, folder, play=PLAY, site=WITH_IMAGE)
        done = service.play("site.yml")
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr
        yield service


@pytest.fixture
def service(lab_service: Service) -> Iterator[Service]:
    """Version one serves at the start of every test."""
    lab_service.works()
    assert lab_service.answer("sk-one") == "one"
    yield lab_service


def test_a_second_run_changes_nothing(service: Service) -> None:
    before = service.ids()
    assert "changed=0" in service.works()
    assert service.ids() == before


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"image": "headfirst/no-such:1"}, "Image headfirst/no-such:1 is not on this node"),
        ({"mounts": ["/no/such:/model:ro"]}, "/no/such is not on this node"),
    ],
    ids=["image", "mount"],
)
def test_what_cannot_be_created_stops_nothing(service: Service, change: dict[str, Any], reason: str) -> None:
    before = service.ids()
    told = service.fails(says="two", **change)
    assert reason in told
    assert "the previous version still runs" in told
    assert service.ids() == before
    assert service.answer("sk-one") == "one"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(
            {"more": ["--no-such-flag"]},
            "unrecognized arguments: --no-such-flag",
            id="flag",
            marks=pytest.mark.slow,
        ),
        pytest.param({"more": ["--gpu", "full"]}, "out of memory", id="full-gpu"),
        pytest.param({"more": ["--dies", "1"]}, "killed (signal 9)", id="dies", marks=pytest.mark.slow),
    ],
)
def test_what_does_not_start_brings_the_old_version_back(
    service: Service, change: dict[str, Any], reason: str
) -> None:
    before = service.ids()
    # The old version has another key and another model name: its own configuration must come back, too.
    told = service.fails(says="two", key="sk-two", **change)
    assert reason in told
    assert "The previous version serves again" in told
    assert service.ids() == before
    assert service.answer("sk-one") == "one"
    # The log of the failed start is where the message points.
    log = re.search(rf"docker logs ({NAME}\.[0-9a-f]+)", told)
    assert log
    for node in (1, 2):
        assert "No such container" not in service.on(node, f"docker logs {log[1]}")
        assert service.inspect(node, "{{.HostConfig.RestartPolicy.Name}}") == "unless-stopped"


def test_rollback_and_back(service: Service) -> None:
    service.works(says="two", key="sk-two")
    assert service.answer("sk-two") == "two"
    service.works(entry="rollback")
    assert service.answer("sk-one") == "one"
    service.works(entry="rollback")
    assert service.answer("sk-two") == "two"


RENAMED: dict[str, Any] = {"name": f"{NAME}-chat", "planned": [f"{NAME}-chat"]}


@pytest.mark.slow
def test_a_service_with_another_name_keeps_what_served(service: Service) -> None:
    before = service.ids()
    told = service.fails(says="two", key="sk-two", more=["--gpu", "full"], **RENAMED)
    assert "out of memory" in told
    assert f"{NAME} was started again on node1 and serves" in told
    assert service.answer("sk-one") == "one"
    assert service.ids() == before
    told = service.works(says="two", key="sk-two", **RENAMED)
    assert "nothing answers there until" in told
    assert service.answer("sk-two") == "two"
    for node in (1, 2):
        assert "no such" in service.inspect(node, "{{.Id}}").lower()
    service.works(entry="rollback", **RENAMED)
    assert service.answer("sk-one") == "one"
    assert [service.inspect(node, "{{.Id}}", RENAMED["name"]) for node in (1, 2)] == before
    service.works(name=NAME, planned=[NAME])
    for node in (1, 2):
        assert service.on(node, "docker ps --all --format '{{.Names}}' | grep -c chat") == "0"


@pytest.mark.slow
def test_a_smaller_shape_that_fails_leaves_the_ranks_on_all_nodes(service: Service) -> None:
    before = service.ids()
    told = service.fails(says="two", key="sk-two", more=["--no-such-flag"], ranks="node1")
    assert "--no-such-flag" in told
    assert f"{NAME} was started again on node1 and serves" in told
    assert service.answer("sk-one") == "one"
    assert service.ids() == before


def test_a_limited_play_is_refused(service: Service) -> None:
    before = service.ids()
    done = service.apply("--limit", "node2", says="two")
    assert done.returncode != 0
    assert "The service has 2 ranks" in done.stdout
    assert service.ids() == before
    assert service.answer("sk-one") == "one"


# What the rollout reports before, amid and after the stop; tests/generations_model.py has every step.
STEPS = (
    pytest.param("creating the container", marks=pytest.mark.slow),
    "stopping",
    pytest.param("waiting until it serves", marks=pytest.mark.slow),
)


@pytest.mark.parametrize("step", STEPS)
def test_a_run_killed_at_any_step_is_taken_up(service: Service, step: str) -> None:
    given = json.dumps({"says": "two", "key": "sk-two"})
    command = [str(BIN / "ansible-playbook"), "-i", "hosts.ini", "play.yml", "-e", given]
    progress = service.folder / "progress"
    progress.write_text("")
    env = os.environ | {"HEADFIRST_PROGRESS": str(progress)}
    with subprocess.Popen(command, cwd=service.folder, env=env, stdout=subprocess.DEVNULL) as run:
        while step not in progress.read_text():
            assert run.poll() is None, "it ended without the step"
            time.sleep(0.05)
        run.kill()
    service.works(says="two", key="sk-two")
    assert service.answer("sk-two") == "two"
    # What served before is still there to return to.
    assert "serves again" in service.fails(says="three", more=["--gpu", "full"])
    assert service.answer("sk-two") == "two"


def test_a_rank_that_crashes_comes_back_without_a_run(service: Service) -> None:
    service.on(2, "kill -9 $(docker inspect --format '{{.State.Pid}}' headfirst-engine)")
    service.works()
    assert service.answer("sk-one") == "one"
    assert [service.inspect(node, "{{.RestartCount}}") for node in (1, 2)] != ["0", "0"]


def test_stop_leaves_nothing(service: Service) -> None:
    service.works(entry="stop")
    for node in (1, 2):
        assert service.on(node, f"docker ps --all --quiet --filter name={NAME}") == ""
        assert service.on(node, "ls -A /etc/headfirst") == ""
