"""Rules of role `check` about Docker, disks, shared memory and the engine. Numbers: docs/diagnose.md."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.headfirst.serving.plugins.module_utils.host_cgroups import OBSTACLES
from ansible_collections.headfirst.serving.plugins.module_utils.shared_folder import SHARED_TYPES
from ansible_collections.headfirst.serving.plugins.plugin_utils.check_rules import GB, Facts, Limits, rule

IMAGE_GB = 40  # lmsysorg/sglang and vllm/vllm-openai, unpacked beside their layers


@rule(
    "docker-snap",
    gpus=True,
    failures=(30,),
    why="Docker from snap has no access to the GPUs and to the folders of the weights.",
    fix="snap remove docker; the role docker_engine then installs the distribution's.",
)
def _snap(facts: Facts, limits: Limits) -> Iterator[str]:
    if facts["docker"]["snap"]:
        yield "Docker is installed from snap"


@rule(
    "container-toolkit",
    role="nvidia_container_toolkit",
    gpus=True,
    failures=(30,),
    severity="warning",
    why='Without the NVIDIA Container Toolkit: could not select device driver "" with capabilities: [[gpu]].',
    fix="Install nvidia-container-toolkit; nvidia-ctk runtime configure --runtime=docker; restart docker. "
    "For Podman: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml.",
)
def _toolkit(facts: Facts, limits: Limits) -> Iterator[str]:
    docker = facts["docker"]
    if docker["podman"] and not docker["cdi"]:
        yield "Podman has no description of the GPUs for CDI (/etc/cdi/nvidia.yaml)"
    elif docker["version"] and not docker["podman"] and "nvidia" not in docker["runtimes"]:
        yield f"Docker has no runtime nvidia (it has {', '.join(docker['runtimes'])})"


@rule(
    "cgroup-devices",
    gpus=True,
    failures=(29,),
    severity="warning",
    why="A daemon-reload of systemd removes the GPUs from running containers: NVML: Unknown Error.",
    fix="nvidia-ctk system create-dev-char-symlinks --create-all, at each boot.",
)
def _cgroup(facts: Facts, limits: Limits) -> Iterator[str]:
    docker = facts["docker"]
    links = docker["char_links"] or docker["podman"]  # what CDI adds is in the container's own rules
    if facts["driver"]["running"] and docker["cgroup_driver"] == "systemd" and not links:
        yield "Docker uses systemd's cgroups, and /dev/char has no links to the GPUs' devices"


@rule(
    "rank-ports",
    failures=(11,),
    severity="warning",
    why="Ranks trust every program that reaches their ports: a message can run code, or read the KV cache.",
    fix="Put the ranks on a separate network; or, if no other program uses these ports, add them to "
    "host_tuning_closed_ports; or boot with cgroup v2 and a kernel of Linux 5.13 or newer, with nft 1.0 "
    "or newer, and remove native.cgroupdriver=cgroupfs from Docker's settings.",
)
def _rank_ports(facts: Facts, limits: Limits) -> Iterator[str]:
    obstacle, exposed = facts["cgroup_obstacle"], limits["exposed_ports"]
    if obstacle == "no-rules":
        exposed = [*limits["closed_ports"], "those that the kernel chooses"]
    if limits["is_rank"] and exposed and obstacle:
        yield f"ports of ranks that stay open to everybody: {', '.join(exposed)}: {OBSTACLES[obstacle]}"


@rule(
    "image-disk",
    gpus=True,
    failures=(34,),
    severity="warning",
    why="The engine's image is unpacked there: no space left on device.",
    fix="Free space there. Docker's data-root does not move the images in containerd's folder: set root in "
    "/etc/containerd/config.toml, then: systemctl restart containerd docker.",
)
def _image_disk(facts: Facts, limits: Limits) -> Iterator[str]:
    docker, free = facts["docker"], facts["image_store_free_bytes"] / GB
    if not docker["images"] and free < IMAGE_GB:
        yield f"{free:.1f} GB free for images in {docker['image_store']}, and one takes up to {IMAGE_GB} GB"


@rule(
    "disk-type",
    failures=(44, 43),
    severity="warning",
    why="Ranks that read weights over a network wait for each other until they time out.",
    fix="Choose a local disk with weights_dir, NVMe if there is one.",
)
def _disk_type(facts: Facts, limits: Limits) -> Iterator[str]:
    if facts["disk_type"] in SHARED_TYPES:
        yield f"{limits['disk_path']} is on {facts['disk_type']}"


@rule(
    "shared-memory",
    failures=(34, 35),
    severity="warning",
    why="NCCL and the ranks of a host share memory there: No space left on device.",
    fix="Remove the files of ended processes (ls -l /dev/shm); mount -o remount,size=64g /dev/shm",
)
def _shared_memory(facts: Facts, limits: Limits) -> Iterator[str]:
    free, need = facts["shm_free_bytes"] / GB, limits["min_shm_gb"]
    if free < need:
        yield f"{free:.1f} GB free in /dev/shm; {need:.1f} GB are needed"


@rule(
    "shared-memory-size",
    failures=(34,),
    why="The engine keeps a KV cache there, and ends at start where it is too small.",
    fix="Enlarge it (mount -o remount,size=200g /dev/shm), or keep less KV cache in the host's memory "
    "(engine_args).",
)
def _shared_memory_size(facts: Facts, limits: Limits) -> Iterator[str]:
    size, need = facts["shm_bytes"] / GB, limits["min_kv_shm_gb"]
    if size < need:
        yield f"{size:.1f} GB is the size of /dev/shm; the KV cache of the ranks needs {need:.1f} GB"


@rule(
    "torch-compile",
    gpus=True,
    failures=(48,),
    severity="warning",
    why="Compiling large models takes the ranks 20 minutes or more at each start.",
    fix="Take that argument out of engine_args, or raise ready_timeout.",
)
def _torch_compile(facts: Facts, limits: Limits) -> Iterator[str]:
    for argument in limits["slow_start_args"]:
        yield f"the ranks start with {argument}"


@rule(
    "stuck",
    failures=(36,),
    severity="warning",
    why="A driver or device that does not answer now does not answer the ranks either.",
    fix="Run that command by hand, read dmesg, and reboot the host.",
)
def _stuck(facts: Facts, limits: Limits) -> Iterator[str]:
    for command in facts["stuck"]:
        yield f"`{command}` did not end"
