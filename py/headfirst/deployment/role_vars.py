"""The plan as variables of the roles: the one place where decisions get the roles' names."""

from __future__ import annotations

from typing import Any

from headfirst import engines
from headfirst.cluster.secrets import Secrets
from headfirst.cluster.types import Cluster, Host
from headfirst.containers import names
from headfirst.deployment.artifacts import Artifacts, Tarball
from headfirst.deployment.hub_access import hub_environment, hub_token
from headfirst.deployment.inventory import with_gpus
from headfirst.deployment.lab_nodes import NODE_SHARE
from headfirst.plan import rdma
from headfirst.plan.types import Node, Plan

GB = 10**9
GPU_ROLES = ("nvidia_driver", "rdma", "nvidia_container_toolkit")
DATA_PARALLEL = {"--enable-dp-attention", "--attn-dp-size", "--dp-size", "--dp"}
HostVars = dict[str, dict[str, Any]]


def check_vars(cluster: Cluster, plan: Plan) -> HostVars:
    """Variables per host for `playbooks/check.yml` alone."""
    return {host.name: _check(cluster, plan, host) for host in cluster.hosts}


def hardware_vars(cluster: Cluster, plan: Plan) -> HostVars:
    """Variables per host for `playbooks/hardware.yml` alone."""
    found = check_vars(cluster, plan)
    for node, host in zip(plan.nodes, cluster.ranks, strict=True):
        found[host.name] |= _host_tuning(cluster, plan, host) | _drivers(cluster, node)
    return found


def stop_vars(cluster: Cluster) -> HostVars:
    """Variables per host for `playbooks/down.yml`: stopping needs the ranks and no plan."""
    ranks: HostVars = {
        host.name: {"engine_name": names.ENGINE, "engine_rank": rank}
        for rank, host in enumerate(cluster.ranks)
    }
    return _with_webui(cluster, ranks, {"open_webui_name": names.WEBUI})


def rollback_vars(cluster: Cluster) -> HostVars:
    """Variables per host for `playbooks/rollback.yml`: the containers on the hosts have the rest."""
    more = {"engine_ranks": len(cluster.ranks), "engine_ready_timeout": cluster.settings.ready_timeout}
    return {name: own | more for name, own in stop_vars(cluster).items()}


def _with_webui(cluster: Cluster, ranks: HostVars, own: dict[str, Any]) -> HostVars:
    return ranks | {cluster.webui.name: ranks.get(cluster.webui.name, {}) | own}


def role_vars(cluster: Cluster, plan: Plan, secrets: Secrets, files: Artifacts) -> HostVars:
    """Variables per host. They carry secrets: keep them out of logs and off disks that outlive a run."""
    found = hardware_vars(cluster, plan)
    for node in plan.nodes:
        found[node.host] |= (
            _engine_image(plan, files.engine)
            | _node_tools(plan, node, files)
            | _weights(cluster, plan, node, secrets)
            | _engine(cluster, plan, node, secrets)
        )
    found[plan.webui.host] |= _webui(plan, secrets, files.webui)
    return found


def _check(cluster: Cluster, plan: Plan, host: Host) -> dict[str, Any]:
    is_rank = host in cluster.ranks
    ports = [plan.engine_port, *_rendezvous_ports(cluster, plan)] if host is cluster.head else []
    rank = next((_check_rank(cluster, plan, node, host) for node in plan.nodes if node.host == host.name), {})
    return {
        "check_is_rank": is_rank,
        **rank,
        "check_ports": ports + ([plan.webui.port] if host is cluster.webui else []),
        "check_disk_path": cluster.settings.weights_dir if is_rank else "/var/lib/headfirst",
        # A tenth more for images and logs.
        "check_min_disk_gb": round(plan.weights.disk_bytes * 1.1 / GB, 1) if is_rank else 0,
        "check_address": host.address,
        "check_peers": [peer.address for peer in cluster.hosts if peer is not host],
    }


def _rendezvous_ports(cluster: Cluster, plan: Plan) -> range:
    """Ports of the head that every rank connects to; a message to one of them can run code there."""
    # With data-parallel attention SGLang takes the six ports after the rendezvous too (PortArgs).
    more = 6 if DATA_PARALLEL & set(cluster.settings.engine_args) else 0
    return range(plan.dist_port, plan.dist_port + more + 1)


def _check_rank(cluster: Cluster, plan: Plan, node: Node, host: Host) -> dict[str, Any]:
    gpus = plan.device == "cuda"
    return {
        "check_images": [node.container.image],
        "check_gpus": host.gpus if gpus else 0,
        "check_min_cuda": engines.get(plan.engine).cuda(node.container.image) if gpus else "",
        # The containers have the host's IPC, hence its /dev/shm and not one of this size.
        "check_min_shm_gb": _gigabytes(cluster.settings.shm_size) if gpus else 0,
        "check_roles_to_come": list(GPU_ROLES) if host in with_gpus(cluster) else [],
        "check_may_reboot": cluster.settings.allow_reboot,
        "check_open_peers": [peer.address for peer in cluster.ranks if peer is not host],
        "check_open_ports": [plan.dist_port],
        "check_engine_args": cluster.settings.engine_args,
        "check_nic": node.network.nic or "",
        "check_hca": node.network.hca or "",
        "check_ib_gid_index": -1 if node.network.ib_gid_index is None else node.network.ib_gid_index,
    }


def _host_tuning(cluster: Cluster, plan: Plan, host: Host) -> dict[str, Any]:
    # A rank that is alone meets nobody there.
    meeting = host is cluster.head and len(cluster.ranks) > 1
    return {
        "host_tuning_rendezvous_ports": [str(port) for port in _rendezvous_ports(cluster, plan)]
        if meeting
        else [],
        "host_tuning_hosts": {rank.name: rank.address for rank in cluster.ranks},
        "host_tuning_peers": [peer.address for peer in cluster.hosts if peer is not host],
    }


def _drivers(cluster: Cluster, node: Node) -> dict[str, Any]:
    return {
        "nvidia_driver_allow_reboot": cluster.settings.allow_reboot,
        "rdma_devices": rdma.devices(node.network.hca or ""),
    }


def _gigabytes(size: str) -> float:
    """Docker's notation (32g, 512m) in GB."""
    digits, unit = size.rstrip("kmgKMG"), size[-1].lower()
    return round(float(digits) * {"k": 2**10, "m": 2**20, "g": 2**30}.get(unit, 1) / GB, 1)


def _image_source(prefix: str, tarball: Tarball | None) -> dict[str, Any]:
    if tarball is None:
        return {f"{prefix}_source": "registry"}
    return {
        f"{prefix}_source": "tarball",
        f"{prefix}_tarball": str(tarball.path),
        f"{prefix}_tarball_remote": tarball.on_node,
    }


def _engine_image(plan: Plan, tarball: Tarball | None) -> dict[str, Any]:
    return {"engine_image_name": plan.nodes[0].container.image, **_image_source("engine_image", tarball)}


def _node_tools(plan: Plan, node: Node, files: Artifacts) -> dict[str, Any]:
    # Only the head fetches, so only it needs the hub's client.
    hub = (
        [plan.weights.source]
        if node.rank == 0 and plan.weights.source in ("modelscope", "huggingface")
        else []
    )
    return {"node_tools_wheel": str(files.node_wheel), "node_tools_extras": hub}


def _weights(cluster: Cluster, plan: Plan, node: Node, secrets: Secrets) -> dict[str, Any]:
    demo = plan.weights.source == "demo"
    return {
        "weights_model": str(NODE_SHARE / "demo") if demo else plan.weights.model,
        "weights_source": "path" if demo else plan.weights.source,
        "weights_revision": plan.weights.revision or "",
        "weights_dir": cluster.settings.weights_dir,
        "weights_name": plan.weights.directory.rpartition("/")[2],
        "weights_convert_to_bf16": plan.convert_to_bf16,
        "weights_keep_fp8": plan.weights.keep_fp8,
        "weights_address": node.address,
        "weights_members": [rank.address for rank in cluster.ranks],
        "weights_sessions": plan.weights.sessions,
        "weights_token": secrets.weights_token,
        "weights_hub_token": hub_token(plan.weights.source) if node.rank == 0 else "",
        "weights_environment": hub_environment(),
    }


def _engine(cluster: Cluster, plan: Plan, node: Node, secrets: Secrets) -> dict[str, Any]:
    return {
        "engine_rank": node.rank,
        "engine_ranks": len(plan.nodes),
        "engine_name": node.container.name,
        "engine_container": node.container.module_spec(),
        # Only rank 0 answers clients, so only it needs the key.
        "engine_config": engines.get(plan.engine).config_file(api_key=secrets.engine_api_key)
        if node.rank == 0
        else {},
        "engine_url": plan.engine_url,
        "engine_model_name": plan.served_model_name,
        "engine_api_key": secrets.engine_api_key,
        "engine_ready_timeout": cluster.settings.ready_timeout,
    }


def _webui(plan: Plan, secrets: Secrets, tarball: Tarball | None) -> dict[str, Any]:
    return {
        "open_webui_name": plan.webui.container.name,
        "open_webui_container": plan.webui.container.module_spec(),
        **_image_source("headfirst_webui_image", tarball),
        "open_webui_url": plan.webui.url,
        "open_webui_engine_api_key": secrets.engine_api_key,
        "open_webui_model_name": plan.served_model_name,
        "open_webui_admin_email": secrets.webui_admin_email,
        "open_webui_admin_password": secrets.webui_admin_password,
        "open_webui_admin_password_before": secrets.webui_admin_password_before or "",
        "open_webui_secret_key": secrets.webui_secret_key,
    }
