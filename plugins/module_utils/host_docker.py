"""What the Docker Engine, or Podman, reports of itself and of the images that we serve from. Python 3.8+."""

from __future__ import annotations

import typing as t

from ansible_collections.headfirst.serving.plugins.module_utils import docker_api
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import Source

CDI = ("/etc/cdi", "/var/run/cdi")


def gather(source: Source, images: t.List[str]) -> t.Dict[str, t.Any]:
    """Keys version ("" without one), podman, runtimes, cgroup_driver, cgroup_version, snap, cdi and images.

    `podman`: whether the engine is Podman. `cdi`: whether the GPUs are described for CDI.

    `images` of the result maps each name that is there to its ID.
    """
    info = source.docker("/info")
    known = {name: source.docker(f"/images/{name}/json").get("Id", "") for name in images} if info else {}
    return {
        "version": info.get("ServerVersion", ""),
        "podman": docker_api.is_podman(source.docker("/version")),
        "runtimes": sorted(info.get("Runtimes", {})),
        "cgroup_driver": info.get("CgroupDriver", ""),
        "cgroup_version": info.get("CgroupVersion", ""),
        "cdi": any("nvidia.yaml" in source.names(folder) for folder in CDI),
        "snap": bool(source.names("/snap/docker")),
        "char_links": "195:255" in source.names("/dev/char"),  # /dev/nvidiactl, for systemd's cgroups
        "images": {name: id for name, id in known.items() if id},
    }
