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

SITE = """\
- hosts: all
  become: true
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: headfirst.serving.docker_engine}
    - ansible.builtin.command: docker import /srv/headfirst/image.tar headfirst/stand-in:1
      changed_when: true
    - ansible.builtin.include_role: {name: headfirst.serving.node_tools}
    - ansible.builtin.include_role: {name: headfirst.serving.supervisor}
"""

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
    line = ["python3", "/srv/headfirst/stand_in_engine.py", "--rank", rank, "--ranks", "2"]
    return [
        *line,
        "--head",
        head,
        "--port",
        str(PORT),
        "--says",
        "one",
        "--config",
        "/etc/headfirst/engine.yaml",
    ]


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
            "volumes": "{{ "
            + json.dumps(VOLUMES)
            + " + ("
            + json.dumps(CONFIG)
            + " if rank == 0 else []) }}",
        },
    }


class Replica:
    """Two ranks of the stand-in on two nodes, watched by their supervisors."""

    def __init__(self, nodes: BareNodes, folder: Path) -> None:
        self.nodes, self.folder = nodes, folder
        rows = [f"node{n + 1} ansible_host={a} rank={n}" for n, a in enumerate(nodes.addresses)]
        more = f"[all:vars]\nansible_python_interpreter=/usr/bin/python3\n{nodes.login}"
        (folder / "hosts.ini").write_text("\n".join(["[all]", *rows, "[ranks]", "node1", "node2", more]))
        for name, text in (("play", PLAY), ("site", SITE), ("standby", STANDBY)):
            (folder / f"{name}.yml").write_text(text)
        given = variables(build_node_wheel(folder), nodes.addresses)
        (folder / "vars.json").write_text(json.dumps(given))

    def ansible(self, playbook: str, *options: str) -> str:
        argv = [str(BIN / "ansible-playbook"), "-i", "hosts.ini", "-e", "@vars.json", playbook, *options]
        env = os.environ | {"ANSIBLE_NOCOLOR": "1"}
        done = subprocess.run(argv, cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr
        return done.stdout

    def on(self, node: int, command: str) -> str:
        argv = ["docker", "exec", self.container(node), "sh", "-c", command]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.stdout.strip() + done.stderr.strip()

    def container(self, node: int) -> str:
        return self.nodes.described.container_name(self.nodes.described.nodes[node - 1])

    def answers(self, head: str = ADDRESSES[0]) -> bool:
        request = urllib.request.Request(
            f"http://{head}:{PORT}/v1/chat/completions", b"{}", {"Authorization": "Bearer sk-one"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=3) as response:
                return bool(json.load(response)["choices"][0]["message"]["content"] == "one")
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
        write_image(nodes.described.shared_dir / "image.tar")
        program = Path(__file__).with_name("stand_in_engine.py")
        (nodes.described.shared_dir / program.name).write_bytes(program.read_bytes())
        replica = Replica(nodes, folder)
        replica.ansible("site.yml")
        replica.ansible("play.yml")
        yield replica


def comes_back(replica: Replica, before: list[str]) -> float:
    """Seconds until both ranks were started again and the replica answers."""
    return wait(
        lambda: all(map(str.__ne__, replica.starts(), before)) and replica.answers(), LIMIT_S, str(before)
    )
