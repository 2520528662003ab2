"""Launches of SGLang in many shapes, and what its parser must make of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headfirst.decide.engines.base import LaunchRequest
from headfirst.decide.engines.layout import Layout

ONE = LaunchRequest(
    model_dir="/data/model",
    served_name="model",
    layout=Layout(8),
    nodes=1,
    rank=0,
    head_address="192.0.2.1",
    dist_port=5000,
    address="192.0.2.1",
    port=30000,
    nic="eth0",
)
TWO = replace(ONE, layout=Layout(16), nodes=2, config_file=None, hca="=mlx5_0:1,mlx5_1:1", ib_gid_index=3)
CPU = replace(ONE, layout=Layout(2), nodes=2, device="cpu", cpu_cores=("0-1",))
MTP = ("--speculative-algorithm", "EAGLE", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1")

# (the launch, destinations of the parser and their values)
LAUNCHES: list[tuple[LaunchRequest, Mapping[str, Any]]] = [
    (ONE, {"tp_size": 8, "pp_size": 1, "nnodes": 1, "served_model_name": "model", "host": "0.0.0.0"}),
    (replace(ONE, trust_remote_code=True), {"trust_remote_code": True}),
    (TWO, {"tp_size": 16, "nnodes": 2, "node_rank": 0, "dist_init_addr": "192.0.2.1:5000"}),
    (replace(TWO, rank=1), {"node_rank": 1}),
    (replace(TWO, layout=Layout(8, 2)), {"tp_size": 8, "pp_size": 2}),
    (
        replace(TWO, layout=Layout(16, attention_data=16), extra_args=("--attn-dp-size", "16")),
        {"attn_dp_size": 16},
    ),
    (
        replace(TWO, extra_args=("--enable-dp-attention", "--dp-size", "16", "--moe-a2a-backend", "deepep")),
        {"enable_dp_attention": True, "dp_size": 16, "moe_a2a_backend": "deepep"},
    ),
    (replace(ONE, extra_args=("--ep-size", "8")), {"ep_size": 8}),
    (replace(ONE, extra_args=MTP), {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3}),
    (replace(ONE, task="embedding"), {"is_embedding": True}),
    (replace(ONE, task="reward"), {"is_embedding": True}),
    (replace(ONE, task="rerank", extra_args=("--chat-template", "/data/r.jinja")), {"is_embedding": False}),
    (replace(ONE, task="vision"), {"is_embedding": False}),
    (
        replace(ONE, adapters={"sql": "/data/sql", "law": "/data/law"}),
        {"enable_lora": True, "lora_paths": ["sql=/data/sql", "law=/data/law"]},
    ),
    (
        replace(ONE, extra_args=("--enable-hierarchical-cache", "--hicache-ratio", "2")),
        {"enable_hierarchical_cache": True, "hicache_ratio": 2.0},
    ),
    (
        replace(ONE, cache_dir="/data/cache", extra_args=("--enable-torch-compile",)),
        {"enable_torch_compile": True},
    ),
    (CPU, {"device": "cpu", "attention_backend": "torch_native", "max_total_tokens": 4096}),
    (replace(CPU, rank=1, task="embedding"), {"device": "cpu", "is_embedding": True}),
]
