"""vLLM's options as data: its own parser's, those it has removed, and those that the plan sets."""

from __future__ import annotations

from headfirst.decide.engines import argument_files
from headfirst.decide.engines.argument_check import Specification

# The newest first; each has an arguments-VERSION.json (tools/vllm_arguments.py).
VERSIONS = ("0.33.0", "0.32.0")

_RANKS = "It follows from the hosts in [head] and [workers]."
_BALANCE = "The head answers for all data-parallel ranks; for separate servers set replicas."
_OWNED = {
    "model": "Set model in the inventory.",
    "served_model_name": "Set served_model_name in the inventory.",
    "tensor_parallel_size": "Set tensor_parallel in the inventory.",
    "pipeline_parallel_size": "Set pipeline_parallel in the inventory.",
    "nnodes": _RANKS,
    "node_rank": "The head is rank 0, then the workers in the order of the inventory.",
    "master_addr": "It is the head's address.",
    "master_port": "Set dist_port in the inventory.",
    "headless": "All ranks but the head's are headless.",
    "distributed_executor_backend": "Set engine_runtime=ray in the inventory for Ray; without it vLLM's own "
    "processes are used.",
    "data_parallel_size_local": _RANKS,
    "data_parallel_start_rank": _RANKS,
    "data_parallel_rank": _BALANCE,
    "data_parallel_address": "It is the head's address.",
    "data_parallel_rpc_port": "It follows dist_port in the inventory.",
    "data_parallel_backend": _RANKS,
    "data_parallel_external_lb": _BALANCE,
    "data_parallel_hybrid_lb": _BALANCE,
    "data_parallel_multi_port_external_lb": _BALANCE,
    "host": "The plan chooses the address that the engine listens on.",
    "port": "Set engine_port in the inventory.",
    "uds": "Clients come from other hosts; leave it out.",
    "grpc": "Clients and the checks use HTTP; leave it out.",
    "config": "The plan mounts its own file there, with the API key.",
    "api_key": "A key is made and passed in a file, so that no process list shows it; leave it out.",
}


def load(version: str) -> Specification:
    """The specification of vLLM `version`, one of VERSIONS."""
    return argument_files.load("headfirst.decide.engines.vllm", "vLLM", version, _OWNED)
