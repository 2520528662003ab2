"""The environment of ansible-playbook, how many hosts it works on at the same time, and open files."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from headfirst.collection import collection_root, is_checkout
from headfirst.common.errors import InputError, NotReadyError
from headfirst.control.run.private_dir import PrivateDir

_DEFAULT_COLLECTIONS = "~/.ansible/collections:/usr/share/ansible/collections"  # Ansible's own
_MAX_STARTUPS = 10  # sshd's default
SSH_ARGS = (
    # One connection a host and run, kept while another host works; it is closed when the run ends.
    "-o ControlMaster=auto -o ControlPersist=120s "
    # A dead link is noticed within a minute.
    "-o ServerAliveInterval=15 -o ServerAliveCountMax=4"
)


def ansible_environment(private: PrivateDir, forks: int) -> dict[str, str]:
    """Variables to lay over the process's own environment for one run."""
    return {
        # The commands of this very venv, also for tasks delegated to the controller.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        # ssh's and sudo's messages are read by failures.py, and Ansible requires UTF-8.
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_COLLECTIONS_PATH": collections_path(private),
        "ANSIBLE_FORKS": str(forks),
        # Else it is made in HOME, which may be read-only.
        "ANSIBLE_LOCAL_TEMP": str(private.local_temp),
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_PYTHON_INTERPRETER": os.environ.get("ANSIBLE_PYTHON_INTERPRETER", "/usr/bin/python3"),
        "ANSIBLE_SSH_ARGS": SSH_ARGS,
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(private.control),
        # A connection that drops between two tasks is tried again. Of ten or more at a time, the sshd of a
        # jump host refuses some that have not logged in yet (MaxStartups).
        "ANSIBLE_SSH_RETRIES": "1" if forks < _MAX_STARTUPS else "3",
        # Many key exchanges at once take a small controller longer than Ansible's 10 s.
        "ANSIBLE_TIMEOUT": str(max(user_setting("DEFAULT_TIMEOUT"), forks // 4)),
        # A result of a node may carry facts: as variables they would win over those of the inventory.
        "ANSIBLE_INJECT_FACT_VARS": "False",
        # A broken generated inventory must stop the run, not be skipped with a warning.
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "True",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
        "ANSIBLE_NOCOLOR": "True",
        "HEADFIRST_PROGRESS": str(private.progress),
        "HEADFIRST_SCRATCH": str(private.scratch),
    }


def collections_path(private: PrivateDir) -> str:
    """Search path on which `headfirst.serving` is the one that belongs to this package.

    In a checkout the repository is the collection, so it is linked into the private folder; in an
    installed wheel it is beside the package.
    """
    if is_checkout():
        first = private.collections
        link = first / "ansible_collections" / "headfirst" / "serving"
        link.parent.mkdir(parents=True)
        link.symlink_to(collection_root(), target_is_directory=True)
    else:
        first = collection_root().parents[2]
    return f"{first}:{os.environ.get('ANSIBLE_COLLECTIONS_PATH', _DEFAULT_COLLECTIONS)}"


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
    limits = [_field(meminfo, "MemAvailable", 1024)]
    limit, used = (_number(cgroup / name) for name in ("memory.max", "memory.current"))
    if limit is not None and used is not None:
        # The kernel takes pages of files back when processes need them.
        limits.append(max(0, limit - used + (_field(cgroup / "memory.stat", "inactive_file") or 0)))
    all_memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(number for number in (*limits, all_memory) if number is not None)


def allow_open_files() -> None:
    """Raise the soft limit of open files to the hard one: Ansible holds a few for each fork."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _field(path: Path, name: str, unit: int = 1) -> int | None:
    """A number from lines like `MemAvailable: 1024 kB` and `inactive_file 4096`, in bytes."""
    lines = path.read_text().splitlines() if path.exists() else []
    words = next((line.split() for line in lines if line.startswith(name)), None)
    return int(words[1]) * unit if words else None


def _number(path: Path) -> int | None:
    """The number in a file of the cgroup; None where there is no such file, or it holds `max`."""
    text = path.read_text().strip() if path.exists() else ""
    return int(text) if text.isdigit() else None
