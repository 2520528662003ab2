"""Hosts that answer on SSH and run nothing: what a run costs the controller, with any number of hosts.

Each has an sshd, an address, a host name and a file system of its own (this machine's, under an overlay).
Docker, systemd and the node tools are fixtures (files/). Needs root; everything is in namespaces.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from ansible_collections.headfirst.serving.plugins.plugin_utils.node_wheel import build_node_wheel

from stand_ins.addresses import ENGINE_PORT, MODEL, WEBUI_PORT, address, name

WORLD = Path(__file__).with_name("world.py")
# Divides by 4, 16, 64 and 100 ranks.
HEADS = 1600
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1600,
    "head_dim": 1,
    "intermediate_size": 1600,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "vocab_size": 1600,
    "max_position_embeddings": 1024,
    "torch_dtype": "bfloat16",
}


class StandIns:
    """`count` hosts. `inventory` is theirs; `command` runs a program in their network."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count = folder, count
        self.inventory = folder / "hosts.ini"
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def __enter__(self) -> StandIns:
        self.folder.mkdir(parents=True, exist_ok=True)
        for key in ("host_key", "key"):
            path = str(self.folder / key)
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
        public = " ".join((self.folder / "host_key.pub").read_text().split()[:2])
        known = "".join(f"{address(number)} {public}\n" for number in range(1, self.count + 1))
        (self.folder / "known_hosts").write_text(known)
        wheel = build_node_wheel(self.folder / "cache" / "headfirst" / "wheels")
        (self.folder / "version").write_text(wheel.name.split("-")[1])
        self._write_model()
        self.inventory.write_text(self._inventory())
        # With the test that made it the world ends, too.
        argv = ["setpriv", "--pdeathsig", "KILL"]
        argv += ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        path = f"{WORLD.parents[1]}{os.pathsep}{WORLD.parents[2] / 'py'}"
        self._world = subprocess.Popen(
            [*argv, sys.executable, str(WORLD), str(self.folder), str(self.count)],
            env={**os.environ, "PYTHONPATH": path},
        )
        while not (self.folder / "ready").exists():
            if self._world.poll() is not None:
                raise RuntimeError("the stand-ins did not start")
            time.sleep(0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._world.kill()
        self._world.wait()

    def command(self, *argv: str) -> list[str]:
        """A command line that runs `argv` where the hosts can be reached."""
        return ["nsenter", f"--net=/proc/{self._world.pid}/ns/net", *argv]

    def deploy(self, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
        """`deploy` on the hosts, where a login may open 1024 files as on most machines."""
        program = str(Path(sys.executable).with_name("deploy"))
        command = ["prlimit", "--nofile=1024:4096", program, verb, str(self.inventory), *options]
        return subprocess.run(
            self.command(*command), env=self.environment, capture_output=True, text=True, check=False
        )

    def _write_model(self) -> None:
        model = self.folder / "model"
        model.mkdir()
        (model / "config.json").write_text(json.dumps(CONFIG))
        header = {"embed.weight": {"dtype": "BF16", "shape": [32], "data_offsets": [0, 64]}}
        text = json.dumps(header).encode()
        (model / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(64))

    def _inventory(self) -> str:
        hosts = [f"{name(number)} ansible_host={address(number)}" for number in range(1, self.count + 1)]
        settings = [
            "ansible_user=root",
            f"ansible_ssh_private_key_file={self.folder / 'key'}",
            f"ansible_ssh_common_args='-o UserKnownHostsFile={self.folder / 'known_hosts'}'",
            "nic=eth0",
            # The hosts share one network stack, so they cannot have firewalls of their own.
            "host_tuning_firewall=false",
            "engine_device=cpu",
            "cpu_cores=0-1",
            "engine_image=stand-in:1",
            "engine_image_source=registry",
            "webui_image_source=registry",
            "model_source=path",
            f"model={self.folder / 'model'}",
            f"served_model_name={MODEL}",
            f"engine_port={ENGINE_PORT}",
            f"webui_port={WEBUI_PORT}",
            "ready_timeout=300",
        ]
        workers = "\n".join(hosts[1:])
        return f"[head]\n{hosts[0]}\n\n[workers]\n{workers}\n\n[all:vars]\n" + "\n".join(settings) + "\n"
