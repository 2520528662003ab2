"""The README's lab, as the tests reach it: by the `deploy` command, and by a shell on its nodes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[1]
INVENTORY = ROOT / "inventories" / "lab.ini"
# Settings of a lab whose engine serves a small model.
SMALL = """\
lab=true
nic=eth0
engine_device=cpu
engine_image_source=build
shm_size=64m
ready_timeout=900
webui_image_source=build
"""


@dataclass(frozen=True)
class Service:
    """What `deploy up` says of the service that it brought up."""

    url: str
    api: str
    api_key: str
    model: str
    email: str
    password: str
    changed: int


def deploy(
    *words: str, inventory: Path = INVENTORY, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run the checkout's command (`up`, or `lab down`) on an inventory; the caller judges how it ended."""
    command = [str(ROOT / "deploy"), *words, str(inventory), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def succeeds(*words: str, inventory: Path = INVENTORY, options: Sequence[str] = ()) -> str:
    """Run the command, which must end well; what it printed."""
    done = deploy(*words, inventory=inventory, options=options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    return done.stdout


def summary_of(*words: str, inventory: Path = INVENTORY, options: Sequence[str] = ()) -> dict[str, Any]:
    """What a run that ends well reports in the end, with --json."""
    printed = succeeds(*words, inventory=inventory, options=["--json", *options])
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


@contextmanager
def own_lab(path: Path, text: str) -> Iterator[Path]:
    """An inventory at `path` whose lab is removed in the end, whatever tests have made of the file."""
    path.write_text(text)
    try:
        yield path
    finally:
        path.write_text(text)
        succeeds("lab", "down", inventory=path)


def bring_up(*options: str, inventory: Path = INVENTORY) -> Service:
    """Run `deploy up`; nothing is changed where the service already runs as planned."""
    found = summary_of("up", inventory=inventory, options=options)
    secrets = json.loads(Path(found["credentials"]).read_text())
    served = found["services"][0]
    return Service(
        url=found["chat_page"],
        api=served["api"][0].removesuffix("/v1"),
        api_key=secrets["engine_api_key"],
        model=served["model"],
        email=secrets["webui_admin_email"],
        password=secrets["webui_admin_password"],
        changed=found["changed"],
    )


def hello(api: str, key: str, model: str = "headfirst-demo", text: str = "Hello!") -> str:
    """What the model at `api` answers."""
    body = {"model": model, "messages": [{"role": "user", "content": text}], "temperature": 0}
    headers = {"Authorization": f"Bearer {key}"}
    response = httpx.post(
        f"{api}/v1/chat/completions", json=body, headers=headers, timeout=120, trust_env=False
    )
    content: str = response.json()["choices"][0]["message"]["content"]
    return content


def on_node(node: str, command: str, inventory: Path = INVENTORY) -> str:
    """Run a shell command as root on a node; return what it printed."""
    argv = ["docker", "exec", f"headfirst-{inventory.stem}-{node}", "sh", "-c", command]
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def started(node: str, inventory: Path = INVENTORY) -> str:
    """When the rank's container on a node was started last, as Docker writes it."""
    return on_node(node, "docker inspect --format '{{.State.StartedAt}}' headfirst-engine", inventory)


def running(node: str, inventory: Path = INVENTORY) -> bool:
    """Whether the rank's container on a node runs."""
    return on_node(node, "docker inspect --format '{{.State.Running}}' headfirst-engine", inventory) == "true"
