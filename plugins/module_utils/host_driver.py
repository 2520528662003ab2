"""NVIDIA's driver, fabric manager and packages, and the kernel they live in. Python 3.8+."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource

# What NVIDIA's packages, and Debian's, call the kernel module's file.
MODULE_FILES = ("nvidia", "nvidia-current", "nvidia-current-open")
MODULES = ("nvidia", "nvidia_peermem", "nouveau", "ib_uverbs", "ib_core", "mlx5_ib")
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# All that comes with a driver's version; the container toolkit and the prebuilt modules of a kernel do not.
PACKAGES = re.compile(
    r"nvidia-(driver(?!-pinning)|headless|dkms|open|kernel|utils|compute-utils|smi|firmware|persistenced|imex"
    r"|fabricmanager)|nvlsm$|libnvidia-(?!container)|libcuda1$|cuda-drivers"
)
AUTO_UPGRADES = "/etc/apt/apt.conf.d/20auto-upgrades"


def gather(source: HostSource) -> t.Dict[str, t.Any]:
    """Versions are "" where there is nothing; see module host_facts for the keys."""
    running = source.read("/proc/driver/nvidia/version")
    modules = {line.split()[0] for line in source.read("/proc/modules").splitlines()}
    return {
        "running": version(running),
        "open": is_open(running),
        "installed": _installed(source),
        "modules": sorted(modules & set(MODULES)),
        "secure_boot": source.read_bytes(SECURE_BOOT)[4:] == b"\x01",  # four bytes of attributes come first
        "fabric_manager": version(source.run("nv-fabricmanager", "--version")),
        "fabric_manager_active": source.run("systemctl", "is-active", "nvidia-fabricmanager").strip()
        == "active",
        "unheld": unheld(
            source.run("dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package}\\n"), holds(source)
        ),
        "auto_upgrades": 'Unattended-Upgrade "1"' in source.read(AUTO_UPGRADES),
    }


def version(text: str) -> str:
    """The driver's version number in a text, or ""."""
    match = re.search(r"\b\d{3}\.\d{2,3}(\.\d{2})?\b", text)
    return match.group() if match else ""


def is_open(running: str) -> bool:
    """Whether the driver's own text (`running`) is of the open module, which hands memory over by DMA-BUF."""
    return "Open Kernel Module" in running


def unheld(listing: str, held_packages: t.Set[str]) -> t.List[str]:
    """NVIDIA's installed packages that an upgrade would move; `listing` has lines like "ii  nvidia-...\"."""
    lines = [line.split() for line in listing.splitlines()]
    installed = [words[1] for words in lines if len(words) == 2 and words[0] == "ii"]
    return [name for name in installed if PACKAGES.match(name) and name not in held_packages]


def _installed(source: HostSource) -> str:
    versions = (source.run("modinfo", "-F", "version", name).strip() for name in MODULE_FILES)
    return next(filter(None, versions), "")


def installed(source: HostSource, names: t.Iterable[str]) -> t.Dict[str, str]:
    """Version of each of these packages that is installed."""
    listing = source.run("dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} ${Version}\\n", *names)
    lines = [line.split() for line in listing.splitlines()]
    return {words[1]: words[2] for words in lines if words[0] == "installed"}


def holds(source: HostSource) -> t.Set[str]:
    """Packages that apt does not move by itself."""
    return set(source.run("apt-mark", "showhold").split())
