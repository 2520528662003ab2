"""PCI devices from sysfs: GPUs and NVSwitches without any driver, and how far two devices are apart."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource

DEVICES = "/sys/bus/pci/devices"
NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")  # VGA and 3D controllers
MELLANOX = "0x15b3"
ETHERNET_CLASS, INFINIBAND_CLASS = "0x0200", "0x0207"
# Broadcom's and Intel's; bnxt_re and irdma make the RDMA devices (drivers/infiniband/hw of Linux).
ROCE_DRIVERS = ("bnxt_en", "ice")
NVSWITCH_CLASS = "0x0680"  # "bridge, other": lspci calls them Bridge: NVIDIA Corporation
# NVLink 5's switches (HGX B200) are no PCI devices. ConnectX functions manage them, with this in their vital
# product data; they carry no traffic between hosts. Source: NVIDIA/gpu-driver-container.
NVLINK5, NVLINK5_VPD = "nvlink5", b"SW_MNG"
BLACKWELL = 0x2900  # the first PCI device ID of that generation; older GPUs have no NVLink 5
BRIDGE_CLASS = "0x0604"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# PCI Express Base Specification: extended capabilities begin at 0x100; ACS has the ID 0x000D, its control
# register is 6 bytes in, and these of its bits make traffic between two devices go up to the CPU.
EXTENDED, ACS_ID, ACS_CONTROL = 0x100, 0x000D, 6
ACS_REDIRECT = 0x0001 | 0x0004 | 0x0008  # source validation, request redirect, completion redirect


class Device(t.NamedTuple):
    """One PCI device: its address, its place in the tree (a sysfs path), its class and NUMA node."""

    address: str
    path: str
    vendor: str
    kind: str
    numa: str


def devices(source: HostSource) -> t.List[Device]:
    """Every PCI device, by address."""
    devices = [
        Device(
            address,
            source.real(f"{DEVICES}/{address}"),
            source.read(f"{DEVICES}/{address}/vendor"),
            source.read(f"{DEVICES}/{address}/class")[:6],
            source.read(f"{DEVICES}/{address}/numa_node"),
        )
        for address in source.names(DEVICES)
    ]
    ids = [source.read(f"{DEVICES}/{gpu.address}/device") for gpu in gpus(devices)]
    if not any(int(id, 16) >= BLACKWELL for id in ids if id):
        return devices
    managers = {
        card.address
        for card in hcas(devices)
        if NVLINK5_VPD in source.read_bytes(f"{DEVICES}/{card.address}/vpd")
    }
    return [device._replace(kind=NVLINK5) if device.address in managers else device for device in devices]


def gpus(devices: t.List[Device]) -> t.List[Device]:
    """NVIDIA's GPUs."""
    return [device for device in devices if device.vendor == NVIDIA and device.kind in GPU_CLASSES]


def nvswitches(devices: t.List[Device]) -> t.List[Device]:
    """The chips of an HGX board that need the fabric manager, or what manages these."""
    return [
        device
        for device in devices
        if device.kind == NVLINK5 or (device.vendor == NVIDIA and device.kind == NVSWITCH_CLASS)
    ]


def hcas(devices: t.List[Device]) -> t.List[Device]:
    """Network cards that can do RDMA, driver or not: InfiniBand, and Mellanox's Ethernet."""
    return [
        device
        for device in devices
        if device.kind == INFINIBAND_CLASS or (device.vendor == MELLANOX and device.kind == ETHERNET_CLASS)
    ]


def roce(source: HostSource, devices: t.List[Device]) -> t.List[str]:
    """Addresses of Ethernet cards whose driver has a second one for RoCE."""
    ethernet = [device.address for device in devices if device.kind == ETHERNET_CLASS]
    drivers = {address: source.real(f"{DEVICES}/{address}/driver") for address in ethernet}
    return [address for address, path in drivers.items() if path.rpartition("/")[2] in ROCE_DRIVERS]


def distance(first: Device, second: Device) -> str:
    """How far two devices are apart, as `nvidia-smi topo -m` has it: PIX, PXB, PHB, NODE or SYS."""
    here, there = _steps(first.path), _steps(second.path)
    shared = 0
    while shared < min(len(here), len(there)) and here[shared] == there[shared]:
        shared += 1
    if shared >= 2:  # below one root port: switches at most
        return "PIX" if max(len(here), len(there)) - shared <= 2 else "PXB"
    if shared == 1:
        return "PHB"
    return "NODE" if first.numa == second.numa and first.numa != "-1" else "SYS"


def acs_bridges(source: HostSource, devices: t.List[Device]) -> t.List[str]:
    """Bridges above a GPU whose access control services send peer traffic through the CPU (root only)."""
    above = {step for gpu in gpus(devices) for step in _steps(gpu.path)[:-1]}
    return [
        device.address
        for device in devices
        if device.kind == BRIDGE_CLASS
        and device.address in above
        and acs_control(source.read_bytes(f"{DEVICES}/{device.address}/config")) & ACS_REDIRECT
    ]


def acs_control(config: bytes) -> int:
    """The ACS control register of a configuration space; 0 without the capability, or cut at 64 bytes."""
    at, seen = EXTENDED, 0
    while at and at + 8 <= len(config) and seen < 96:
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == ACS_ID:
            return int.from_bytes(config[at + ACS_CONTROL : at + ACS_CONTROL + 2], "little")
        at, seen = header >> 20, seen + 1
    return 0


def _steps(path: str) -> t.List[str]:
    """The host bridge and the addresses on the way to a device."""
    return [part for part in path.split("/") if part.startswith("pci") or ADDRESS.fullmatch(part)]
