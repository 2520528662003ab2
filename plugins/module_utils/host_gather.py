"""All facts of a host that do not change, gathered in parallel: commands are slow. Python 3.8+."""

from __future__ import annotations

import concurrent.futures
import typing as t

from ansible_collections.headfirst.serving.plugins.module_utils import (
    host_cgroups,
    host_docker,
    host_driver,
    host_facts,
    host_gpu,
    host_nics,
    host_pci,
    host_rdma,
    shared_folder,
)
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource


def gather(source: HostSource, disk_path: str, peers: t.List[str], images: t.List[str]) -> t.Dict[str, t.Any]:
    """Facts of the host that `source` reads, by the keys that module host_facts documents."""
    jobs: t.Dict[str, t.Callable[[], t.Any]] = {
        "smi": lambda: host_gpu.gather(source),
        "xids": lambda: host_gpu.xids(source.run("dmesg")),
        "driver": lambda: host_driver.gather(source),
        "pci": lambda: _pci(source),
        "nics": lambda: host_nics.nics(source),
        "routes": lambda: host_nics.routes(source, peers),
        "docker": lambda: host_docker.gather(source, images),
        "system": lambda: host_facts.system(source),
    }
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(jobs)) as pool:
        running = {name: pool.submit(job) for name, job in jobs.items()}
        facts = {name: job.result() for name, job in running.items()}
    system = facts.pop("system")
    return {
        **system,
        **facts.pop("smi"),
        **facts.pop("pci"),
        **facts,
        "cgroup_obstacle": host_cgroups.obstacle(source, facts["docker"], system["uid"]),
        "disk_type": shared_folder.file_system(disk_path, source.read("/proc/mounts")),
        "stuck": sorted(source.stuck),
    }


def _pci(source: HostSource) -> t.Dict[str, t.Any]:
    devices = host_pci.devices(source)
    return {
        "gpus_on_pci": [device.address for device in host_pci.gpus(devices)],
        "nvswitches": len(host_pci.nvswitches(devices)),
        "acs_bridges": host_pci.acs_bridges(source, devices),
        "hcas_on_pci": [device.address for device in host_pci.hcas(devices)],
        "roce_on_pci": host_pci.roce(source, devices),
        "hcas": host_rdma.hcas(source, devices),
        "rdma_devices": [name for name in source.names("/dev/infiniband") if name.startswith("uverbs")],
    }
