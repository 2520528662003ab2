"""Kubernetes: a LeaderWorkerSet for each replica, and what it needs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headfirst.common.errors import InputError
from headfirst.decide.containers.blanks import ADDRESS, CONFIG_FILE, blanks
from headfirst.decide.containers.spec import Container
from headfirst.decide.plan.types import Plan, PlannedReplica, PlannedService, Scheduled
from headfirst.decide.render import kubernetes_router, scheduled_options, secret_files, shell
from headfirst.decide.render.files import File, Files, documents, script
from headfirst.decide.render.kubernetes_objects import (
    INSTANCE,
    api_name,
    endpoint,
    labels_of,
    numeric,
    pod_options,
    replica_name,
    router_name,
    security,
)
from headfirst.decide.render.shell import (
    CHECK_CACHE,
    CHECK_MODEL,
    FAIL,
    RANK,
    VARIABLES,
    program,
    ranks,
)

Storage = Literal["hostpath", "pvc"]

API_VERSION = "leaderworkerset.x-k8s.io/v1"
INFINIBAND, CDI_GPU = "/dev/infiniband", "nvidia.com/gpu="
_FOLDER = "/headfirst"
_LAUNCH, _PROBE = "launch.sh", "probe.py"
_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
_GIB = 2**30
_UNITS = {"k": "Ki", "m": "Mi", "g": "Gi"}

# Fields of Container that a pod carries out, those of the launch script too; memory for all is the pod's own.
_CARRIED = {
    *("name", "image", "entrypoint", "command", "environment", "volumes", "gpus"),
    *("cap_add", "cap_drop", "ulimits", "shm_size", "init"),
}
_GIVEN = {"network_mode": "host", "ipc_mode": "host"}

# The name of the leader may have no address yet.
_FIND_HEAD = """\
if [ "$HEADFIRST_RANK" = 0 ]; then
  HEADFIRST_HEAD_ADDRESS=$HEADFIRST_ADDRESS
else
  until HEADFIRST_HEAD_ADDRESS=$(getent ahostsv4 "$LWS_LEADER_ADDRESS" | awk 'NR == 1 {print $1}') &&
    [ -n "$HEADFIRST_HEAD_ADDRESS" ]; do
    echo "waiting for the address of $LWS_LEADER_ADDRESS"
    sleep 2
  done
fi
"""


@dataclass(frozen=True)
class Options:
    """`rdma_resource`: what the cluster's device plugin calls the RDMA devices, such as rdma/hca."""

    storage: Storage
    rdma_resource: str


def files(plan: Plan, header: Sequence[str], options: Options) -> Files:
    """One file of manifests for each service. InputError for names that Kubernetes cannot distinguish."""
    names = [replica_name(replica) for service in plan.services for replica in service.replicas]
    names += [router_name(router) for service in plan.services for router in service.required_routers[:1]]
    names += [api_name(service) for service in plan.services]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise InputError(
            f"two objects would have the name {doubled}, since names in Kubernetes have no underscore",
            hint="Rename one of the services.",
        )
    manifests = {
        f"{api_name(service)}.yaml": File(_service(header, service, options)) for service in plan.services
    }
    secrets = secret_files.make_script(header, plan, secret_files.scheduled(plan))
    return {secret_files.SCRIPT: script(secrets), **manifests}


def _service(header: Sequence[str], service: PlannedService, options: Options) -> str:
    secrets = [secret_files.of_replica(service, replica).name for replica in service.replicas]
    sources = " ".join(f"--from-file=secrets/{name}" for name in secrets)
    about = [
        *header,
        "",
        "It was checked against the published schemas and was not run in a cluster.",
        "It needs the LeaderWorkerSet controller, NVIDIA's device plugin where GPUs are requested,"
        " and a device plugin for RDMA.",
        f"No Secret is in this file. Make it with {secret_files.SCRIPT}, then:",
        f"  kubectl create secret generic {api_name(service)} {sources}",
        *(
            f"  kubectl create secret generic {_environment_name(replica)} --from-env-file={path}"
            for replica in service.replicas
            for file in secret_files.of_environment(service, replica)
            for path in [f"{secret_files.FOLDER}/{file.name}"]
        ),
        *kubernetes_router.about(service),
        *(note for scheduled in service.scheduled for note in scheduled.notes),
        *_left_out(service),
    ]
    manifests: list[dict[str, Any]] = []
    if options.storage == "pvc":
        manifests.append(_claim(service))
    for replica, scheduled in zip(service.replicas, service.scheduled, strict=True):
        manifests += [_scripts(service, replica, scheduled), _workers(service, replica, scheduled, options)]
    selector = {_INDEX: "0"}
    if service.required_routers:
        manifests.append(kubernetes_router.deployment(service))
        selector = {INSTANCE: router_name(service.required_routers[0])}
    return documents(about, *manifests, endpoint(service, selector))


def _environment_name(replica: PlannedReplica) -> str:
    """The name of the Secret with a replica's environment."""
    return f"{replica_name(replica)}-environment"


def _left_out(service: PlannedService) -> list[str]:
    """Options that the pods do not have; of replicas alike, once."""
    lines: list[str] = []
    for replica, scheduled in zip(service.replicas, service.scheduled, strict=True):
        # The device plugins bring these.
        brought = [CDI_GPU, *([INFINIBAND] if scheduled.rdma else [])]
        for planned in (node.container.without_files() for node in replica.nodes):
            devices = [device for device in planned.devices if not device.startswith(tuple(brought))]
            user = None if numeric(planned.user) else planned.user
            rest = planned.model_copy(update={"devices": devices, "user": user})
            carried = _CARRIED | ({"env_file"} if replica.secret_env else set())
            lines += scheduled_options.stated(rest, carried, _GIVEN, "Kubernetes", limits=_carried(planned))
    return list(dict.fromkeys(lines))


def _claim(service: PlannedService) -> dict[str, Any]:
    """A tenth more than the weights, for the cache of compiled code."""
    companions = sum(companion.disk_bytes for companion in service.companions)
    size = math.ceil((service.weights.served_bytes + companions) * 1.1 / _GIB)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": api_name(service), "labels": labels_of(service)},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": f"{size}Gi"}},
        },
    }


def _scripts(service: PlannedService, replica: PlannedReplica, scheduled: Scheduled) -> dict[str, Any]:
    name = replica_name(replica)
    checks = [f"check_model {shlex.quote(folder)}\n" for folder in service.model_folders]
    if service.cache_dir:
        checks.append(f"check_cache {shlex.quote(service.cache_dir)}\n")
    launch = program(
        [],
        FAIL,
        CHECK_MODEL,
        CHECK_CACHE,
        "".join(checks),
        scheduled_options.limits(_carried(replica.nodes[0].container), {}),  # a pod has no field for them
        f"{RANK}=$LWS_WORKER_INDEX\n"
        f"{VARIABLES[CONFIG_FILE]}={shlex.quote(secret_files.of_replica(service, replica).path)}\n",
        _FIND_HEAD,
        ranks(scheduled),
    )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-launch", "labels": labels_of(service, name)},
        "data": {_LAUNCH: launch, _PROBE: shell.PROBE},
    }


def _carried(planned: Container) -> dict[str, int]:
    """Who has IPC_LOCK may pin memory beyond every limit: memlock is stated alone."""
    without = {"memlock"} if "IPC_LOCK" in planned.cap_add else set()
    return {name: value for name, value in planned.ulimits.items() if name not in without}


def _workers(
    service: PlannedService, replica: PlannedReplica, scheduled: Scheduled, options: Options
) -> dict[str, Any]:
    template: dict[str, Any] = {
        "size": len(replica.nodes),
        # A rank cannot come back alone.
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": _pod(service, replica, scheduled, options, leader=True),
        "workerTemplate": _pod(service, replica, scheduled, options, leader=False),
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "LeaderWorkerSet",
        "metadata": {"name": replica_name(replica), "labels": labels_of(service, replica_name(replica))},
        # The leader is ready when all ranks have met: the workers must not wait for it.
        "spec": {"replicas": 1, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": template},
    }


def _pod(
    service: PlannedService, replica: PlannedReplica, scheduled: Scheduled, options: Options, *, leader: bool
) -> dict[str, Any]:
    labels = labels_of(service, replica_name(replica))
    apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    spec: dict[str, Any] = {
        "hostNetwork": True,  # as the plan's containers: RDMA devices, and the interface that NCCL is given
        "dnsPolicy": "ClusterFirstWithHostNet",
        "terminationGracePeriodSeconds": 60,
        **pod_options(replica.nodes[0].container),
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "containers": [_container(service, replica, scheduled, options, leader=leader)],
        "volumes": _volumes(service, replica, scheduled, options, leader=leader),
    }
    if scheduled.gpus:
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    return {"metadata": {"labels": labels}, "spec": spec}


def _container(
    service: PlannedService, replica: PlannedReplica, scheduled: Scheduled, options: Options, *, leader: bool
) -> dict[str, Any]:
    planned = replica.nodes[0].container
    container: dict[str, Any] = {
        "name": "engine",
        "image": planned.image,
        "command": ["bash", f"{_FOLDER}/{_LAUNCH}"],
        "env": [{"name": VARIABLES[ADDRESS], "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        **({"envFrom": [{"secretRef": {"name": _environment_name(replica)}}]} if replica.secret_env else {}),
        "securityContext": security(planned),
        "volumeMounts": _mounts(service, replica, scheduled, options, leader=leader),
    }
    limits = {"nvidia.com/gpu": str(scheduled.gpus)} if scheduled.gpus else {}
    limits |= {options.rdma_resource: "1"} if scheduled.rdma else {}
    if limits:
        container["resources"] = {"limits": limits, "requests": dict(limits)}
    if leader:
        container["ports"] = [{"name": "api", "containerPort": replica.engine_port}]
        container |= _probes(service, replica)
    return container


def _probes(service: PlannedService, replica: PlannedReplica) -> dict[str, Any]:
    ready = service.readiness
    url = shell.probe_url(f"${VARIABLES[ADDRESS]}", replica.engine_port, ready)
    path = secret_files.of_replica(service, replica).path
    probe = {
        "exec": {"command": ["bash", "-c", f'exec python3 {_FOLDER}/{_PROBE} "{url}" {shlex.quote(path)}']},
        "periodSeconds": shell.PROBE_INTERVAL_S,
        "timeoutSeconds": shell.PROBE_TIMEOUT_S,
    }
    probes = {
        "startupProbe": {**probe, "failureThreshold": shell.probe_failures(ready.start_seconds)},
        "readinessProbe": {**probe, "failureThreshold": 3},
    }
    if ready.hang_seconds:
        probes["livenessProbe"] = {**probe, "failureThreshold": shell.probe_failures(ready.hang_seconds)}
    return probes


def _reads_key(scheduled: Scheduled, *, leader: bool) -> bool:
    """The leader's probes read it, too."""
    workers = [word for rank in scheduled.ranks[1:] for word in rank.command]
    return leader or any(CONFIG_FILE in blanks(word) for word in workers)


def _folders(planned: Container, secret: secret_files.SecretFile) -> list[tuple[str, str, bool]]:
    """Folders of the host, where they are in the container, and whether they are only read."""
    folders = []
    for volume in planned.without_files().volumes:
        source, target, *flags = volume.split(":")
        if source != secret.path:
            folders.append((source, target, "ro" in flags))
    return folders


def _volumes(
    service: PlannedService, replica: PlannedReplica, scheduled: Scheduled, options: Options, *, leader: bool
) -> list[dict[str, Any]]:
    planned, secret = replica.nodes[0].container, secret_files.of_replica(service, replica)
    memory = {"medium": "Memory", **({"sizeLimit": _quantity(planned.shm_size)} if planned.shm_size else {})}
    volumes: list[dict[str, Any]] = [
        {"name": "launch", "configMap": {"name": f"{replica_name(replica)}-launch"}},
        {"name": "shm", "emptyDir": memory},
    ]
    if _reads_key(scheduled, leader=leader):
        key = {"secretName": api_name(service), "items": [{"key": secret.name, "path": secret.name}]}
        volumes.append({"name": "key", "secret": {**key, "defaultMode": 0o400}})
    if options.storage == "pvc":
        return [*volumes, {"name": "data", "persistentVolumeClaim": {"claimName": api_name(service)}}]
    for number, (source, _, read_only) in enumerate(_folders(planned, secret)):
        kind = "Directory" if read_only else "DirectoryOrCreate"
        volumes.append({"name": f"folder-{number}", "hostPath": {"path": source, "type": kind}})
    return volumes


def _mounts(
    service: PlannedService, replica: PlannedReplica, scheduled: Scheduled, options: Options, *, leader: bool
) -> list[dict[str, Any]]:
    secret = secret_files.of_replica(service, replica)
    mounts: list[dict[str, Any]] = [
        {"name": "launch", "mountPath": _FOLDER, "readOnly": True},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the container's shared memory
    ]
    if _reads_key(scheduled, leader=leader):
        mounts.append({"name": "key", "mountPath": secret.path.rpartition("/")[0], "readOnly": True})
    for number, (source, target, read_only) in enumerate(_folders(replica.nodes[0].container, secret)):
        name = {"name": f"folder-{number}"}
        if options.storage == "pvc":
            name = {"name": "data", "subPath": source.strip("/")}
        mounts.append({**name, "mountPath": target, **({"readOnly": True} if read_only else {})})
    return mounts


def _quantity(size: str) -> str:
    """Docker's notation (32g) as Kubernetes writes it (32Gi)."""
    return f"{size[:-1]}{_UNITS[size[-1].lower()]}" if size[-1].lower() in _UNITS else size
