"""What matters first in a plan: whether it serves, and what would make it fail or slow. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headfirst.decide.plan.host import network
from headfirst.decide.plan.pool import Pool
from headfirst.decide.plan.sizing.fit import memory_text
from headfirst.decide.plan.types import Fit, PlannedService, Verdict

_ARM = (
    "Hosts with {gpu} are ARM (aarch64). Headfirst was not tested on ARM. The image must be published for "
    "arm64; bundles and images that are built here are for x86-64."
)
_NVLINK_DOMAIN = (
    "NVLink between hosts with {gpu} is not used: its IMEX channels are not set up. Ranks of several hosts "
    "use RDMA or sockets."
)
_NOT_READ = (
    "it is not known whether RDMA connects them. Without RDMA, each token waits for TCP. Set hca in the "
    "inventory, or plan with --probe: `deploy up` reads the hosts, too."
)
_NO_RDMA = "no RDMA connects them: each token waits for TCP. Replicas of one node avoid that."


def warnings(pool: Pool) -> list[str]:
    """Of replicas that are alike, a sentence each, the one with the largest effect first."""
    gpu, layout, nodes = pool.gpu, pool.layout, pool.nodes
    on_node, texts = layout.world // nodes, []
    on_gpus = pool.service.settings.engine_device == "cuda"
    if on_gpus and max(layout.tensor, layout.expert) > on_node:
        rdma = network.rdma_between(pool.service.replicas[0].hosts, gpus=True)
        what = "The experts" if layout.expert > on_node else "The tensor-parallel ranks"
        why = {True: "", False: _NO_RDMA, None: _NOT_READ}[rdma]
        texts += [f"{what} are on {nodes} nodes, and {why}"] if why else []
    if gpu and gpu.host == "aarch64":
        texts.append(_ARM.format(gpu=gpu.name))
    if gpu and gpu.name.startswith(("GB200", "GB300")) and nodes > 1:
        texts.append(_NVLINK_DOMAIN.format(gpu=gpu.name))
    return texts


def verdict(services: Sequence[PlannedService]) -> Verdict:
    """The worst of the services, or the KV cache of each."""
    pools = [
        (sized.fit, " ".join(filter(None, (str(service), replicas[0].role))))
        for service in services
        for sized, replicas in service.pools
    ]

    def of(matches: Callable[[Fit], bool]) -> str:
        return ", ".join(name for fit, name in pools if matches(fit))

    if names := of(lambda fit: fit.fits is False):
        return Verdict(state="unfit", text=f"Does not fit: {names}.")
    if names := of(lambda fit: fit.uncertain):
        return Verdict(state="uncertain", text=f"Uncertain: {names} fits if no estimate is too low.")
    if names := of(lambda fit: fit.fits is None):
        return Verdict(state="unknown", text=f"Not computed for {names}: the memory of GPUs is not known.")
    several = len(pools) > 1
    each = [f"{memory_text(fit.kv_pool_bytes or 0)}{f' ({name})' if several else ''}" for fit, name in pools]
    return Verdict(state="fits", text=f"Fits: {', '.join(each)} of KV cache on each GPU.")
