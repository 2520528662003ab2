"""A replica of two ranks on two lab nodes, kept by their supervisors; the roles alone brought it up.

The engine is the stand-in, whose ranks meet as an engine's do and start in a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils.node_wheel import build_node_wheel
from bare_nodes import BareNodes, bare_nodes
from headfirst.decide.cluster.settings import ServiceSettings
from stand_in_image import write_image

BIN = Path(sys.executable).parent
NAME = "headfirst-engine"
ADDRESSES = ["10.213.96.11", "10.213.96.12"]
PORT = ServiceSettings().engine_port
HANG_S = 12
"""Seconds after which the engine counts as hanging here."""
LIMIT_S = 120
"""How long anything may take; benchmarks/recovery.py measures how long it takes."""

WITH_IMAGE = """\
- hosts: all
  become: true
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: headfirst.serving.docker_engine}
    - ansible.builtin.command: docker import /srv/headfirst/image.tar headfirst/stand-in:1
      changed_when: true
"""
SITE = (
    WITH_IMAGE
    + """\
    - ansible.builtin.include_role: {name: headfirst.serving.node_tools}
    - ansible.builtin.include_role: {name: headfirst.serving.supervisor}
"""
)

PLAY = """\
- hosts: ranks
  become: true
  gather_facts: false
  any_errors_fatal: true
  tasks:
    - ansible.builtin.include_role: {name: headfirst.serving.engine}
"""


CONFIG = ["/etc/headfirst/engine.yaml:/etc/headfirst/engine.yaml:ro"]
VOLUMES = ["/usr:/usr:ro", "/srv/headfirst:/srv/headfirst:ro"]
STANDBY = """\
- hosts: all
  become: true
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: headfirst.serving.engine, tasks_from: standby}
"""


def command(rank: str, head: str) -> list[str]:
    """What the container of a rank runs."""
    program = ["python3", "/srv/headfirst/stand_in_engine.py", "--rank", rank, "--ranks", "2"]
    meeting = ["--head", head, "--port", str(PORT)]
    return [*program, *meeting, "--says", "one", "--config", "/etc/headfirst/engine.yaml"]


def variables(wheel: Path, members: list[str]) -> dict[str, Any]:
    return {
        "node_tools_wheel": str(wheel),
        "supervisor_address": "{{ ansible_host }}",
        "supervisor_members": members,
        "supervisor_token": "a-token-of-the-test",
        "supervisor_keys": dict.fromkeys(members, "a-key-of-the-test"),
        "engine_supervisor": "/opt/headfirst/venv/bin/headfirst-supervisor",
        "engine_supervision": {"ranks": ADDRESSES, "hang_seconds": HANG_S, "start_seconds": 60},
        "engine_ranks": 2,
        "engine_rank": "{{ rank }}",
        "engine_url": f"http://{ADDRESSES[0]}:{PORT}",
        "engine_model_name": "one",
        "engine_api_key": "sk-one",
        "engine_config": {"api-key": "sk-one"},
        "engine_ready_timeout": 60,
        "engine_stop_timeout": 5,
        "engine_container": {
            "image": "headfirst/stand-in:1",
            "command": command("{{ rank | string }}", ADDRESSES[0]),
            "network_mode": "host",
            "volumes": f"{{{{ {json.dumps(VOLUMES)} + ({json.dumps(CONFIG)} if rank == 0 else []) }}}}",
        },
    }


class StandIns:
    """Ranks of the stand-in on nodes, with playbooks by name; Ansible alone changes them."""

    def __init__(self, nodes: BareNodes, folder: Path, **playbooks: str) -> None:
        self.nodes, self.folder = nodes, folder
        rows = [f"node{n + 1} ansible_host={a} rank={n}" for n, a in enumerate(nodes.addresses)]
        more = f"[all:vars]\nansible_python_interpreter=/usr/bin/python3\n{nodes.login}"
        (folder / "hosts.ini").write_text("\n".join(["[all]", *rows, "[ranks]", "node1", "node2", more]))
        for name, text in playbooks.items():
            (folder / f"{name}.yml").write_text(text)
        shared = nodes.described.shared_dir
        write_image(shared / "image.tar")
        program = Path(__file__).with_name("stand_in_engine.py")
        (shared / program.name).write_bytes(program.read_bytes())

    def play(self, playbook: str, *options: str) -> subprocess.CompletedProcess[str]:
        argv = [str(BIN / "ansible-playbook"), "-i", "hosts.ini", playbook, *options]
        env = os.environ | {"ANSIBLE_NOCOLOR": "1"}
        return subprocess.run(argv, cwd=self.folder, env=env, capture_output=True, text=True, check=False)

    def on(self, node: int, command: str) -> str:
        done = self.nodes.run(node, command)
        return done.stdout.strip() + done.stderr.strip()

    def answer(self, key: str, head: str = "", seconds: float = 10) -> str:
        url = f"http://{head or self.nodes.addresses[0]}:{PORT}/v1/chat/completions"
        request = urllib.request.Request(url, b"{}", {"Authorization": f"Bearer {key}"})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=seconds) as response:
            return str(json.load(response)["choices"][0]["message"]["content"])


class Replica(StandIns):
    """Two ranks of the stand-in on two nodes, watched by their supervisors."""

    def __init__(self, nodes: BareNodes, folder: Path) -> None:
        super().__init__(nodes, folder, play=PLAY, site=SITE, standby=STANDBY)
        given = variables(build_node_wheel(folder), nodes.addresses)
        (folder / "vars.json").write_text(json.dumps(given))

    def ansible(self, playbook: str, *options: str) -> str:
        done = self.play(playbook, "-e", "@vars.json", *options)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr
        return done.stdout

    def answers(self, head: str = ADDRESSES[0]) -> bool:
        try:
            return self.answer("sk-one", head, seconds=3) == "one"
        except OSError:
            return False

    def starts(self) -> list[str]:
        """When each rank was started last."""
        return [
            self.on(node, f"docker inspect --format '{{{{.State.StartedAt}}}}' {NAME}") for node in (1, 2)
        ]

    def pid(self, node: int) -> str:
        """Of the engine's program in the rank's container."""
        return self.on(node, "pgrep -f '^python3 /srv/headfirst/stand_in_engine.py'")

    def phase(self) -> str:
        state = self.on(1, "cat /run/headfirst/supervisor.json")
        if not state.startswith("{"):
            return state
        # A supervisor that was just started has no replica yet.
        return str(json.loads(state)["replicas"].get(NAME, {}).get("phase", ""))

    def forget_ends(self) -> None:
        """The head's supervisor starts with no early end in its memory: the next start has no pause."""
        gone = f"/var/lib/headfirst/supervisor/{NAME}.json /run/headfirst/supervisor.json"
        self.on(1, f"systemctl stop headfirst-supervisor; rm -f {gone}; systemctl start headfirst-supervisor")

    def events(self) -> list[dict[str, Any]]:
        text = self.on(1, "cat /var/lib/headfirst/supervisor/events.jsonl")
        return [json.loads(line) for line in text.splitlines()]


def wait(condition: Callable[[], bool], seconds: float, what: str) -> float:
    """Seconds until the condition holds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, what
        time.sleep(0.25)
    return time.monotonic() - began


@contextmanager
def supervised_replica(folder: Path, spares: int = 0) -> Iterator[Replica]:
    """The replica, which serves; its nodes, and more that run nothing, are removed at the end."""
    with bare_nodes("test-supervisor", "10.213.96", 2 + spares, folder) as nodes:
        replica = Replica(nodes, folder)
        replica.ansible("site.yml")
        replica.ansible("play.yml")
        yield replica


def comes_back(replica: Replica, before: list[str]) -> float:
    """Seconds until both ranks were started again and the replica answers."""
    return wait(
        lambda: all(map(str.__ne__, replica.starts(), before)) and replica.answers(), LIMIT_S, str(before)
    )
