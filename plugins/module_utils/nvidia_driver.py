"""What role nvidia_driver needs of a host: its GPUs, their driver, what is missing. Python 3.8+."""

from __future__ import annotations

import platform
import re
import typing as t

from ansible_collections.headfirst.serving.plugins.module_utils import (
    host_driver,
    host_facts,
    host_gpu,
    host_pci,
)
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource

# NVIDIA numbers its chips in the order of their generations. The open module drives Turing and newer, and
# nothing else drives Blackwell and newer: the README of NVIDIA/open-gpu-kernel-modules lists the numbers.
TURING = 0x1E00
MANAGER, PERSISTENCE = "nvidia-fabricmanager.service", "nvidia-persistenced.service"
MANAGER_PROGRAM = "/usr/bin/nv-fabricmanager"
SUBNET_MANAGER, UMAD = "/var/lib/dpkg/info/nvlsm.list", "/sys/class/infiniband_mad"
# Keys that dkms signs modules with: Ubuntu's, then dkms's own.
SIGNING_KEYS = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")
DKMS_LINE = re.compile(
    r"^nvidia(?:-[a-z-]+)?(?:/|, )(\d{3}(?:\.\d+)+)(?:, ([^,:]+), [^,:]+)?: (\w+)", re.MULTILINE
)


def gather(source: HostSource) -> t.Dict[str, t.Any]:
    """Facts by the keys that module nvidia_driver_facts documents."""
    devices = host_pci.devices(source)
    gpus = host_pci.gpus(devices)
    kernel = source.read("/proc/sys/kernel/osrelease")
    release = host_facts.os_release(source.read("/etc/os-release"))
    facts = {
        "os": release.get("ID", ""),
        "os_version": release.get("VERSION_ID", ""),
        "architecture": platform.machine(),
        "kernel": kernel,
        "gpus_on_pci": [gpu.address for gpu in gpus],
        "nvswitches": len(host_pci.nvswitches(devices)),
        "nvlink5": any(device.kind == host_pci.NVLINK5 for device in devices),
        **generations([source.read(f"{host_pci.DEVICES}/{gpu.address}/device") for gpu in gpus]),
    }
    if not gpus:
        return {**facts, "state": "no-gpu"}
    driver = host_driver.gather(source)
    smi = host_gpu.gather(source)
    built = dkms(source.run("dkms", "status"))
    facts.update(
        driver=driver,
        nouveau=any(
            source.real(f"{host_pci.DEVICES}/{gpu.address}/driver").endswith("/nouveau") for gpu in gpus
        ),
        smi_error=smi["smi_error"],
        gpus_listed=[gpu["bus"] for gpu in smi["gpus"]],
        persistence=all(gpu["persistence"] for gpu in smi["gpus"]),
        dkms=built,
        dkms_ready=not built
        or any(build["kernel"] == kernel and build["state"] == "installed" for build in built),
        headers=bool(source.names(f"/lib/modules/{kernel}/build")),
        key_enrolled=any(
            "already enrolled" in source.run("mokutil", "--test-key", key) for key in SIGNING_KEYS
        ),
        services=services(source),
        # NVLink 5's subnet manager, which the fabric manager starts, and the module by which it sends.
        subnet_manager=bool(source.read(SUBNET_MANAGER)) and bool(source.names(UMAD)),
    )
    facts["state"] = state(facts)
    return {**facts, "faults": faults(facts)}


def generations(ids: t.List[str]) -> t.Dict[str, bool]:
    """Which kernel modules can drive all of the GPUs with these PCI device IDs (like 0x20b2)."""
    numbers = [int(device_id, 16) for device_id in ids if device_id]
    return {
        "open_possible": all(number >= TURING for number in numbers),
        "open_needed": any(number >= host_pci.BLACKWELL for number in numbers),
    }


def state(facts: t.Dict[str, t.Any]) -> str:
    """One word for how far the driver is; module nvidia_driver_facts explains each."""
    running, installed = facts["driver"]["running"], facts["driver"]["installed"]
    # A driver whose packages were removed may still run; only while it serves is it left alone.
    if not installed and not (running and facts["gpus_listed"]):
        return "unbuilt" if facts["dkms"] else "absent"
    if not running:
        return "unloaded"
    if running != installed:
        return "outdated"
    every = sorted(facts["gpus_listed"]) == sorted(facts["gpus_on_pci"])
    return "works" if every and not facts["smi_error"] else "faulty"


def faults(facts: t.Dict[str, t.Any]) -> t.List[str]:
    """Sentences about what keeps the GPUs from serving, with what to do; empty when all is well."""
    driver, manager = facts["driver"], facts["services"]["fabric_manager"]
    running = driver["running"]
    faults = _driver_faults(facts)
    if not facts["dkms_ready"]:
        faults.append(f"dkms has no module for the running kernel {facts['kernel']}: see `dkms status`.")
    if facts["state"] == "works" and not facts["persistence"]:
        faults.append("Persistence mode is off: see `systemctl status nvidia-persistenced`.")
    if facts["nvswitches"] and running:
        if driver["fabric_manager"] != running:
            have = driver["fabric_manager"] or "not installed"
            faults.append(f"The fabric manager is {have}, and the driver {running}: the two must be equal.")
        if facts["nvlink5"] and not facts["subnet_manager"]:
            faults.append(
                "NVLink's subnet manager (package nvlsm) is not installed, or ib_umad is not loaded."
            )
        if not (manager["active"] and manager["enabled"]) or manager["stale"]:
            faults.append(
                "nvidia-fabricmanager is not active and enabled at the installed version: see "
                "`systemctl status nvidia-fabricmanager` and /var/log/fabricmanager.log."
            )
    if driver["unheld"]:
        faults.append(f"An upgrade would move {', '.join(driver['unheld'])}: hold them with `apt-mark hold`.")
    return faults


def _driver_faults(facts: t.Dict[str, t.Any]) -> t.List[str]:
    driver = facts["driver"]
    running, installed = driver["running"], driver["installed"] or "none"
    lost = [bus for bus in facts["gpus_on_pci"] if bus not in facts["gpus_listed"]]
    if facts["state"] == "works":
        return []
    if facts["state"] == "outdated":
        return [f"The driver {running} is running, and {installed} is installed: reboot the host."]
    if facts["state"] == "faulty" and facts["gpus_listed"]:
        return [
            f"nvidia-smi does not list the GPU at {', '.join(lost)}: read `dmesg | grep -i -e nvrm -e xid`, "
            "and power-cycle the host."
        ]
    if facts["state"] == "faulty":
        why = facts["smi_error"] or "it is missing"
        return [f"The driver {running} is running, and nvidia-smi fails: {why}"]
    if facts["nouveau"]:
        return ["The module nouveau holds the GPUs: blacklist it and reboot the host."]
    if facts["state"] == "absent":
        return ["NVIDIA's driver is not installed."]
    return [f"NVIDIA's driver is not running (installed: {installed}): see `dmesg | grep -i nvidia`."]


def dkms(text: str) -> t.List[t.Dict[str, str]]:
    """{version, kernel, state} of NVIDIA's lines in `dkms status`; before a build there is no kernel."""
    return [
        {"version": version, "kernel": kernel, "state": word}
        for version, kernel, word in DKMS_LINE.findall(text)
    ]


def services(source: HostSource) -> t.Dict[str, t.Dict[str, bool]]:
    """fabric_manager and persistence, each {active, enabled, stale}.

    Stale is a fabric manager that was started before its program was installed.
    """
    fields = "Id,ActiveState,UnitFileState,ActiveEnterTimestamp"
    text = source.run("systemctl", "show", "--timestamp=unix", "-p", fields, MANAGER, PERSISTENCE)
    blocks = [dict(line.split("=", 1) for line in block.splitlines()) for block in text.split("\n\n")]
    units = {unit.get("Id", ""): unit for unit in blocks}
    installed = source.run("stat", "-c", "%Z", MANAGER_PROGRAM).strip()
    states = {}
    for name, unit in (("fabric_manager", MANAGER), ("persistence", PERSISTENCE)):
        properties = units.get(unit, {})
        started = properties.get("ActiveEnterTimestamp", "").lstrip("@")
        newer = bool(started and installed) and int(installed) > int(started)
        states[name] = {
            "active": properties.get("ActiveState") == "active",
            "enabled": properties.get("UnitFileState") == "enabled",
            "stale": name == "fabric_manager" and newer,
        }
    return states
