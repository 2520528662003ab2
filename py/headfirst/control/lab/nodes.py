"""One node: a container that boots systemd, with its own cgroups, volumes and address."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError
from docker.models.containers import Container
from docker.types import Mount

from headfirst.common.errors import NotReadyError
from headfirst.control.lab.host_settings import archive
from headfirst.control.lab.types import USER, USER_ID, Lab, LabNode

# In the order of their numbers: include/uapi/linux/capability.h. The three newest (PERFMON, BPF,
# CHECKPOINT_RESTORE) are parts of SYS_ADMIN, and Docker 20.10 refuses their names.
_NAMES = (
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE "
    "NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT "
    "SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE "
    "AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ"
)

# A node must change neither the clock nor the kernel modules: they are the host's.
_NEVER = ("SYS_MODULE", "SYS_TIME")


def available(status: str | None = None) -> list[str]:
    """Names in the bounding set, without the two that are the host's alone.

    `status` is the text of a /proc/PID/status; this process's own is read where it is None.
    """
    text = Path("/proc/self/status").read_text() if status is None else status
    bounding = int(next(line.split()[1] for line in text.splitlines() if line.startswith("CapBnd:")), 16)
    capabilities = (name for number, name in enumerate(_NAMES.split()) if bounding >> number & 1)
    return [name for name in capabilities if name not in _NEVER]


LABEL = "headfirst.lab"
_NODE = "headfirst.lab.node"
_SPEC = "headfirst.lab.spec"
# Overlay file systems cannot be stacked: what an engine inside keeps goes to volumes.
_VOLUMES = ("/var/lib/docker", "/var/lib/containerd")
_SHM = "2g"


def find(client: docker.DockerClient, lab: Lab) -> dict[str, Container]:
    """The lab's containers by node name, running or not."""
    containers = client.containers.list(all=True, filters={"label": f"{LABEL}={lab.name}"})
    return {name_of(container): container for container in containers}


def name_of(container: Container) -> str:
    """The node's name."""
    return str(container.labels[_NODE])


def file_of(container: Container, path: str) -> bytes:
    """A file of a node, read through Docker: without a network. Raises NotFound; of a folder it is empty."""
    chunks, _ = container.get_archive(path)
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
        member = archive.next()
        stream = archive.extractfile(member) if member else None
        return stream.read() if stream else b""


def is_current(container: Container, lab: Lab, node: LabNode, image: str) -> bool:
    """Whether the container is what the lab asks for now."""
    return bool(container.labels.get(_SPEC) == _spec_hash(lab, node, image))


def create(client: docker.DockerClient, lab: Lab, node: LabNode, image: str) -> Container:
    """Makes the node's container; it does not run yet. Raises NotReadyError with the engine's words."""
    name = lab.container_name(node)
    host = client.api.create_host_config(**_host_config(client, lab, node))
    # The SDK has no argument for what the command line calls systempaths=unconfined.
    host["MaskedPaths"], host["ReadonlyPaths"] = [], []
    endpoint = client.api.create_endpoint_config(ipv4_address=node.address, aliases=[node.name])
    try:
        created = client.api.create_container(
            image=image,
            name=name,
            command=["/usr/local/sbin/headfirst-node-init"],
            environment={"container": "docker"},  # systemd asks for it
            hostname=node.name,
            stop_signal="SIGRTMIN+3",  # what systemd takes for "halt"
            labels={LABEL: lab.name, _NODE: node.name, _SPEC: _spec_hash(lab, node, image)},
            host_config=host,
            networking_config={"EndpointsConfig": {lab.network_name: endpoint}},
        )
    except APIError as error:
        raise NotReadyError(f"The node cannot be made: {error.explanation}.", where=node.name) from error
    return client.containers.get(created["Id"])


def start(container: Container, public_key: str, settings: list[bytes]) -> None:
    """Gives a stopped node its key and the machine's settings, and boots it."""
    key = archive({f"home/{USER}/.ssh/authorized_keys": (public_key, 0o600, USER_ID)})
    try:
        for data in (*settings, key):
            container.put_archive("/", data)
        container.start()
    except APIError as error:
        raise NotReadyError(
            f"The node cannot be started: {error.explanation}.", where=name_of(container)
        ) from error


def remove(container: Container) -> None:
    """Removes the node and everything it kept."""
    container.remove(force=True, v=True)


def remove_volumes(client: docker.DockerClient, lab: Lab) -> None:
    """Removes the volumes of nodes whose removal was interrupted; no other node uses them."""
    for volume in client.volumes.list(filters={"label": f"{LABEL}={lab.name}"}):
        volume.remove()


def _host_config(client: docker.DockerClient, lab: Lab, node: LabNode) -> dict[str, Any]:
    security = ["seccomp=unconfined"]
    if any("name=apparmor" in option for option in client.info()["SecurityOptions"]):
        security.append("apparmor=unconfined")
    # Without names: a new node never gets the volume of an earlier one.
    volumes = [Mount(path, source=None, labels={LABEL: lab.name}) for path in _VOLUMES]
    shared = Mount("/srv/headfirst", str(lab.shared_dir.absolute()), type="bind", read_only=True)
    limits: dict[str, Any] = {}
    if node.memory:
        limits |= {"mem_limit": node.memory, "memswap_limit": node.memory}
    if node.cpus:
        limits |= {"nano_cpus": int(node.cpus * 1e9)}
    return {
        "mounts": [*volumes, shared],
        "cap_drop": ["ALL"],
        "cap_add": available(),
        "security_opt": security,
        # A cgroup namespace of its own on v1 too: what runs inside counts against the node's limits.
        "cgroupns": "private",
        "tmpfs": {"/run": "mode=755"},
        "shm_size": _SHM,  # Docker's 64 MB are too few for an engine; a server has half of its memory
        "network_mode": lab.network_name,
        # `reboot` inside ends systemd with a signal's exit code: the node comes back, as a server does,
        # more than once (Docker never forgets the count).
        "restart_policy": {"Name": "on-failure", "MaximumRetryCount": 5},
        **limits,
    }


def _spec_hash(lab: Lab, node: LabNode, image: str) -> str:
    spec = [image, lab.subnet, str(lab.shared_dir), node.name, node.address, node.memory, node.cpus, _SHM]
    return hashlib.sha256(json.dumps(spec).encode()).hexdigest()[:16]
