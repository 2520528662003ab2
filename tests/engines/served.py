"""An engine's server as the plan starts it, on loopback and without a GPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from types import MappingProxyType
from urllib.request import Request, urlopen

import engine_sites
import yaml
from headfirst.common import container_names
from headfirst.control import demo
from headfirst.control.checkpoints.describe import describe
from headfirst.control.inventory.inventory import load
from headfirst.decide import engines
from headfirst.decide.engines import access
from headfirst.decide.model import catalogue
from headfirst.decide.plan.build import build

USER, ADMIN = "sk-of-a-user", "sk-of-an-administrator"
PORT = 30900
_READY_S = 300
_HOST = "[head]\nn1 ansible_host=127.0.0.1\n[all:vars]\nnic=lo\n"
# SGLang runs as it is; of the others what computes is replaced (drivers/routes_fixture.py).
_SERVED = {
    "sglang": f"model={demo.EMBEDDING_MODEL}\nmodel_source=demo\nengine_device=cpu\ncpu_cores=0-1\n",
    "vllm": "model=Qwen/Qwen3-32B\ngpus=8\ngpu=H100-80G\nhca=none\n",
    "lmdeploy": "model=Qwen/Qwen3-30B-A3B\ngpus=8\ngpu=H100-80G\nhca=none\n",
}


@dataclass(frozen=True)
class Served:
    """A server that answers. `routes` are paths with their methods, by port."""

    process: subprocess.Popen[bytes]
    routes: dict[int, list[tuple[str, str]]]

    def ask(
        self,
        path: str,
        key: str | None,
        *,
        method: str = "GET",
        port: int = PORT,
        body: str = "{}",
        **more: str,
    ) -> int:
        """The status of the answer; `more` are headers. A websocket is asked to open one."""
        headers = {"Content-Type": "application/json", **more}
        if method == "WEBSOCKET":
            method = "GET"
            headers |= {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
            headers["Sec-WebSocket-Key"] = "bmF2ZXIgdGhlIHNhbWU="
        headers |= {"Authorization": f"Bearer {key}"} if key else {}
        with suppress(OSError), closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request(method, path, None if method == "GET" else body, headers)
            return connection.getresponse().status
        return 0

    def models(self) -> list[str]:
        """The names that it serves."""
        url = Request(f"http://127.0.0.1:{PORT}/v1/models", headers={"Authorization": f"Bearer {USER}"})
        with suppress(OSError), urlopen(url, timeout=30) as answer:
            return [model["id"] for model in json.load(answer)["data"]]
        return []


@contextmanager
def served(
    engine: str,
    folder: Path,
    settings: str = "",
    variables: Mapping[str, str] = MappingProxyType({}),
    *,
    until_served: str = "",
) -> Iterator[Served]:
    """Rank 0 of a plan, once it serves the model. It ends with the context, and its log is in `folder`."""
    inventory = folder / "cluster.ini"
    text = f"{_HOST}{_SERVED[engine]}engine={engine}\nengine_port={PORT}\n"
    inventory.write_text(text + settings, encoding="utf-8")
    cluster = load([inventory])
    with demo.checkpoint(demo.EMBEDDING_MODEL) as model:
        known = catalogue.lookup(cluster.services[0].model_id)
        checkpoint = known or describe(demo.EMBEDDING_MODEL, "path", folder=model)
        service = build(cluster, {None: checkpoint}).services[0]
        container = service.replicas[0].nodes[0].container.without_files()
        config = folder / "engine.yaml"
        keys = engines.get(engine).config_file(api_key=USER, admin_key=ADMIN)
        config.write_text(yaml.safe_dump(keys), encoding="utf-8")
        there = {
            service.weights.directory: str(model),
            container_names.engine_config(container.name): str(config),
            access.CHECK: f"{access.CHECK}\nimport routes_fixture\n",
        }
        words = [*([container.entrypoint] if container.entrypoint else []), *container.command]
        (folder / "routes").mkdir()
        environment = engine_sites.environment(engine) | dict(container.environment)
        # Not the option -s: the check of keys reads its text behind `python3 -c`.
        environment |= {"ROUTES": str(folder / "routes"), "PYTHONNOUSERSITE": "1", **variables}
        environment["PATH"] = f"{_commands(engine, folder)}:{environment['PATH']}"
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [there.get(word, word) for word in words],
                env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        try:
            _await(process, folder, until_served)
            found = {int(path.stem): json.loads(path.read_text()) for path in (folder / "routes").iterdir()}
            yield Served(
                process, {port: [(path, method) for path, method in all] for port, all in found.items()}
            )
        finally:
            for member in session(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
            process.wait()


def session(leader: int) -> list[int]:
    """The processes of a session; LMDeploy's are in groups of their own."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError):
            found += [int(path.name)] if os.getsid(int(path.name)) == leader else []
    return found


def _commands(engine: str, folder: Path) -> Path:
    """A folder with `python3` and the engine's own command, as its image has them."""
    commands = folder / "bin"
    commands.mkdir()
    own = engine_sites.engine_site(engine) / "bin" / engine
    for name, words in (("python3", engine_sites.python()), (engine, f"python3 {own}")):
        (commands / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        (commands / name).chmod(0o755)
    return commands


def _await(process: subprocess.Popen[bytes], folder: Path, model: str) -> None:
    deadline = time.monotonic() + _READY_S
    server = Served(process, {})
    while time.monotonic() < deadline and process.poll() is None:
        ready = server.ask("/health_generate", ADMIN) not in (0, 503) and server.ask("/v1/models", USER)
        # A server registers at the proxy before it has written its routes.
        ports = {PORT, PORT + 1} if model else {PORT}
        written = all((folder / "routes" / f"{port}.json").exists() for port in ports)
        if ready and written and (not model or model in server.models()):
            return
        time.sleep(0.5)
    raise AssertionError((folder / "log").read_text(errors="replace")[-6000:])
