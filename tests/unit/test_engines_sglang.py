"""SGLang's command line and environment per rank; the reference commands of the procedure as data."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from headfirst.common.errors import InputError
from headfirst.decide import engines
from headfirst.decide.engines.base import LaunchRequest
from headfirst.decide.engines.layout import Layout

ENGINE = engines.get("sglang")

A100X4 = LaunchRequest(
    model_dir="/data/deepseek-R1-fp16",
    served_name="DeepSeek-R1",
    layout=Layout(32, 1),
    nodes=4,
    rank=0,
    head_address="192.168.5.4",
    dist_port=5000,
    address="192.168.5.4",
    port=30000,
    trust_remote_code=True,
    config_file="/etc/headfirst/engine.yaml",
    nic="eth0",
    hca="mlx5_1,mlx5_2,mlx5_3,mlx5_4",
    ib_gid_index=3,
)
LAB = replace(
    A100X4,
    layout=Layout(2, 1),
    nodes=2,
    device="cpu",
    trust_remote_code=False,
    hca=None,
    nic="eth1",
    cpu_cores=("0-1",),
)


def pairs(argv: list[str]) -> set[tuple[str, str]]:
    return set(itertools.pairwise(argv))


def test_the_reference_command_of_the_head() -> None:
    argv = ENGINE.launch(A100X4).command
    assert argv[:3] == ["python3", "-m", "sglang.launch_server"]
    assert pairs(argv) >= {
        ("--model-path", "/data/deepseek-R1-fp16"),
        ("--tp", "32"),
        ("--dist-init-addr", "192.168.5.4:5000"),
        ("--nnodes", "4"),
        ("--node-rank", "0"),
        ("--host", "0.0.0.0"),
        ("--port", "30000"),
        ("--served-model-name", "DeepSeek-R1"),
        ("--config", "/etc/headfirst/engine.yaml"),
    }
    assert "--trust-remote-code" in argv
    assert "--api-key" not in argv


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_workers_name_the_head_and_their_own_rank(rank: int) -> None:
    argv = ENGINE.launch(replace(A100X4, rank=rank, address=f"192.168.5.{4 + rank}")).command
    assert pairs(argv) >= {("--dist-init-addr", "192.168.5.4:5000"), ("--node-rank", str(rank))}
    assert "--host" not in argv
    assert "--config" not in argv


def test_the_reference_environment() -> None:
    assert ENGINE.launch(replace(A100X4, rank=1, address="192.168.5.5")).environment == {
        "NCCL_SOCKET_IFNAME": "=eth0",
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_DEBUG": "INFO",
        "NCCL_IB_HCA": "mlx5_1,mlx5_2,mlx5_3,mlx5_4",
        "NCCL_IB_QPS_PER_CONNECTION": "8",
        "NCCL_SOCKET_FAMILY": "AF_INET",
        "NCCL_IB_TIMEOUT": "22",
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_RETRY_CNT": "12",
        "NCCL_IB_GID_INDEX": "3",
        # beyond the reference: gloo and the ranks' queue would choose an interface of their own
        "GLOO_SOCKET_IFNAME": "eth0",
        "SGLANG_HOST_IP": "192.168.5.5",
    }


def test_what_changes_the_command_and_the_environment() -> None:
    one = ENGINE.launch(replace(A100X4, layout=Layout(8, 1), nodes=1))
    assert not {"--nnodes", "--node-rank", "--dist-init-addr"} & set(one.command)
    assert one.environment == {}
    without_rdma = ENGINE.launch(replace(A100X4, hca=None)).environment
    assert not [name for name in without_rdma if name.startswith("NCCL_IB")]
    assert without_rdma["NCCL_SOCKET_IFNAME"] == "=eth0"
    asks_for_nvls = replace(A100X4, extra_args=("--enable-nccl-nvls",))
    assert "NCCL_NVLS_ENABLE" not in ENGINE.launch(asks_for_nvls).environment
    assert ("--pp-size", "2") in pairs(ENGINE.launch(replace(A100X4, layout=Layout(16, 2))).command)


def test_another_runtime_is_refused() -> None:
    with pytest.raises(InputError, match="SGLang has no runtime 'ray'"):
        ENGINE.launch(replace(A100X4, runtime="ray"))


def test_cpu_ranks() -> None:
    launch = ENGINE.launch(LAB)
    assert pairs(launch.command) >= {
        ("--device", "cpu"),
        ("--attention-backend", "torch_native"),
        ("--max-total-tokens", "4096"),
        ("--mem-fraction-static", "0.2"),
        ("--dist-timeout", "120"),
    }
    assert "--trust-remote-code" not in launch.command
    assert launch.environment == {
        "SGLANG_HOST_IP": "192.168.5.4",
        "GLOO_SOCKET_IFNAME": "eth1",
        "SGLANG_USE_CPU_ENGINE": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "SGLANG_CPU_OMP_THREADS_BIND": "0-1",
    }
    two_on_one_node = ENGINE.launch(replace(LAB, nodes=1, cpu_cores=("0-1", "2-3"))).environment
    assert two_on_one_node["SGLANG_CPU_OMP_THREADS_BIND"] == "0-1|2-3"


def test_the_users_arguments_and_environment_win() -> None:
    request = replace(
        LAB,
        extra_args=("--dist-timeout=600", "--max-total-tokens", "100", "--trust-remote-code"),
        extra_env={"NCCL_DEBUG": "WARN", "GLOO_SOCKET_IFNAME": "lo"},
        trust_remote_code=True,
    )
    argv = ENGINE.launch(request).command
    assert argv.count("--max-total-tokens") == argv.count("--trust-remote-code") == 1
    assert "--dist-timeout" not in argv
    assert argv[-4:] == ["--dist-timeout=600", "--max-total-tokens", "100", "--trust-remote-code"]
    assert ENGINE.launch(request).environment["GLOO_SOCKET_IFNAME"] == "lo"
    assert ENGINE.launch(request).environment["NCCL_DEBUG"] == "WARN"


@pytest.mark.parametrize("request_", [A100X4, LAB, replace(A100X4, rank=3)])
def test_our_own_command_line_is_one_that_the_engine_accepts(request_: LaunchRequest) -> None:
    """Only what the plan owns may be refused, and only for that reason."""
    for problem in ENGINE.check_arguments(ENGINE.launch(request_).command[3:]).problems:
        assert "is set by the plan" in problem.what


def test_images_and_config_file() -> None:
    assert ENGINE.default_image("cuda") == "lmsysorg/sglang:v0.5.23"
    assert ENGINE.default_image("cpu") != ENGINE.default_image("cuda")
    assert ENGINE.config_file(api_key="k") == {"api-key": "k"}
    assert ENGINE.readiness("chat").path == "/health_generate"
