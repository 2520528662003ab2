"""RDMA devices from /sys/class/infiniband: ports, GIDs and their types, distance to GPUs. Python 3.8+."""

from __future__ import annotations

import ipaddress
import typing as t

from ansible_collections.headfirst.serving.plugins.module_utils import host_pci
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource

DEVICES = "/sys/class/infiniband"
UNSET = ("", "0000:0000:0000:0000:0000:0000:0000:0000")


def hcas(source: HostSource, devices: t.List[host_pci.Device]) -> t.List[t.Dict[str, t.Any]]:
    """Every device: {name, firmware, pci, numa, gpu_distances, ports}; distances in the order of the GPUs.

    Not those that manage NVLink's switches.
    """
    places = {device.address: device for device in devices}
    gpus = host_pci.gpus(devices)
    result = []
    for name in source.names(DEVICES):
        steps = source.real(f"{DEVICES}/{name}").split("/infiniband/")[0]
        place = places.get(steps.rpartition("/")[2])
        if place and place.kind == host_pci.NVLINK5:
            continue
        result.append(
            {
                "name": name,
                "firmware": source.read(f"{DEVICES}/{name}/fw_ver"),
                "pci": place.address if place else "",
                "numa": int(place.numa or -1) if place else -1,
                "gpu_distances": [host_pci.distance(place, gpu) for gpu in gpus] if place else [],
                "ports": [
                    _port(source, f"{DEVICES}/{name}/ports/{port}", int(port))
                    for port in source.names(f"{DEVICES}/{name}/ports")
                ],
            }
        )
    return result


def _port(source: HostSource, folder: str, number: int) -> t.Dict[str, t.Any]:
    """{number, state, physical, gbit, link, gids}; `state` like ACTIVE, `link` is InfiniBand or Ethernet."""
    return {
        "number": number,
        "state": source.read(f"{folder}/state").rpartition(": ")[2],  # "4: ACTIVE"
        "physical": source.read(f"{folder}/phys_state").rpartition(": ")[2],  # "5: LinkUp"
        "gbit": float((source.read(f"{folder}/rate") or "0").split()[0]),  # "200 Gb/sec (4X HDR)"
        "link": source.read(f"{folder}/link_layer"),
        "gids": _gids(source, folder),
    }


def _gids(source: HostSource, folder: str) -> t.List[t.Dict[str, t.Any]]:
    """{index, gid, type, address, nic} of each that is set; `address` is the IPv4 in it, or ""."""
    gids = []
    for index in sorted(source.names(f"{folder}/gids"), key=int):
        gid = source.read(f"{folder}/gids/{index}")
        if gid in UNSET:
            continue
        mapped = ipaddress.IPv6Address(gid).ipv4_mapped
        gids.append(
            {
                "index": int(index),
                "gid": gid,
                "type": source.read(f"{folder}/gid_attrs/types/{index}"),
                "address": str(mapped) if mapped else "",
                "nic": source.read(f"{folder}/gid_attrs/ndevs/{index}"),
            }
        )
    return gids
