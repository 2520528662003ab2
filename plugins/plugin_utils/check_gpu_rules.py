"""Rules of role `check` about GPUs, their driver and the fabric manager. Numbers: docs/diagnose.md."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ansible_collections.headfirst.serving.plugins.plugin_utils.check_rules import Facts, Limits, number
from ansible_collections.headfirst.serving.plugins.plugin_utils.check_rules import rule as any_rule

# NVIDIA's Xid catalogue: with these the GPU, its memory or its links are broken until a reset.
FATAL_XIDS = {48, 62, 64, 74, 79, 92, 95, 119, 120, 140, 143}
# What a process of the display server takes does no harm.
BUSY_BYTES = 512 << 20

rule = partial(any_rule, gpus=True)


@rule(
    "gpu-driver",
    role="nvidia_driver",
    failures=(33,),
    why="Without a running driver no container sees a GPU.",
    fix="Install NVIDIA's driver and reboot; then `nvidia-smi` must list every GPU.",
)
def _driver(facts: Facts, limits: Limits) -> Iterator[str]:
    driver = facts["driver"]
    is_blocked = "nouveau" in driver["modules"] or (driver["installed"] and driver["secure_boot"])
    if not driver["running"] and not is_blocked:
        yield f"NVIDIA's driver is not running ({len(facts['gpus_on_pci'])} GPUs are there)"


@rule(
    "nouveau",
    role="nvidia_driver",
    reboot=True,
    failures=(33,),
    why="NVIDIA's driver gets no GPU while nouveau holds them.",
    fix="echo blacklist nouveau >/etc/modprobe.d/nouveau.conf; update-initramfs -u; reboot",
)
def _nouveau(facts: Facts, limits: Limits) -> Iterator[str]:
    driver = facts["driver"]
    if "nouveau" in driver["modules"] and not driver["running"]:
        yield "the module nouveau holds the GPUs"


@rule(
    "secure-boot",
    failures=(33,),
    why="With Secure Boot the kernel takes signed modules only.",
    fix="Sign the module with your own key (mokutil --import), or turn Secure Boot off in the firmware.",
)
def _secure_boot(facts: Facts, limits: Limits) -> Iterator[str]:
    driver = facts["driver"]
    if driver["installed"] and driver["secure_boot"] and not driver["running"]:
        yield f"NVIDIA's driver {driver['installed']} is installed and not loaded, and Secure Boot is on"


@rule(
    "driver-mismatch",
    role="nvidia_driver",
    reboot=True,
    failures=(28,),
    why="Programs of one version refuse the kernel's module of another.",
    fix="Reboot the host; then hold the driver's packages (apt-mark hold).",
)
def _mismatch(facts: Facts, limits: Limits) -> Iterator[str]:
    driver = facts["driver"]
    if driver["running"] and driver["installed"] and driver["running"] != driver["installed"]:
        yield f"the driver {driver['running']} is running, and {driver['installed']} is installed"
    elif driver["running"] and facts["smi_error"]:
        yield f"nvidia-smi fails: {facts['smi_error']}"


@rule(
    "gpu-lost",
    failures=(36,),
    why="A GPU that fell off the bus stays away until the host is power-cycled.",
    fix="Read `dmesg | grep -i xid`, power-cycle the host, and have the GPU exchanged if it happens again.",
)
def _lost(facts: Facts, limits: Limits) -> Iterator[str]:
    seen = {gpu["bus"] for gpu in facts["gpus"]}
    lost = [bus for bus in facts["gpus_on_pci"] if bus not in seen]
    if seen and lost:
        yield f"the driver does not see the GPU at {', '.join(lost)}"
    elif 0 < len(seen) < limits["gpus"]:
        yield f"it has {len(seen)} GPUs, and {limits['gpus']} are configured"


@rule(
    "xid",
    failures=(36,),
    why="The kernel's log reports a faulty GPU, which would stop all ranks.",
    fix="Take the host out of the inventory, reset or exchange the GPU: docs.nvidia.com, Xid errors.",
)
def _xid(facts: Facts, limits: Limits) -> Iterator[str]:
    for fault in facts["xids"]:
        if fault["xid"] in FATAL_XIDS:
            yield f"Xid {fault['xid']} of the GPU at {fault['bus']} since the last boot: {fault['text']}"


@rule(
    "gpu-memory",
    failures=(36,),
    why="The memory returns wrong values, and the driver stops what reads them.",
    fix="Reset the GPU (nvidia-smi --gpu-reset) or reboot; exchange it if errors return.",
)
def _memory(facts: Facts, limits: Limits) -> Iterator[str]:
    for gpu in facts["gpus"]:
        if gpu["ecc_uncorrectable"] or gpu["remap_failure"]:
            why = "a row that cannot be remapped" if gpu["remap_failure"] else "uncorrectable ECC errors"
            yield f"the GPU at {gpu['bus']} has {why}"


@rule(
    "gpu-busy",
    failures=(46,),
    why="The ranks need all of the memory, the same on every GPU.",
    fix="End that process: kill PID.",
)
def _busy(facts: Facts, limits: Limits) -> Iterator[str]:
    for gpu in facts["gpus"]:
        for process in gpu["processes"]:
            if process["memory_bytes"] >= BUSY_BYTES and not process["container"]:
                amount = f"{process['memory_bytes'] / 2**30:.1f} GiB of the GPU at {gpu['bus']}"
                yield f"{process['name']} ({process['pid']}) holds {amount}"


@rule(
    "fabric-manager",
    role="nvidia_driver",
    failures=(24,),
    why="GPUs behind an NVSwitch compute only when the fabric manager has set it up (Error 802).",
    fix="Install the fabric manager of the driver's version, on HGX B200 nvlsm too (modprobe ib_umad); "
    "systemctl enable --now nvidia-fabricmanager",
)
def _fabric(facts: Facts, limits: Limits) -> Iterator[str]:
    driver = facts["driver"]
    if not driver["running"]:
        return
    pending = [gpu["bus"] for gpu in facts["gpus"] if gpu["fabric"] not in ("", "N/A", "Completed")]
    if facts["nvswitches"] and not driver["fabric_manager_active"]:
        yield f"{facts['nvswitches']} NVSwitches and no running nvidia-fabricmanager"
    elif pending:
        yield f"the fabric manager has not finished with the GPU at {', '.join(pending)}"


@rule(
    "fabric-manager-version",
    role="nvidia_driver",
    failures=(25, 26),
    why="The fabric manager refuses a driver of another version; package names of one branch bring another.",
    fix="Install equal versions (apt-cache policy shows what a package brings), and hold both.",
)
def _fabric_version(facts: Facts, limits: Limits) -> Iterator[str]:
    manager, driver = facts["driver"]["fabric_manager"], facts["driver"]["running"]
    if facts["nvswitches"] and manager and driver and manager != driver:
        yield f"the fabric manager is {manager}, the driver {driver}"


@rule(
    "driver-not-held",
    role="nvidia_driver",
    failures=(27,),
    severity="warning",
    why="unattended-upgrades would move the driver below a running service.",
    fix="apt-mark hold these packages.",
)
def _held(facts: Facts, limits: Limits) -> Iterator[str]:
    driver = facts["driver"]
    if driver["auto_upgrades"] and driver["unheld"]:
        yield f"automatic upgrades are on, and these packages are not held: {', '.join(driver['unheld'])}"


_NEWER_DRIVER = (
    "Install a driver for which `nvidia-smi` prints the image's CUDA version or a newer one, or set "
    "engine_image to one for this CUDA version."
)


@rule(
    "cuda",
    failures=(31, 32),
    why="The image's CUDA needs a newer driver (Error 803, 804, unsatisfied condition: cuda>=).",
    fix=_NEWER_DRIVER,
)
def _cuda(facts: Facts, limits: Limits) -> Iterator[str]:
    # Within one major version an older driver serves a newer image: NVIDIA's minor version compatibility.
    have, need = facts["smi_cuda"], limits["min_cuda"]
    if have and need and number(have)[0] < number(need)[0]:
        yield f"the driver {facts['smi_driver']} serves CUDA {have}, and the image needs {need}"


@rule(
    "cuda-minor",
    failures=(32,),
    severity="warning",
    why="The compatibility library of the image's CUDA is for data center GPUs: others fail with Error 804.",
    fix=_NEWER_DRIVER,
)
def _cuda_minor(facts: Facts, limits: Limits) -> Iterator[str]:
    have, need = facts["smi_cuda"], limits["min_cuda"]
    others = [gpu["name"] for gpu in facts["gpus"] if "GeForce" in gpu["name"] or "RTX" in gpu["name"]]
    if others and have and need and number(have)[0] == number(need)[0] and number(have) < number(need):
        yield f"the driver of {others[0]} serves CUDA {have}, and the image is built with {need}"


@rule(
    "pci-access-control",
    failures=(21,),
    severity="warning",
    why="Traffic between GPU and network card goes through the CPU: slow, or it hangs.",
    fix="Turn ACS and the IOMMU off in the BIOS, or boot with iommu=pt; setpci clears ACSCtl of the bridges.",
)
def _acs(facts: Facts, limits: Limits) -> Iterator[str]:
    words = facts["cmdline"].split()
    if not facts["hcas"]:
        return
    if facts["acs_bridges"]:
        yield f"ACS redirects traffic at {len(facts['acs_bridges'])} PCI bridges above the GPUs"
    if {"intel_iommu=on", "amd_iommu=on"} & set(words) and "iommu=pt" not in words:
        yield "the IOMMU translates for devices (intel_iommu=on or amd_iommu=on without iommu=pt)"
