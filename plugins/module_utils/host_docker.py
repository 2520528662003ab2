"""What the Docker Engine, or Podman, reports of itself and of the images that we serve from. Python 3.8+."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.headfirst.serving.plugins.module_utils import docker_api
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource

CDI = ("/etc/cdi", "/var/run/cdi")
CONTAINERD_RUN, CONTAINERD_CONFIG = "/run/containerd", "/etc/containerd/config.toml"


def gather(source: HostSource, images: t.List[str]) -> t.Dict[str, t.Any]:
    """Keys version ("" without one), podman, runtimes, cgroup_driver, cgroup_version, snap, cdi and images.

    `podman`: whether the engine is Podman. `cdi`: whether the GPUs are described for CDI.

    `images` of the result maps each name that is there to its ID; `image_store` is the folder of all images.
    """
    info = source.docker("/info")
    image_ids = {name: source.docker(f"/images/{name}/json").get("Id", "") for name in images} if info else {}
    return {
        "version": info.get("ServerVersion", ""),
        "podman": docker_api.is_podman(source.docker("/version")),
        "runtimes": sorted(info.get("Runtimes", {})),
        "cgroup_driver": info.get("CgroupDriver", ""),
        "cgroup_version": info.get("CgroupVersion", ""),
        "cdi": any("nvidia.yaml" in source.names(folder) for folder in CDI),
        "snap": bool(source.names("/snap/docker")),
        "char_links": "195:255" in source.names("/dev/char"),  # /dev/nvidiactl, for systemd's cgroups
        "images": {name: id for name, id in image_ids.items() if id},
        "image_store": image_store(source, info),
    }


def image_store(source: HostSource, info: t.Dict[str, t.Any]) -> str:
    """The folder of the images. New installations of Docker 29 keep them in containerd's, which data-root
    does not move."""
    root = info.get("DockerRootDir") or "/var/lib/docker"
    if "io.containerd.snapshotter.v1" not in str(info.get("DriverStatus")):
        return root
    if "containerd.sock" not in source.names(CONTAINERD_RUN):  # Docker has started one of its own
        return f"{root}/containerd"
    line = re.search(r"^root\s*=\s*[\"']([^\"']+)", source.read(CONTAINERD_CONFIG), re.MULTILINE)
    return line.group(1) if line else "/var/lib/containerd"
