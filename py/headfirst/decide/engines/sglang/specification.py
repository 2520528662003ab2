"""SGLang's options as data: its own parser's, those it has removed, and those that the plan sets."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from headfirst.decide.engines.argument_check import Specification, specification

# The newest first; each has an arguments-VERSION.json (tools/sglang_arguments.py).
VERSIONS = ("0.5.23", "0.5.22")

_OWNED = {
    "model_path": "Set model in the inventory.",
    "served_model_name": "Set served_model_name in the inventory.",
    "tp_size": "Set tensor_parallel in the inventory.",
    "pp_size": "Set pipeline_parallel in the inventory.",
    "nnodes": "It follows from the hosts in [head] and [workers].",
    "node_rank": "The head is rank 0, then the workers in the order of the inventory.",
    "dist_init_addr": "It is the head's address; set dist_port in the inventory for another port.",
    "host": "The plan chooses the address that the engine listens on.",
    "port": "Set engine_port in the inventory.",
    "lora_paths": "Set adapters in the inventory: their folders are then copied and mounted too.",
    "device": "Set engine_device in the inventory.",
    "config": "The plan mounts its own file there, with the API key.",
    "api_key": "A key is made and passed in a file, so that no process list shows it; leave it out.",
    "admin_api_key": "Everyone who lists processes could read it; leave it out.",
    "ssl_keyfile_password": "Everyone who lists processes could read it; use a key file without password.",
}


@cache
def load(version: str) -> Specification:
    """The specification of SGLang `version`, one of VERSIONS."""
    folder = files("headfirst.decide.engines.sglang")
    options: list[dict[str, Any]] = _read(folder.joinpath(f"arguments-{version}.json"))["options"]
    removed = _read(folder.joinpath("removed.json"))["flags"]
    return specification(f"SGLang {version}", options, {f: _advice(e) for f, e in removed.items()}, _OWNED)


def _read(path: Any) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _advice(entry: dict[str, Any]) -> str:
    older, newer = entry["between"]
    gone = f"It was removed between {older} and {newer}"
    instead = entry["instead"]
    return f"{gone}; write {instead}." if instead else f"{gone} without a successor; leave it out."
