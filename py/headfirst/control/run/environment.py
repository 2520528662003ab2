"""The environment of ansible-playbook: what Headfirst's runs need, over what the user set."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from headfirst.collection import collection_root, is_checkout
from headfirst.control.run.forks import user_setting
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
