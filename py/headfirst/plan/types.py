"""The plan: every decision of a deployment, made once and only carried out afterwards.

Bytes are plain integers; addresses are IPv4 strings; `command` and `docker_run` are argument lists.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from headfirst.containers.spec import Container


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Fit(_Frozen):
    """Memory per GPU, term by term (see plan/fit.py for the formula and its source)."""

    fits: bool | None  # None: the GPUs' memory is not known, or the engine runs on CPUs
    reason: str
    gpu_memory_bytes: int | None
    weight_bytes_total: int
    weight_bytes_per_rank: int
    reserved_bytes: int
    static_fraction: float | None
    kv_bytes_per_token: int
    kv_pool_bytes: int | None
    kv_tokens: int | None
    terms: dict[str, int]


class Rate(_Frozen):
    """What the slowest link, disk or processor of its kind does, and how that is known."""

    what: Literal["download", "network", "disk", "processor"]
    bytes_per_second: float
    text: str  # as a person says it: `25 Gbit/s at node2`, `64 cores`
    known: Literal["given", "measured", "assumed"]


class WeightsTime(_Frozen):
    """How long the weights take until every node has proven its copy (see plan/transfer.py)."""

    seconds: float
    stages: dict[str, float]  # seconds of each stage alone: fetch, broadcast, convert or verify, disk
    bottleneck: str  # the stage that takes longest
    reason: str
    documented_seconds: float  # download, convert on the head, copy to one node after the other
    rates: list[Rate]


class Weights(_Frozen):
    """Where the checkpoint comes from, where it lies on every node, and what it needs on disk and in time."""

    model: str
    source: str  # modelscope | huggingface | path
    revision: str | None
    directory: str  # folder that the engine serves from, the same on every node
    source_bytes: int
    served_bytes: int
    keep_fp8: bool  # the source stays beside the converted checkpoint
    disk_bytes: int  # the most that lies on a node's disk at a time
    sessions: int  # data connections from each node to the next
    time: WeightsTime


class NodeNetwork(_Frozen):
    """How a rank finds the others (see plan/network.py). None: the engine and NCCL choose."""

    nic: str | None = None  # NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME
    hca: str | None = None  # NCCL_IB_HCA
    ib_gid_index: int | None = None  # NCCL_IB_GID_INDEX
    host_ip: str  # SGLANG_HOST_IP
    reasons: list[str]


class Node(_Frozen):
    """One node's rank: the container that runs there, to the last flag."""

    host: str
    address: str
    rank: int
    network: NodeNetwork
    container: Container
    docker_run: list[str]


class Webui(_Frozen):
    """The chat page; secrets are not part of the plan."""

    host: str
    address: str
    port: int
    url: str
    container: Container
    docker_run: list[str]


class Plan(_Frozen):
    """What `deploy plan` prints, `deploy up` carries out and the tests assert."""

    cluster: str
    model: str
    model_described_by: str  # folder | hub | catalogue, and why when it is not the best one
    served_model_name: str
    engine: str
    engine_version: str
    device: str  # cuda | cpu
    tensor_parallel: int
    pipeline_parallel: int
    world_size: int
    convert_to_bf16: bool
    convert_reason: str
    trust_remote_code: bool  # the engine runs Python code of the model's repository
    trust_reason: str
    fit: Fit
    weights: Weights
    engine_port: int
    dist_port: int
    engine_url: str
    nodes: list[Node]
    webui: Webui
