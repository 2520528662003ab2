"""A host's identity, resources and clock, read with the standard library alone (Python 3.8 or newer)."""

from __future__ import annotations

import itertools
import os
import platform
import shutil
import socket
import time
import typing as t

# A folder of model shards holds hundreds of files; a walk that meets this many is in the wrong place.
MAX_FILES = 20000


def clock(controller_time: float) -> t.Dict[str, float]:
    """Seconds that this clock is ahead of the controller's, the time the task travelled included."""
    return {"clock_skew_s": time.time() - controller_time}


def system() -> t.Dict[str, t.Any]:
    """Identity, Python, architecture and memory; `memory_bytes` is the kernel's MemTotal."""
    release = os_release()
    return {
        "hostname": socket.gethostname(),
        "os": f"{release.get('ID', 'unknown')}-{release.get('VERSION_ID', 'unknown')}",
        "os_name": release.get("PRETTY_NAME", "unknown"),
        "python": platform.python_version(),
        "architecture": platform.machine(),
        "uid": os.geteuid(),
        "memory_bytes": _memory_bytes(),
    }


def os_release(path: str = "/etc/os-release") -> t.Dict[str, str]:
    """Keys and unquoted values of os-release(5)."""
    with open(path, encoding="utf-8") as file:
        pairs = [line.strip().split("=", 1) for line in file if "=" in line and not line.startswith("#")]
    return {key: value.strip("\"'") for key, value in pairs}


def disk(path: str) -> t.Dict[str, int]:
    """Free bytes of the filesystem that holds `path`, and the bytes that files under `path` take already."""
    existing = path
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    used = sum(itertools.islice(_sizes(path), MAX_FILES))
    return {"disk_free_bytes": shutil.disk_usage(existing).free, "disk_used_bytes": used}


def _sizes(path: str) -> t.Iterator[int]:
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                yield os.lstat(os.path.join(folder, name)).st_size
            except FileNotFoundError:  # removed while we were looking
                continue


def _memory_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo has no MemTotal line")
