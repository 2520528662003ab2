"""vLLM's command line and environment per rank; published commands as data."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from headfirst.common.errors import InputError
from headfirst.decide import engines
from headfirst.decide.engines.base import LaunchRequest
from headfirst.decide.engines.layout import Layout
from model_configs import checkpoint

ENGINE = engines.get("vllm")

# docs/serving/parallelism_scaling.md of vLLM: two nodes with eight GPUs each.
LLAMA = LaunchRequest(
    model_dir="/models/Llama-3.1-405B-Instruct",
    served_name="Llama-3.1-405B-Instruct",
    layout=Layout(16, 1),
    nodes=2,
    rank=0,
    head_address="10.0.0.1",
    dist_port=5000,
    address="10.0.0.1",
    port=30000,
    config_file="/etc/headfirst/engine.yaml",
    nic="eth0",
    hca="mlx5_0,mlx5_1",
    ib_gid_index=3,
)
LAB = replace(LLAMA, layout=Layout(2, 1), device="cpu", hca=None, nic="eth1", cpu_cores=("0-1",))
# The seeds' command for one host with four GPUs.
DISTILL = LaunchRequest(
    model_dir="/models/DeepSeek-R1-Distill-Qwen-32B",
    served_name="DeepSeek-R1-Distill-Qwen-32B",
    layout=Layout(4, 1),
    nodes=1,
    rank=0,
    head_address="10.0.0.1",
    dist_port=5000,
    address="10.0.0.1",
    port=8000,
    config_file="/etc/headfirst/engine.yaml",
    extra_args=("--max-model-len", "32768", "--enforce-eager"),
)


def worker(request: LaunchRequest, rank: int = 1) -> LaunchRequest:
    return replace(request, rank=rank, address=f"10.0.0.{1 + rank}")


def pairs(argv: list[str]) -> set[tuple[str, str]]:
    return set(itertools.pairwise(argv))


def test_the_seeds_command_for_one_host() -> None:
    launch = ENGINE.launch(DISTILL)
    assert launch.entrypoint == "vllm"
    assert launch.command == [
        *("serve", "/models/DeepSeek-R1-Distill-Qwen-32B"),
        *("--served-model-name", "DeepSeek-R1-Distill-Qwen-32B"),
        *("--tensor-parallel-size", "4"),
        *("--host", "0.0.0.0", "--port", "8000"),
        *("--config", "/etc/headfirst/engine.yaml"),
        *("--max-model-len", "32768", "--enforce-eager"),
    ]
    assert launch.environment == {"VLLM_NO_USAGE_STATS": "1"}


def test_sixteen_gpus_of_two_nodes() -> None:
    head, other = (ENGINE.launch(request).command for request in (LLAMA, worker(LLAMA)))
    assert head == [
        *("serve", "/models/Llama-3.1-405B-Instruct", "--served-model-name", "Llama-3.1-405B-Instruct"),
        *("--tensor-parallel-size", "16", "--nnodes", "2", "--node-rank", "0"),
        *("--master-addr", "10.0.0.1", "--master-port", "5000"),
        *("--host", "0.0.0.0", "--port", "30000", "--config", "/etc/headfirst/engine.yaml"),
    ]
    assert pairs(other) >= {("--nnodes", "2"), ("--node-rank", "1"), ("--master-addr", "10.0.0.1")}
    assert other[-1] == "--headless"
    assert not {"--host", "--port", "--config", "--api-key"} & set(other)
    assert list(ENGINE.rendezvous_ports(LLAMA)) == [5000]


def test_the_environment_between_nodes() -> None:
    assert ENGINE.launch(worker(LLAMA)).environment == {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HOST_IP": "10.0.0.2",
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_DEBUG": "INFO",
        "NCCL_SOCKET_FAMILY": "AF_INET",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_HCA": "mlx5_0,mlx5_1",
        "NCCL_IB_QPS_PER_CONNECTION": "8",
        "NCCL_IB_TIMEOUT": "22",
        "NCCL_IB_RETRY_CNT": "12",
        "NCCL_IB_GID_INDEX": "3",
    }


def test_nodes_without_gpus() -> None:
    launch = ENGINE.launch(worker(LAB))
    assert launch.environment == {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HOST_IP": "10.0.0.2",
        "GLOO_SOCKET_IFNAME": "eth1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "0-1",
    }
    assert pairs(launch.command) >= {("--max-model-len", "2048"), ("--distributed-timeout-seconds", "120")}
    assert "--enforce-eager" in launch.command


def test_pipeline_stages_without_gpus_warm_up() -> None:
    launch = ENGINE.launch(worker(replace(LAB, layout=Layout(1, 2))))
    assert "--enforce-eager" not in launch.command
    assert ("--max-model-len", "2048") in pairs(launch.command)
    assert launch.environment["VLLM_USE_AOT_COMPILE"] == "0"


@pytest.mark.parametrize(
    ("changes", "backend"), [({}, False), ({"qk_nope_head_dim": 8}, True), ({"v_head_dim": 24}, True)]
)
def test_latent_attention_that_amx_does_not_pack(changes: dict[str, int], backend: bool) -> None:
    model = checkpoint("deepseek-ai--DeepSeek-R1")
    assert model.mla
    model = model.model_copy(update={"mla": model.mla.model_copy(update=changes)})
    words = pairs(ENGINE.launch(replace(LAB, checkpoint=model)).command)
    assert (("--attention-backend", "CPU_MLA") in words) == backend
    on_gpus = replace(LLAMA, checkpoint=model)
    assert "--attention-backend" not in ENGINE.launch(on_gpus).command


def test_the_users_arguments_and_variables_win_over_the_cpu_defaults() -> None:
    asked = replace(LAB, extra_args=("--max_model_len=512",), extra_env={"VLLM_CPU_KVCACHE_SPACE": "4"})
    launch = ENGINE.launch(asked)
    assert "--max-model-len" not in launch.command
    assert launch.environment["VLLM_CPU_KVCACHE_SPACE"] == "4"


# docs/serving/data_parallel_deployment.md of vLLM: DP 4 in two nodes of two, DeepSeek with EP on 16 GPUs.
DATA = replace(
    LLAMA,
    model_dir="/models/DeepSeek-V3",
    served_name="DeepSeek-V3",
    layout=Layout(1, 1, data=16, expert=16),
    extra_args=("--data-parallel-size", "16", "--enable-expert-parallel"),
)


def test_data_parallel_groups_that_nodes_hold_whole() -> None:
    head, other = (ENGINE.launch(request).command for request in (DATA, worker(DATA)))
    published = {
        ("--data-parallel-size", "16"),
        ("--data-parallel-size-local", "8"),
        ("--data-parallel-address", "10.0.0.1"),
        ("--data-parallel-rpc-port", "5000"),
    }
    assert pairs(head) >= published
    assert pairs(other) >= {*published, ("--data-parallel-start-rank", "8")}
    assert "--headless" in other and "--headless" not in head
    assert "--data-parallel-start-rank" not in head
    assert not {"--nnodes", "--node-rank", "--master-addr"} & {*head, *other}
    assert list(ENGINE.rendezvous_ports(DATA)) == [5000]


def test_data_parallel_groups_that_span_nodes() -> None:
    wide = replace(DATA, nodes=4, layout=Layout(16, 1, data=2), extra_args=("--data-parallel-size", "2"))
    commands = [ENGINE.launch(worker(wide, rank)).command for rank in range(4)]
    for rank, command in enumerate(commands):
        assert pairs(command) >= {
            ("--nnodes", "4"),
            ("--node-rank", str(rank)),
            ("--master-port", "5000"),
            ("--data-parallel-rpc-port", "5001"),
        }
        assert ("--headless" in command) == (rank > 0)
    assert list(ENGINE.rendezvous_ports(wide)) == [5000, 5001]


@pytest.mark.parametrize(
    ("task", "flags"),
    [
        ("chat", []),
        ("vision", []),
        ("embedding", ["--runner", "pooling", "--convert", "embed"]),
        ("rerank", ["--runner", "pooling", "--convert", "classify"]),
        ("reward", ["--runner", "pooling"]),
    ],
)
def test_each_task_has_its_flags(task: str, flags: list[str]) -> None:
    command = ENGINE.launch(replace(DISTILL, task=task, extra_args=())).command
    assert command[command.index("/etc/headfirst/engine.yaml") + 1 :] == flags


def test_a_flag_of_the_task_that_the_user_sets_is_given_once() -> None:
    command = ENGINE.launch(replace(DISTILL, task="rerank", extra_args=("--convert", "embed"))).command
    assert command.count("--convert") == 1


def test_adapters_are_named_by_folder() -> None:
    command = ENGINE.launch(replace(DISTILL, adapters={"sql": "/models/sql", "de": "/models/de"})).command
    at = command.index("--enable-lora")
    assert command[at : at + 4] == ["--enable-lora", "--lora-modules", "sql=/models/sql", "de=/models/de"]


def test_prefill_and_decode_find_each_other_over_the_data_network() -> None:
    config = json.dumps({"kv_connector": "NixlConnector", "kv_role": "kv_both"})
    request = replace(DISTILL, address="10.0.0.7", extra_args=("--kv-transfer-config", config))
    environment = ENGINE.launch(request).environment
    assert environment["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "10.0.0.7"
    assert environment["VLLM_NIXL_SIDE_CHANNEL_PORT"] == "5020"
    assert "VLLM_NIXL_SIDE_CHANNEL_HOST" not in ENGINE.launch(DISTILL).environment


def test_what_is_compiled_is_kept_in_the_folder_for_it() -> None:
    environment = ENGINE.launch(replace(DISTILL, cache_dir="/var/cache/engine")).environment
    assert environment["VLLM_CACHE_ROOT"] == "/var/cache/engine/vllm"
    assert environment["TRITON_CACHE_DIR"] == "/var/cache/engine/triton"


def test_on_ray_only_the_head_runs_vllm() -> None:
    request = replace(LLAMA, runtime="ray")
    head, other = ENGINE.launch(request), ENGINE.launch(worker(request))
    assert head.entrypoint == other.entrypoint == "bash"
    assert head.command[-1] != "--headless" and "serve" in head.command and "serve" not in other.command
    assert pairs(head.command) >= {("vllm", "serve"), ("--distributed-executor-backend", "ray")}
    assert "--nnodes" not in head.command
    assert "ray start --head" in head.command[1] and "--block" in other.command[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"runtime": "mpi"}, "vLLM has no runtime 'mpi'."), ({"runtime": "ray", "device": "cpu"}, "on CPUs")],
)
def test_runtimes_that_do_not_exist_are_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ENGINE.launch(replace(LAB, **changes))


@pytest.mark.parametrize(
    ("image", "version", "cuda"),
    [
        ("vllm/vllm-openai:v0.33.0", "0.33.0", "13.0"),
        ("vllm/vllm-openai:v0.32.0-cu129", "0.32.0", "12.9"),
        ("registry.example.org:5000/vllm@sha256:1234", None, ""),
        ("vllm/vllm-openai:latest", None, ""),
        ("headfirst/vllm-cpu:0.32.0", "0.32.0", ""),
    ],
)
def test_what_an_images_tag_names(image: str, version: str | None, cuda: str) -> None:
    assert ENGINE.image_version(image) == version
    assert ENGINE.cuda(image) == cuda


def test_probes_ask_what_the_task_serves() -> None:
    assert ENGINE.readiness("chat").probe_path == "/v1/chat/completions"
    assert ENGINE.readiness("embedding").probe_path == "/v1/embeddings"
    assert ENGINE.readiness("rerank").probe_path == "/v1/rerank"
    assert ENGINE.readiness("reward").probe_path == "/pooling"
    assert {ENGINE.readiness(task).path for task in ("chat", "embedding", "rerank", "reward")} == {"/health"}


def test_vllm_waits_for_its_processes_as_long_as_the_plan() -> None:
    """Its own limit is 600 s, which the weights of a large model exceed."""
    launch = ENGINE.launch(replace(DISTILL, ready_seconds=5400))
    assert launch.environment["VLLM_ENGINE_READY_TIMEOUT_S"] == "5400"
