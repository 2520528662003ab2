"""LMDeploy: its commands per rank, its two back ends, its layouts, its arguments and its memory."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import profile
from headfirst.common.errors import InputError
from headfirst.decide import engines
from headfirst.decide.engines.base import EngineStart, LaunchRequest
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.engines.lmdeploy import backend
from headfirst.decide.engines.lmdeploy.launch import PROGRAM
from headfirst.decide.hardware import gpus
from headfirst.decide.model import quantization
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.sizing.fit import fit, weight_bytes_per_rank
from headfirst.decide.plan.weights import precision
from known_models import model
from together import together

ENGINE = engines.get("lmdeploy")
# What LMDeploy's own functions computed, over four ranks.
MEASURED = json.loads(
    (Path(__file__).parent / "data" / "lmdeploy-0.18.0-kv.json").read_text(encoding="utf-8")
)


R1 = model("deepseek-ai/DeepSeek-R1")
QWEN = model("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B")
LLAMA = model("meta-llama/Llama-3.1-405B")

ONE = LaunchRequest(
    model_dir="/data/DeepSeek-R1-Distill-Qwen-32B",
    served_name="DeepSeek-R1-Distill-Qwen-32B",
    layout=Layout(4),
    nodes=1,
    rank=0,
    head_address="192.168.5.4",
    dist_port=5000,
    address="192.168.5.4",
    port=8000,
    checkpoint=QWEN,
    config_file="/etc/headfirst/engine.yaml",
)
TWO = replace(
    ONE,
    model_dir="/data/R1",
    served_name="R1",
    layout=Layout(16),
    nodes=2,
    checkpoint=R1,
    nic="eth0",
    port=30000,
)


def pairs(argv: list[str]) -> set[tuple[str, str]]:
    return set(itertools.pairwise(argv))


def worker(request: LaunchRequest) -> LaunchRequest:
    return replace(request, rank=1, address="192.168.5.5")


# The command that users run: lmdeploy serve api_server MODEL --tp 4 --server-port 8000 --model-name NAME.
def test_the_published_command_of_one_node() -> None:
    launch = ENGINE.launch(ONE)
    assert launch.command[:3] == ["python3", "-c", PROGRAM]
    assert launch.command[3:6] == ["/etc/headfirst/engine.yaml", "serve", "api_server"]
    assert launch.command[6] == "/data/DeepSeek-R1-Distill-Qwen-32B"
    assert pairs(launch.command) >= {
        ("--tp", "4"),
        ("--server-port", "8000"),
        ("--model-name", "DeepSeek-R1-Distill-Qwen-32B"),
        ("--backend", "turbomind"),
        ("--server-name", "0.0.0.0"),
    }
    assert "--api-keys" not in launch.command
    assert launch.environment == {}
    without_a_key = ENGINE.launch(replace(ONE, config_file=None)).command
    assert without_a_key[:3] == ["lmdeploy", "serve", "api_server"]
    with_adapters = ENGINE.launch(replace(ONE, adapters={"law": "/data/law"})).command
    assert pairs(with_adapters) >= {("--adapters", "law=/data/law"), ("--backend", "pytorch")}


def test_the_pytorch_engine_over_nodes_runs_in_ray_on_the_head_alone() -> None:
    head = ENGINE.launch(TWO)
    assert head.command[:2] == ["bash", "-c"]
    assert pairs(head.command) >= {("--backend", "pytorch"), ("--tp", "16")}
    assert head.command[4:10] == [
        "192.168.5.4",
        "5000",
        "192.168.5.4",
        "8",
        "2",
        "/etc/headfirst/engine.yaml",
    ]
    other = ENGINE.launch(worker(TWO))
    assert other.command[4:] == ["192.168.5.4", "5000", "192.168.5.5", "8", "2", "/etc/headfirst/engine.yaml"]
    assert head.environment == other.environment
    assert head.environment["LMDEPLOY_DIST_MASTER_PORT"] == "5001"
    assert head.environment["GLOO_SOCKET_IFNAME"] == "eth0"
    assert list(ENGINE.rendezvous_ports(TWO)) == [5000, 5001]


def test_ray_on_one_node_when_it_is_asked_for() -> None:
    command = ENGINE.launch(replace(ONE, runtime="ray")).command
    assert command[3] == "ray-head"
    assert ("--backend", "pytorch") in pairs(command)
    with pytest.raises(InputError, match="TurboMind does not run in Ray"):
        ENGINE.launch(replace(ONE, runtime="ray", extra_args=("--backend", "turbomind")))


def test_turbomind_over_nodes_has_its_own_launcher() -> None:
    request = replace(TWO, checkpoint=LLAMA, extra_args=("--backend", "turbomind"))
    head, other = ENGINE.launch(request).command, ENGINE.launch(worker(request)).command
    meeting = {("--nnodes", "2"), ("--dist-init-addr", "192.168.5.4:5000")}
    assert pairs(head) >= meeting | {("--node-rank", "0"), ("--server-name", "0.0.0.0")}
    assert pairs(other) >= meeting | {("--node-rank", "1"), ("--server-name", "127.0.0.1")}
    assert "/etc/headfirst/engine.yaml" not in other
    assert head.count("--backend") == 1
    assert "LMDEPLOY_DIST_MASTER_PORT" not in ENGINE.launch(request).environment


def test_dp_ranks_stand_behind_a_proxy_at_the_engines_port() -> None:
    request = replace(
        TWO, layout=Layout(16, attention_data=16, expert=16), extra_args=("--dp", "16", "--ep", "16")
    )
    head, other = ENGINE.launch(request), ENGINE.launch(worker(request)).command
    words = int(head.command[4])
    proxy, server = head.command[5 : 5 + words], head.command[5 + words :]
    assert proxy[4:6] == ["serve", "proxy"]
    assert ("--server-port", "30000") in pairs(proxy)
    assert pairs(server) >= {
        ("--server-port", "30001"),
        ("--nnodes", "2"),
        ("--node-rank", "0"),
        ("--proxy-url", "http://192.168.5.4:30000"),
        ("--dp", "16"),
        ("--ep", "16"),
    }
    assert "--tp" not in server
    assert pairs(other) >= {("--node-rank", "1"), ("--server-name", "192.168.5.5")}
    assert head.environment["LMDEPLOY_DP_MASTER_ADDR"] == "192.168.5.4"
    assert head.environment["LMDEPLOY_DP_MASTER_PORT"] == "5000"


def test_cpus_are_refused() -> None:
    with pytest.raises(InputError, match="no back end for CPUs"):
        ENGINE.default_image("cpu")
    with pytest.raises(InputError, match="no back end for CPUs"):
        ENGINE.launch(replace(ONE, device="cpu"))


def test_images() -> None:
    assert ENGINE.default_image("cuda") == "openmmlab/lmdeploy:v0.18.0-cu12.8"
    for image, version, cuda in (
        ("openmmlab/lmdeploy:v0.18.0-cu12.8", "0.18.0", "12.8"),
        ("mirror:5000/openmmlab/lmdeploy:v0.17.0-cu13.0@sha256:0123", "0.17.0", "13.0"),
        ("openmmlab/lmdeploy:v0.9.2.post1-cu12", "0.9.2.post1", ""),
        ("openmmlab/lmdeploy:latest", None, "12.8"),
        ("ours:1", None, ""),
    ):
        assert (ENGINE.image_version(image), ENGINE.cuda(image)) == (version, cuda), image


def test_values_are_typed_by_destination() -> None:
    words = ["--session-len", "32768", "--quant-policy", "int8"]
    assert ENGINE.check_arguments(words).values == {"session_len": 32768, "quant_policy": "int8"}


@together(
    ("words", "what", "hint"),
    [
        ("--tp 4", "--tp is set by the plan", "tensor_parallel"),
        ("--api-keys a", "--api-keys is set by the plan", "no process list shows it"),
        ("--server-port 8000", "--server-port is set by the plan", "engine_port"),
        ("--model-name x", "--model-name is set by the plan", "served_model_name"),
        ("--disable-vision-encoder", "was removed", "write --language-model-only"),
        ("--enable-metrics", "was removed", "metrics are on"),
        ("--session_len 5", "has no --session_len", "Did you mean --session-len?"),
        ("--quant-policy 5", "cannot be '5'", "Its values are 0,"),
        ("--tool-call-parser hermes", "cannot be 'hermes'", "qwen"),
        ("--cache-max-entry-count much", "cannot take 'much'", "a number"),
        ("--cache-max-entry-count 1.2", "is out of range", "from 0.001 to 0.999"),
        ("--hf-overrides [1]", "has a value of another type", "a JSON object"),
    ],
)
def test_wrong_arguments(words: str, what: str, hint: str) -> None:
    problems = ENGINE.check_arguments(words.split()).problems
    assert len(problems) == 1
    assert what in problems[0].what
    assert hint in (problems[0].hint or "")


@pytest.mark.parametrize(
    ("checkpoint", "values", "nodes", "expected"),
    [
        (QWEN, {}, 1, "turbomind"),
        (QWEN, {}, 2, "pytorch"),
        (QWEN, {"backend": "pytorch"}, 1, "pytorch"),
        (LLAMA, {"backend": "turbomind"}, 2, "turbomind"),
        (R1, {}, 1, "pytorch"),
        (QWEN, {"dp": 2}, 1, "pytorch"),
        (QWEN, {"quant_policy": "fp8"}, 1, "pytorch"),
        (QWEN.model_copy(update={"dtype": "gptq"}), {}, 1, "turbomind"),
        (QWEN.model_copy(update={"dtype": "gptq"}), {}, 2, "turbomind"),
        (QWEN.model_copy(update={"dtype": "smooth_quant"}), {}, 1, "pytorch"),
    ],
)
def test_the_back_end_that_is_taken(
    checkpoint: Checkpoint, values: dict[str, Any], nodes: int, expected: str
) -> None:
    assert backend.choose(ENGINE.answers.support, checkpoint, values, nodes=nodes) == expected


@pytest.mark.parametrize(
    ("changes", "task", "values", "clause"),
    [
        (
            {"architecture": "MambaForCausalLM"},
            "chat",
            {},
            "does not support the architecture MambaForCausalLM",
        ),
        ({"dtype": "bitsandbytes"}, "chat", {}, "does not read checkpoints quantised as bitsandbytes"),
        ({"architecture": "DeepseekV3ForCausalLM"}, "chat", {"backend": "turbomind"}, "--backend pytorch"),
        ({}, "embedding", {}, "no API for embedding"),
        ({}, "reward", {}, "rewards of reward models only"),
        ({}, "vision", {}, "reads no images"),
        ({}, "chat", {"backend": "turbomind", "quant_policy": "fp8"}, "no FP8 KV cache"),
        ({}, "chat", {"backend": "turbomind", "num_gpu_blocks": 9}, "TurboMind has no --num-gpu-blocks"),
    ],
)
def test_what_is_not_served(changes: dict[str, Any], task: Any, values: dict[str, Any], clause: str) -> None:
    found = ENGINE.support_problems(QWEN.model_copy(update=changes), None, task, values)
    assert any(clause in problem for problem in found), found


@together(
    ("id", "back_ends"),
    [
        ("zai-org/GLM-4.5-FP8", []),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", []),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", []),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", []),
        ("nvidia/Llama-4-Scout-17B-16E-Instruct-FP8", []),
        ("moonshotai/Kimi-K2-Thinking", ["pytorch"]),  # INT4 in groups of 32
        ("RedHatAI/Qwen3-32B-quantized.w4a16", []),  # group_0 has no format of its own
        ("Qwen/Qwen2.5-14B-Instruct-GPTQ-Int4", ["turbomind"]),
        ("Qwen/Qwen3-14B-FP8", ["turbomind", "pytorch"]),
        ("deepseek-ai/DeepSeek-V4-Flash", ["pytorch"]),  # experts in MXFP4
        ("nvidia/DeepSeek-V4-Flash-NVFP4", []),
    ],
)
def test_the_method_of_a_quantisation_decides_the_back_end(id: str, back_ends: list[str]) -> None:
    assert backend.serving(ENGINE.answers.support, model(id)) == back_ends


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}
INT4 = {"num_bits": 4, "group_size": 32, "strategy": "group", "symmetric": True, "type": "int"}
GROUP = {"targets": ["Linear"], "format": "pack-quantized", "weights": INT4}
PACKED = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "quantization_status": "compressed",
    "config_groups": {"group_0": GROUP},
}


@together(
    ("config", "back_ends", "clause"),
    [
        (GPTQ, ["turbomind"], ""),
        (GPTQ | {"desc_act": True}, [], "gptq int4 (desc_act)"),
        (GPTQ | {"sym": False}, [], "gptq int4 (not symmetric)"),
        (GPTQ | {"bits": 8}, [], "gptq int8"),
        (GPTQ | {"group_size": -1}, [], "gptq int4"),
        (AWQ, ["turbomind", "pytorch"], ""),
        (AWQ | {"version": "GEMM"}, ["pytorch"], "awq int4 (a version that is not gemm)"),
        (PACKED, ["turbomind", "pytorch"], ""),
        (
            PACKED | {"config_groups": {"group_0": GROUP | {"format": None}}},
            ["pytorch"],
            "no format of its own",
        ),
        (PACKED | {"quantization_status": "frozen"}, ["turbomind"], "a status that is not compressed"),
        (
            PACKED | {"config_groups": {"group_0": GROUP | {"targets": ["re:.*mlp.*"]}}},
            ["turbomind"],
            "one group",
        ),
        (
            PACKED | {"config_groups": {"group_0": GROUP | {"weights": INT4 | {"symmetric": False}}}},
            ["turbomind"],
            "not symmetric",
        ),
    ],
)
def test_what_a_back_end_reads_of_a_method(config: dict[str, Any], back_ends: list[str], clause: str) -> None:
    llama = QWEN.model_copy(
        update={"quantization": quantization.read(config, "here"), "architecture": "Qwen3MoeForCausalLM"}
    )
    assert backend.serving(ENGINE.answers.support, llama) == back_ends
    problems = [
        backend.problems(ENGINE.answers, llama, None, "chat", {"backend": name}) for name in backend.TITLES
    ]
    assert clause in str(problems)


CUDA_13 = "openmmlab/lmdeploy:v0.18.0-cu13.0"
V4, GLM_FLASH = "deepseek-ai/DeepSeek-V4-Flash", "zai-org/GLM-4.7-Flash"


def start(gpu: str, image: str = "", nodes: int = 1, **values: Any) -> EngineStart:
    image = image or ENGINE.default_image("cuda")
    return EngineStart(image, ENGINE.cuda(image), gpus.find(gpu), nodes, values)


@pytest.mark.parametrize(
    ("id", "start", "clause"),
    [
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", start("H100-80G"), "it reads full_attention_interval"),
        (V4, start("H200"), f"write engine_image={CUDA_13}"),
        (V4, start("B200", CUDA_13), "needs FlashMLA"),
        (R1.id, start("B200"), "needs FlashMLA"),
        (R1.id, start("H200", quant_policy="8"), "remove --quant-policy"),
        ("zai-org/GLM-5", start("A100-80G", nodes=4), "needs FlashMLA"),
        (GLM_FLASH, start("B200", nodes=2), "needs FlashMLA"),
        (QWEN.id, start("B300"), "TurboMind has no kernels for B300-288G (compute capability 10.3): write"),
    ],
)
def test_what_an_image_has_no_kernel_or_package_for(id: str, start: EngineStart, clause: str) -> None:
    (problem,) = ENGINE.start_problems(model(id), start)
    assert clause in problem


@pytest.mark.parametrize(
    ("id", "start"),
    [
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", start("H100-80G", "ours:1")),
        (V4, start("H200", CUDA_13)),
        (R1.id, start("A100-80G", nodes=4)),
        (R1.id, start("H200")),
        (R1.id, start("B200", "ours:1")),
        ("zai-org/GLM-5", start("H200", quant_policy="fp8")),
        (GLM_FLASH, start("B200")),
        (QWEN.id, start("B200")),
        (QWEN.id, start("B300", backend="pytorch")),
        (QWEN.id, start("T4")),
    ],
)
def test_what_starts(id: str, start: EngineStart) -> None:
    assert ENGINE.start_problems(model(id), start) == []


@pytest.mark.parametrize("size", [32, 64, 128])
def test_turbomind_reads_awq_in_groups_of_128(size: int) -> None:
    awq = model("Qwen/Qwen2.5-14B-Instruct-AWQ")
    assert awq.quantization is not None
    quantization = awq.quantization.model_copy(update={"group_size": size})
    grouped = awq.model_copy(update={"quantization": quantization})
    assert ("turbomind" in backend.serving(ENGINE.answers.support, grouped)) == (size == 128)


def test_fp8_that_no_back_end_reads_is_converted_or_refused() -> None:
    glm, nvidia = model("zai-org/GLM-4.5-FP8"), model("nvidia/Llama-3.1-8B-Instruct-FP8")
    h100 = gpus.find("H100-80G")
    assert precision.choose(glm, h100, ENGINE, device="cuda").convert_to_bf16
    assert ENGINE.support_problems(glm.converted, h100, "chat", {}) == []
    assert any("modelopt fp8" in problem for problem in ENGINE.support_problems(nvidia, h100, "chat", {}))


def test_what_is_served() -> None:
    assert ENGINE.support_problems(QWEN, None, "chat", {}) == []
    assert ENGINE.support_problems(R1, None, "chat", {}) == []
    vision = QWEN.model_copy(update={"architecture": "Qwen2_5_VLForConditionalGeneration"})
    assert ENGINE.support_problems(vision, None, "vision", {}) == []


@pytest.mark.parametrize(
    ("checkpoint", "nodes", "tensor", "pipeline", "values", "clause"),
    [
        (LLAMA, 2, 8, 2, {}, "no pipeline parallelism"),
        (QWEN, 1, 3, 1, {}, "40 attention heads are not divisible by 3"),
        (QWEN, 1, 5, 1, {}, "8 KV heads can neither be divided by 5"),
        (R1, 2, 16, 1, {"ep": 8}, "--ep must be tensor_parallel, 16"),
        (R1, 2, 16, 1, {"dp": 3}, "--dp 3 does not divide tensor_parallel=16"),
        (R1, 4, 16, 1, {"dp": 2, "ep": 16}, "--dp 2 cannot be spread evenly over 4 nodes"),
        (R1, 2, 16, 1, {"cp": 2}, "--cp is TurboMind's"),
        (R1, 2, 16, 1, {"distributed_executor_backend": "mp"}, "serves one node without --dp"),
        (R1.model_copy(update={"attention_heads": 192}), 3, 24, 1, {}, "2048 is not divisible by 24"),
        (QWEN, 1, 8, 1, {"backend": "turbomind", "cp": 3}, "--cp 3 does not divide"),
        (QWEN, 1, 8, 1, {"backend": "turbomind", "dp": 2}, "--dp makes copies"),
    ],
)
def test_layouts_that_are_refused(
    checkpoint: Checkpoint, nodes: int, tensor: int, pipeline: int, values: dict[str, Any], clause: str
) -> None:
    found = ENGINE.layout_problems(
        checkpoint,
        Machines(nodes, 8),
        ENGINE.layout(tensor, pipeline, values),
        dtype=checkpoint.dtype,
        values=values,
    )
    assert any(clause in problem for problem in found), found


@pytest.mark.parametrize(
    ("checkpoint", "nodes", "tensor", "values"),
    [
        (QWEN, 1, 4, {}),
        (LLAMA, 2, 16, {}),
        (R1, 2, 16, {}),
        (R1, 2, 16, {"dp": 16, "ep": 16}),
        (R1, 2, 16, {"dp": 4, "ep": 16}),
        (QWEN, 1, 8, {"backend": "turbomind", "cp": 2}),
    ],
)
def test_layouts_that_are_accepted(
    checkpoint: Checkpoint, nodes: int, tensor: int, values: dict[str, Any]
) -> None:
    layout = ENGINE.layout(tensor, 1, values)
    assert ENGINE.layout_problems(checkpoint, Machines(nodes, 8), layout, dtype="bf16", values=values) == []


def test_the_kv_cache_is_a_fraction_of_what_the_weights_leave() -> None:
    gpu = gpus.find("A100-80G")
    layout = Layout(4)
    use = ENGINE.memory_use(QWEN, gpu, layout, {})
    buffers = (8192 + 2 * 384) * QWEN.vocab_size * 2
    assert use.terms == {"runtime_buffers": buffers}
    assert use.pool_fraction == 0.8
    # 8 KV heads over 4 ranks, keys and values of 128, 64 layers, 2 bytes.
    assert use.kv_bytes_per_token == 2 * 2 * 128 * 64 * 2
    result = fit(QWEN, gpu, layout, ENGINE, dtype="bf16", arguments={})
    weights = weight_bytes_per_rank(QWEN, layout, dtype="bf16", use=use)
    free = gpu.memory_bytes - result.terms["outside_engine"] - buffers
    assert result.kv_pool_bytes == pytest.approx(0.8 * (free - weights), abs=2)
    assert result.terms["left_free"] == pytest.approx(0.2 * (free - weights), abs=2)
    halved = fit(QWEN, gpu, layout, ENGINE, dtype="bf16", arguments={"cache_max_entry_count": 0.4})
    assert result.kv_pool_bytes is not None
    assert halved.kv_pool_bytes == pytest.approx(result.kv_pool_bytes / 2, rel=0.001)


@pytest.mark.parametrize(
    ("checkpoint", "values", "expected"),
    [
        (R1, {}, (512 + 64) * 2 * 61),
        (QWEN, {"quant_policy": "8"}, 2 * 64 * (2 * 128 + 8)),
        (QWEN, {"quant_policy": "int4"}, 2 * 64 * (128 + 8)),
        (QWEN, {"quant_policy": "fp8"}, 2 * 64 * 2 * 128),
        (QWEN, {"backend": "turbomind", "cp": 2}, 4 * 64 * 2 * 128 * 2 // 2),
    ],
)
def test_bytes_of_one_token(checkpoint: Checkpoint, values: dict[str, Any], expected: int) -> None:
    layout = ENGINE.layout(4, 1, values)
    assert ENGINE.memory_use(checkpoint, gpus.find("H200"), layout, values).kv_bytes_per_token == expected


@together("row", MEASURED)
def test_memory_as_lmdeploys_own_functions_divide_it(row: dict[str, Any]) -> None:
    values = {"quant_policy": row["quant_policy"], "max_batch_size": row["batch"]}
    use = ENGINE.memory_use(model(row["model"]), gpus.find("H200"), Layout(4), values)
    assert use.kv_bytes_per_token == row["token_bytes"]
    pool = use.pool_fraction * (row["free"] - use.terms["runtime_buffers"])
    assert 0 <= pool // use.kv_bytes_per_token - row["tokens"] < 64  # whole blocks


def test_with_dp_and_ep_the_dense_layers_are_copied() -> None:
    values = {"dp": 16, "ep": 16}
    use = ENGINE.memory_use(R1, gpus.find("H200"), ENGINE.layout(16, 1, values), values)
    assert use.attention_tensor == 1
    # 3 dense layers of 18432 and 58 shared experts of 2048, three matrices of 7168 each, in FP8.
    assert use.terms["copied_dense_layers"] == pytest.approx(3 * 7168 * (3 * 18432 + 58 * 2048) * 15 / 16)


def test_what_diagnose_reads() -> None:
    found = profile(ENGINE.log())
    for line, stage in (
        ("Ray: waiting for the head at 10.0.0.1:5000", "waiting for the head"),
        ("Ray: 1 of 2 nodes have joined", "1 of 2 nodes have joined"),
        ("Loading weights from safetensors:  62%|######    | 5/8", "loading weights, 62 %"),
        ("INFO:     Uvicorn running on http://10.0.0.1:8000 (Press CTRL+C to quit)", "ready"),
    ):
        assert found.doing([line]) == stage
    assert "sekrit" not in found.shown("Namespace(tp=4, api_keys=['sekrit'])")
    assert ENGINE.metrics.running.name == "lmdeploy:num_requests_running"


def test_dialect_readiness_and_fp8() -> None:
    dialect = ENGINE.request_dialect({"tool_call_parser": "qwen3"})
    assert dialect.tool_parser == "qwen3"
    assert dialect.grammar is None
    assert set(dialect.ignored) == {"presence_penalty", "frequency_penalty"}
    assert ENGINE.readiness("chat").probe_path == "/v1/chat/completions"
    assert ENGINE.readiness("reward").probe_path == "/pooling"
    assert ENGINE.fp8_capability(R1) == (8, 9)
    only_turbomind = QWEN.model_copy(update={"architecture": "GptOssForCausalLM", "dtype": "mxfp4"})
    assert ENGINE.fp8_capability(only_turbomind) == (7, 0)


# A package with LMDeploy's names: the program must put the key into the arguments and nowhere else.
_STAND_IN = {
    "__init__.py": "",
    "cli/__init__.py": "",
    "cli/serve.py": """\
        class SubCliServe:
            @staticmethod
            def api_server(args):
                \"\"\"Serve.\"\"\"
                import os, sys
                print(os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"])
                words = open("/proc/self/cmdline").read() + str(sys.argv)
                print(args.api_keys, args.words, "key seen:", "sekrit" in words)
            @staticmethod
            def proxy(args):
                pass
        """,
    "cli/entrypoint.py": """\
        import argparse, sys
        from .serve import SubCliServe
        def run():
            parser = argparse.ArgumentParser()
            parser.add_argument("words", nargs="*")
            parser.set_defaults(run=SubCliServe.api_server)
            args = parser.parse_args()
            args.run(args)
        """,
}


def test_the_key_reaches_lmdeploy_and_no_process_list(tmp_path: Path) -> None:
    for name, text in _STAND_IN.items():
        file = tmp_path / "lmdeploy" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")
    config = tmp_path / "engine.yaml"
    config.write_text("api-key: sekrit\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(config), "serve", "api_server"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    token = hashlib.sha256(config.read_bytes()).hexdigest()
    assert done.stdout.splitlines() == [
        f"token {token}",
        "['sekrit'] ['serve', 'api_server'] key seen: False",
    ]
