"""How many hosts Ansible works on at the same time, and the open files that this takes."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from headfirst.common.errors import InputError, NotReadyError

# Of one host: the first stages of `up` on a hundred peaked at 20 MiB a host, `ansible -m ping` at 6.
FORK_BYTES = 32 * 2**20
_CGROUP = Path("/sys/fs/cgroup")


def forks(hosts: int) -> int:
    """One fork per host, limited by the memory that is free; a larger number in Ansible's settings wins."""
    return max(min(hosts, free_memory() // FORK_BYTES), user_setting("DEFAULT_FORKS"))


def require_all(hosts: int) -> None:
    """Raise NotReadyError unless there is a fork for each host: all ranks are waited for at the same time."""
    if forks(hosts) < hosts:
        free = free_memory() / 2**30
        raise NotReadyError(
            f"a run on {hosts} hosts needs {hosts * FORK_BYTES / 2**30:.1f} GiB of memory on this machine,"
            f" and {free:.1f} GiB are free",
            hint=f"Free memory, or override the limit: ANSIBLE_FORKS={hosts} deploy up INVENTORY",
        )


def user_setting(name: str) -> int:
    """A number from Ansible's environment variables or from the ansible.cfg found here, or its default."""
    # Ansible's configuration takes 150 ms to import, and `deploy plan` starts no run.
    from ansible.config.manager import ConfigManager
    from ansible.errors import AnsibleError

    try:
        return int(ConfigManager().get_config_value(name))
    except AnsibleError as error:
        raise InputError(
            f"Ansible's settings cannot be read: {error}", hint="Try: ansible-config dump"
        ) from error


def free_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = _CGROUP) -> int:
    """Bytes that new processes can use, also within the limit of a container; all memory where not known."""
    known = [_field(meminfo, "MemAvailable", 1024)]
    limit, used = (_number(cgroup / name) for name in ("memory.max", "memory.current"))
    if limit is not None and used is not None:
        # The kernel takes pages of files back when processes need them.
        known.append(max(0, limit - used + (_field(cgroup / "memory.stat", "inactive_file") or 0)))
    return min(number for number in (*known, _all_memory()) if number is not None)


def allow_open_files() -> None:
    """Raise the soft limit of open files to the hard one: Ansible holds a few for each fork."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _all_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _field(path: Path, name: str, unit: int = 1) -> int | None:
    """A number from lines like `MemAvailable: 1024 kB` and `inactive_file 4096`, in bytes."""
    lines = path.read_text().splitlines() if path.exists() else []
    words = next((line.split() for line in lines if line.startswith(name)), None)
    return int(words[1]) * unit if words else None


def _number(path: Path) -> int | None:
    """The number in a file of the cgroup; None where there is no such file, or it holds `max`."""
    text = path.read_text().strip() if path.exists() else ""
    return int(text) if text.isdigit() else None
