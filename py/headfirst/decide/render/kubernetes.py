"""Kubernetes: a LeaderWorkerSet for each replica, and what it needs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
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
from headfirst.decide.render.shell import CHECKS, FAIL, RANK, VARIABLES, checks, program, ranks

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
    sets = [
        _Set(service, replica, scheduled, options)
        for replica, scheduled in zip(service.replicas, service.scheduled, strict=True)
    ]
    sources = " ".join(f"--from-file=secrets/{each.secret.name}" for each in sets)
    about = [
        *header,
        "",
        "It was checked against the published schemas and was not run in a cluster.",
        "It needs the LeaderWorkerSet controller, NVIDIA's device plugin where GPUs are requested,"
        " and a device plugin for RDMA.",
        f"No Secret is in this file. Make it with {secret_files.SCRIPT}, then:",
        f"  kubectl create secret generic {api_name(service)} {sources}",
        *(
            f"  kubectl create secret generic {each.environment} --from-env-file={path}"
            for each in sets
            for file in secret_files.of_environment(service, each.replica)
            for path in [f"{secret_files.FOLDER}/{file.name}"]
        ),
        *kubernetes_router.about(service),
        *(note for scheduled in service.scheduled for note in scheduled.notes),
        *dict.fromkeys(line for each in sets for line in each.left_out()),  # of replicas alike, once
    ]
    manifests = [_claim(service)] if options.storage == "pvc" else []
    for each in sets:
        manifests += [each.scripts(), each.workers()]
    selector = {_INDEX: "0"}
    if service.required_routers:
        manifests.append(kubernetes_router.deployment(service))
        selector = {INSTANCE: router_name(service.required_routers[0])}
    return documents(about, *manifests, endpoint(service, selector))


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


@dataclass(frozen=True)
class _Set:
    """The LeaderWorkerSet of a replica, and the scripts that its pods run."""

    service: PlannedService
    replica: PlannedReplica
    scheduled: Scheduled
    options: Options

    @property
    def planned(self) -> Container:
        """The container of rank 0."""
        return self.replica.nodes[0].container

    @property
    def secret(self) -> secret_files.SecretFile:
        """The file with the key."""
        return secret_files.of_replica(self.service, self.replica)

    @property
    def environment(self) -> str:
        """The name of the Secret with the environment."""
        return f"{self._name}-environment"

    @property
    def _name(self) -> str:
        return replica_name(self.replica)

    @property
    def _labels(self) -> dict[str, str]:
        return labels_of(self.service, self._name)

    def left_out(self) -> Iterator[str]:
        """Options that the pods do not have."""
        # The device plugins bring these.
        brought = (CDI_GPU, INFINIBAND) if self.scheduled.rdma else (CDI_GPU,)
        carried = _CARRIED | ({"env_file"} if self.replica.secret_env else set())
        for planned in (node.container.without_files() for node in self.replica.nodes):
            devices = [device for device in planned.devices if not device.startswith(brought)]
            user = None if numeric(planned.user) else planned.user
            rest = planned.model_copy(update={"devices": devices, "user": user})
            yield from scheduled_options.stated(rest, carried, _GIVEN, "Kubernetes", limits=_carried(planned))

    def scripts(self) -> dict[str, Any]:
        """What the pods run."""
        launch = program(
            [],
            FAIL,
            CHECKS,
            checks(self.service),
            scheduled_options.limits(_carried(self.planned), {}),  # a pod has no field for them
            f"{RANK}=$LWS_WORKER_INDEX\n{VARIABLES[CONFIG_FILE]}={shlex.quote(self.secret.path)}\n",
            _FIND_HEAD,
            ranks(self.scheduled),
        )
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{self._name}-launch", "labels": self._labels},
            "data": {_LAUNCH: launch, _PROBE: shell.PROBE},
        }

    def workers(self) -> dict[str, Any]:
        """The set itself."""
        template: dict[str, Any] = {
            "size": len(self.replica.nodes),
            # A rank cannot come back alone.
            "restartPolicy": "RecreateGroupOnPodRestart",
            "leaderTemplate": self._pod(leader=True),
            "workerTemplate": self._pod(leader=False),
        }
        return {
            "apiVersion": API_VERSION,
            "kind": "LeaderWorkerSet",
            "metadata": {"name": self._name, "labels": self._labels},
            # The leader is ready when all ranks have met: the workers must not wait for it.
            "spec": {"replicas": 1, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": template},
        }

    def _pod(self, *, leader: bool) -> dict[str, Any]:
        labels = self._labels
        apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
        volumes, mounts = self._volumes(leader=leader)
        spec: dict[str, Any] = {
            "hostNetwork": True,  # as the plan's containers: RDMA devices, and the interface of NCCL
            "dnsPolicy": "ClusterFirstWithHostNet",
            "terminationGracePeriodSeconds": 60,
            **pod_options(self.planned),
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
            "containers": [self._container(mounts, leader=leader)],
            "volumes": volumes,
        }
        if self.scheduled.gpus:
            spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
        return {"metadata": {"labels": labels}, "spec": spec}

    def _container(self, mounts: list[dict[str, Any]], *, leader: bool) -> dict[str, Any]:
        container: dict[str, Any] = {
            "name": "engine",
            "image": self.planned.image,
            "command": ["bash", f"{_FOLDER}/{_LAUNCH}"],
            "env": [{"name": VARIABLES[ADDRESS], "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
            **({"envFrom": [{"secretRef": {"name": self.environment}}]} if self.replica.secret_env else {}),
            "securityContext": security(self.planned),
            "volumeMounts": mounts,
        }
        limits = {"nvidia.com/gpu": str(self.scheduled.gpus)} if self.scheduled.gpus else {}
        limits |= {self.options.rdma_resource: "1"} if self.scheduled.rdma else {}
        if limits:
            container["resources"] = {"limits": limits, "requests": dict(limits)}
        if leader:
            container["ports"] = [{"name": "api", "containerPort": self.replica.engine_port}]
            container |= self._probes()
        return container

    def _probes(self) -> dict[str, Any]:
        ready = self.service.readiness
        url = shell.probe_url(f"${VARIABLES[ADDRESS]}", self.replica.engine_port, ready)
        words = f'exec python3 {_FOLDER}/{_PROBE} "{url}" {shlex.quote(self.secret.path)}'
        probe = {
            "exec": {"command": ["bash", "-c", words]},
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

    def _reads_key(self, *, leader: bool) -> bool:
        """The leader's probes read it, too."""
        workers = [word for rank in self.scheduled.ranks[1:] for word in rank.command]
        return leader or any(CONFIG_FILE in blanks(word) for word in workers)

    def _volumes(self, *, leader: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Those of a pod, and where its container has each."""
        size, secret = self.planned.shm_size, self.secret
        memory = {"medium": "Memory", **({"sizeLimit": _quantity(size)} if size else {})}
        volumes: list[dict[str, Any]] = [
            {"name": "launch", "configMap": {"name": f"{self._name}-launch"}},
            {"name": "shm", "emptyDir": memory},
        ]
        mounts: list[dict[str, Any]] = [
            {"name": "launch", "mountPath": _FOLDER, "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - the container's shared memory
        ]
        if self._reads_key(leader=leader):
            items = [{"key": secret.name, "path": secret.name}]
            key = {"secretName": api_name(self.service), "items": items, "defaultMode": 0o400}
            volumes.append({"name": "key", "secret": key})
            mounts.append({"name": "key", "mountPath": secret.path.rpartition("/")[0], "readOnly": True})
        claimed = self.options.storage == "pvc"
        if claimed:
            volumes.append({"name": "data", "persistentVolumeClaim": {"claimName": api_name(self.service)}})
        folders = [volume.split(":") for volume in self.planned.without_files().volumes]
        folders = [folder for folder in folders if folder[0] != secret.path]
        for number, (source, target, *flags) in enumerate(folders):
            read_only, name = "ro" in flags, f"folder-{number}"
            if not claimed:
                kind = "Directory" if read_only else "DirectoryOrCreate"
                volumes.append({"name": name, "hostPath": {"path": source, "type": kind}})
            volume = {"name": "data", "subPath": source.strip("/")} if claimed else {"name": name}
            mounts.append({**volume, "mountPath": target, **({"readOnly": True} if read_only else {})})
        return volumes, mounts


def _carried(planned: Container) -> dict[str, int]:
    """Who has IPC_LOCK may pin memory beyond every limit: memlock is stated alone."""
    without = {"memlock"} if "IPC_LOCK" in planned.cap_add else set()
    return {name: value for name, value in planned.ulimits.items() if name not in without}


def _quantity(size: str) -> str:
    """Docker's notation (32g) as Kubernetes writes it (32Gi)."""
    return f"{size[:-1]}{_UNITS[size[-1].lower()]}" if size[-1].lower() in _UNITS else size
