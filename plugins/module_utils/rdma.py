"""What role rdma needs of a host, what is left to do there, what is wrong with its ports. Python 3.8+."""

from __future__ import annotations

import typing as t

from ansible_collections.headfirst.serving.plugins.module_utils import (
    host_driver,
    host_facts,
    host_pci,
    host_rdma,
)
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource

Facts = t.Dict[str, t.Any]
# ib_uverbs is what NCCL talks to, rdma_ucm serves connections by IP address, ib_umad serves ibstat.
MODULES = ("ib_uverbs", "rdma_ucm", "ib_umad")
MELLANOX_MODULE, PEER_MODULE = "mlx5_ib", "nvidia_peermem"
OFED = "ofed-scripts"  # in DOCA-OFED and in MLNX_OFED, and nowhere else
PERSISTENT = "/etc/modules-load.d/headfirst-rdma.conf"


def gather(source: HostSource, packages: t.List[str], devices: t.List[str]) -> Facts:
    """Facts by the keys that module rdma_facts documents; `devices` shall serve, or all if none is named."""
    pci_devices = host_pci.devices(source)
    cards = host_pci.hcas(pci_devices)
    hcas = host_rdma.hcas(source, pci_devices)
    facts: Facts = {
        "os": host_facts.os_release(source.read("/etc/os-release")).get("ID", ""),
        "cards": [card.address for card in cards],
        "hcas": hcas,
        "ports": [_describe(hca["name"], port) for hca in hcas for port in hca["ports"]],
        "todo": [],
        "problems": [],
        "notes": [],
        "reboot": "",
    }
    if not cards and not hcas:
        return facts
    loaded = modules(source)
    mellanox = any(card.vendor == host_pci.MELLANOX for card in cards)
    driver = source.read("/proc/driver/nvidia/version")
    facts.update(
        modules=[*MODULES, *([MELLANOX_MODULE] if mellanox else [])],
        peer_memory=bool(driver) and not host_driver.is_open(driver),
    )
    persistent = source.read(PERSISTENT).split()
    installed = set(host_driver.installed(source, [*packages, OFED]))
    tasks = {
        # An OFED of somebody's own has the distribution's packages under other versions; it stays.
        "packages": OFED not in installed and not set(packages) <= installed,
        "modules": not set(facts["modules"]) <= loaded or not set(facts["modules"]) <= set(persistent),
        "peer_memory": facts["peer_memory"] and not (PEER_MODULE in loaded and PEER_MODULE in persistent),
    }
    problems, spare = ports(hcas, devices)
    return {
        **facts,
        "todo": [what for what, is_left in tasks.items() if is_left],
        "problems": [*_software(source), *problems],
        "notes": [*_notes(driver, PEER_MODULE in loaded), *spare],
        "reboot": _reboot(source),
    }


def modules(source: HostSource) -> t.Set[str]:
    """Names of the kernel's modules, loaded or built in."""
    kernel = source.read("/proc/sys/kernel/osrelease")
    built_in = source.read(f"/lib/modules/{kernel}/modules.builtin").splitlines()
    return set(source.names("/sys/module")) | {
        path.rpartition("/")[2].split(".")[0].replace("-", "_") for path in built_in
    }


def ports(hcas: t.List[Facts], devices: t.List[str]) -> t.Tuple[t.List[str], t.List[str]]:
    """What keeps the devices from serving, one sentence each, and what is wrong with devices to spare.

    Where none is named one that serves is enough: many machines have ports that nobody has connected.
    """
    by_name = {hca["name"]: hca for hca in hcas}
    if not hcas:
        return ["No driver is bound to the RDMA cards (`lspci -k`, `dmesg | grep mlx5`)."], []
    if not devices:
        wrong = [_port_problems(hca) for hca in hcas]
        said = [problem for problems in wrong for problem in problems]
        return ([], said) if [] in wrong else (said, [])
    missing = [
        f"There is no RDMA device {name}; there are: {', '.join(by_name)}."
        for name in devices
        if name not in by_name
    ]
    return missing + [
        problem for name in devices if name in by_name for problem in _port_problems(by_name[name])
    ], []


def _port_problems(hca: Facts) -> t.List[str]:
    name, ports = hca["name"], hca["ports"]
    active = [port for port in ports if port["state"] == "ACTIVE"]
    if active:
        return [
            f"{name} is RoCE and has no GID of RoCE v2 with an IPv4 address: give its interface"
            f" {_interface(port)}an IPv4 address, then see /sys/class/infiniband/*/ports/*/gid_attrs/types."
            for port in active
            if port["link"] == "Ethernet"
            and not any(gid["type"] == "RoCE v2" and gid["address"] for gid in port["gids"])
        ]
    if any(port["state"] == "INIT" and port["link"] == "InfiniBand" for port in ports):
        return [
            f"{name} has a link and waits for a subnet manager (INIT):"
            " start that of the switch, or opensm on one host."
        ]
    states = ", ".join(f"{port['state']}, {port['physical']}" for port in ports) or "none"
    return [
        f"No port of {name} is active ({states}): plug in its cable, or leave the device out of rdma_devices."
    ]


def _interface(port: Facts) -> str:
    """The network interface of a port, and a space, where it is known."""
    return next((gid["nic"] + " " for gid in port["gids"] if gid["nic"]), "")


def _describe(name: str, port: Facts) -> str:
    return f"{name}/{port['number']}: {port['state']}, {port['link']}, {port['gbit']:g} Gbit/s"


def _software(source: HostSource) -> t.List[str]:
    if any(name.startswith("uverbs") for name in source.names("/dev/infiniband")):
        return []
    return ["There is no /dev/infiniband/uverbs*, so containers get no RDMA (`modprobe ib_uverbs`)."]


def _reboot(source: HostSource) -> str:
    """Why the host must be rebooted, or ""; the kernel's own module has no version, that of an OFED has."""
    if not source.names("/sys/module/mlx5_core"):
        return ""
    running = source.read("/sys/module/mlx5_core/version")
    installed = source.run("modinfo", "-F", "version", "mlx5_core").strip()
    if running == installed:
        return ""
    names = running or "the kernel's own", installed or "the kernel's own"
    return f"The running mlx5_core is {names[0]}, the installed one {names[1]}."


def _notes(driver: str, peer_loaded: bool) -> t.List[str]:
    if not driver:
        return []
    if host_driver.is_open(driver):
        return ["GPUDirect: by DMA-BUF, as the NVIDIA driver is the open one."]
    if peer_loaded:
        return ["GPUDirect: by nvidia_peermem."]
    return [
        "GPUDirect is off, so every byte passes through the host's memory: the kernel refuses nvidia_peermem."
        " Its ib_core must support peer memory, as Ubuntu's and OFED's do; or take NVIDIA's open driver."
    ]
