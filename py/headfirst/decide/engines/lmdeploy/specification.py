"""LMDeploy's options as data: its own parser's, those it has removed, and those that the plan sets."""

from __future__ import annotations

from functools import cache

from headfirst.decide.engines import argument_files
from headfirst.decide.engines.argument_check import Specification

PACKAGE = "headfirst.decide.engines.lmdeploy"

# The newest first; each has an arguments-VERSION.json and a models-VERSION.json (tools/lmdeploy_tables.py).
VERSIONS = ("0.18.0", "0.17.0")

_OWNED = {
    "model_name": "Set served_model_name in the inventory.",
    "tp": "Set tensor_parallel in the inventory.",
    "nnodes": "It follows from the hosts in [head] and [workers].",
    "node_rank": "The head is rank 0, then the workers in the order of the inventory.",
    "dist_init_addr": "It is the head's address; set dist_port in the inventory for another port.",
    "server_name": "The plan chooses the address that the engine listens on.",
    "server_port": "Set engine_port in the inventory.",
    "proxy_url": "With --dp the plan starts LMDeploy's proxy on the head, at engine_port.",
    "device": "Set engine_device in the inventory.",
    "api_keys": "A key is made and passed in a file, so that no process list shows it; leave it out.",
    "ssl": "The chat page and the probes use HTTP; put a TLS proxy before the head.",
}


@cache
def load(version: str) -> Specification:
    """The specification of LMDeploy `version`, one of VERSIONS."""
    return argument_files.load(PACKAGE, "LMDeploy", version, _OWNED)
