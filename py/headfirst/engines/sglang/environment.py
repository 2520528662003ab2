"""SGLang's environment for one rank: how the ranks find each other, and NCCL's settings."""

from __future__ import annotations

from headfirst.engines.base import LaunchRequest


def environment(request: LaunchRequest) -> dict[str, str]:
    """Variables of the container, without secrets; the user's `extra_env` wins over all of them."""
    env = {"SGLANG_HOST_IP": request.address} if request.nodes > 1 else {}
    if request.nic and request.nodes > 1:
        # Without it gloo takes the interface of the host name, often docker0 or loopback.
        env["GLOO_SOCKET_IFNAME"] = request.nic
    env |= _cpu(request) if request.device == "cpu" else _nccl(request)
    return env | dict(request.extra_env)


def _cpu(request: LaunchRequest) -> dict[str, str]:
    return {
        "SGLANG_USE_CPU_ENGINE": "1",
        "TORCHDYNAMO_DISABLE": "1",  # otherwise the first request compiles, and needs a g++
        # Left out, SGLang demands one NUMA node for every rank of the whole cluster.
        "SGLANG_CPU_OMP_THREADS_BIND": "|".join(request.cpu_cores),
    }


def _nccl(request: LaunchRequest) -> dict[str, str]:
    """NCCL between nodes: over RDMA where an HCA is named, else over the NIC."""
    if request.nodes == 1:
        return {}
    env = {
        "NCCL_DEBUG": "INFO",  # says NET/IB or NET/Socket: whether RDMA is really used
        "NCCL_SOCKET_FAMILY": "AF_INET",
    }
    if "--enable-nccl-nvls" not in request.extra_args:
        env["NCCL_NVLS_ENABLE"] = "0"  # NVLink SHARP needs Hopper and its fabric manager
    if request.nic:
        env["NCCL_SOCKET_IFNAME"] = request.nic
    if request.hca is None:
        return env
    env |= {
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_HCA": request.hca,
        "NCCL_IB_QPS_PER_CONNECTION": "8",
        "NCCL_IB_TIMEOUT": "22",
        "NCCL_IB_RETRY_CNT": "12",
    }
    if request.ib_gid_index is not None:
        env["NCCL_IB_GID_INDEX"] = str(request.ib_gid_index)
    return env
