"""A host's identity and resources, read with the standard library alone (Python 3.8 or newer)."""

from __future__ import annotations

import itertools
import os
import platform
import shutil
import typing as t

if t.TYPE_CHECKING:
    from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource

# A folder of model shards holds hundreds of files; a walk that meets this many is in the wrong place.
MAX_FILES = 20000
CPUS = "/sys/devices/system/cpu"


def system(source: HostSource) -> t.Dict[str, t.Any]:
    """Identity, Python, kernel, cores and memory; `memory_bytes` is the kernel's MemTotal."""
    release = os_release(source.read("/etc/os-release"))
    memory = dict(line.split(":", 1) for line in source.read("/proc/meminfo").splitlines())
    return {
        "hostname": source.read("/proc/sys/kernel/hostname"),
        "os": f"{release.get('ID', 'unknown')}-{release.get('VERSION_ID', 'unknown')}",
        "os_name": release.get("PRETTY_NAME", "unknown"),
        "python": platform.python_version(),
        "architecture": platform.machine(),
        "kernel": source.read("/proc/sys/kernel/osrelease"),
        "cmdline": source.read("/proc/cmdline"),
        "uid": os.geteuid(),
        "cores": cores(source),
        "memory_bytes": int(memory["MemTotal"].split()[0]) * 1024,
    }


def os_release(text: str) -> t.Dict[str, str]:
    """Keys and unquoted values of os-release(5)."""
    pairs = [
        line.strip().split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#")
    ]
    return {key: value.strip("\"'") for key, value in pairs}


def cores(source: HostSource) -> int:
    """Cores, each once whatever the threads it runs; threads where the kernel does not distinguish them."""
    siblings = {source.read(f"{CPUS}/{name}/topology/thread_siblings_list") for name in source.names(CPUS)}
    return len(siblings - {""}) or os.cpu_count() or 1


def disk(path: str) -> t.Dict[str, int]:
    """Free bytes of the filesystem that holds `path`, and the bytes that files under `path` take already."""
    used = sum(itertools.islice(_sizes(path), MAX_FILES))
    return {"disk_free_bytes": free(path), "disk_used_bytes": used}


def free(path: str) -> int:
    """Free bytes of the filesystem that holds `path`, or will hold it."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return shutil.disk_usage(path).free


def shared_memory() -> t.Dict[str, int]:
    """Size and free bytes of /dev/shm, which the ranks use (their containers have the host's IPC)."""
    usage = shutil.disk_usage("/dev/shm")  # noqa: S108
    return {"shm_bytes": usage.total, "shm_free_bytes": usage.free}


def _sizes(path: str) -> t.Iterator[int]:
    """Size of each file below `path`."""
    for folder, _folders, names in os.walk(path):
        for name in names:
            try:
                yield os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:  # removed while we were looking
                continue
