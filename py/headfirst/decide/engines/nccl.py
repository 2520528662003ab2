"""NCCL's and gloo's environment for one rank: the same for every engine that runs on torch.distributed."""

from __future__ import annotations

from headfirst.decide.engines.base import LaunchRequest


def environment(request: LaunchRequest, *, nvls: bool = False) -> dict[str, str]:
    """How the ranks of several nodes talk: over RDMA where an HCA is named, else over the NIC.

    `nvls` leaves NVLink SHARP on, which needs Hopper and its fabric manager. Empty on one node.
    """
    if request.nodes == 1:
        return {}
    # Without it gloo takes the interface of the host name, often docker0 or loopback.
    env = {"GLOO_SOCKET_IFNAME": request.nic} if request.nic else {}
    if request.device == "cpu":
        return env
    env |= {
        "NCCL_DEBUG": "INFO",  # prints NET/IB or NET/Socket: whether RDMA is really used
        "NCCL_SOCKET_FAMILY": "AF_INET",
    }
    if not nvls:
        env["NCCL_NVLS_ENABLE"] = "0"
    if request.nic:
        # Without "=" NCCL takes eth1 for eth10 too (NCCL's documentation, NCCL_SOCKET_IFNAME).
        env["NCCL_SOCKET_IFNAME"] = f"={request.nic}"
    return env | _rdma(request)


def _rdma(request: LaunchRequest) -> dict[str, str]:
    if request.hca is None:
        return {}
    env = {
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_HCA": request.hca,
        "NCCL_IB_QPS_PER_CONNECTION": "8",
        "NCCL_IB_TIMEOUT": "22",
        "NCCL_IB_RETRY_CNT": "12",
    }
    if request.ib_gid_index is not None:
        env["NCCL_IB_GID_INDEX"] = str(request.ib_gid_index)
    return env


def rdma_devices(spec: str) -> list[str]:
    """Devices, without ports, that a value of NCCL_IB_HCA names; none where it names those to leave out."""
    if spec.startswith("^"):
        return []
    return [word.partition(":")[0] for word in spec.lstrip("=").split(",") if word]
