"""Action: module host_facts, and the host's clock against the controller's."""

from __future__ import annotations

import re
import time
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible_collections.headfirst.serving.plugins.module_utils.host_cgroups import OBSTACLES
from ansible_collections.headfirst.serving.plugins.plugin_utils.gated_action import GatedAction
from ansible_collections.headfirst.serving.plugins.plugin_utils.node_answer import Spec


def _texts(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "str")


def _counts(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "int")


def _flags(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "bool")


def _list(options: Spec) -> Spec:
    return {"type": "list", "elements": "dict", "options": options}


_NAMES: Spec = {"type": "list", "elements": "str"}
MODEL_FOLDER: Spec = {
    **_texts("type", "shape", "sight"),
    **_counts("files", "bytes"),
    **_flags("exists", "shared", "cached", "leads_out"),
}
_NIC: Spec = {**_texts("name", "kind", "state"), **_counts("mtu", "mbit"), "addresses": _NAMES}
_GID: Spec = {"index": "int", **_texts("gid", "type", "address", "nic")}
_PORT: Spec = {
    "number": "int",
    "gbit": "float",
    **_texts("state", "physical", "link"),
    "gids": _list(_GID),
}
_HCA: Spec = {
    **_texts("name", "firmware", "pci"),
    "numa": "int",
    "gpu_distances": _NAMES,
    "ports": _list(_PORT),
}
_GPU: Spec = {
    **_texts("name", "bus", "vbios", "fabric", "compute_capability"),
    **_counts("memory_bytes", "ecc_uncorrectable"),
    **_flags("remap_failure", "persistence"),
    "processes": _list({**_texts("name", "container"), **_counts("pid", "memory_bytes")}),
}
_DRIVER: Spec = {
    **_texts("running", "installed", "fabric_manager"),
    **_flags("open", "secure_boot", "fabric_manager_active", "auto_upgrades"),
    "modules": _NAMES,
    "unheld": _NAMES,
}
_DOCKER: Spec = {
    **_texts("version", "cgroup_driver", "cgroup_version", "image_store"),
    **_flags("podman", "cdi", "snap", "char_links"),
    "runtimes": _NAMES,
    "images": {"type": "dict", "elements": "str"},
}
HOST: Spec = {
    **_texts("hostname", "os", "os_name", "kernel", "cmdline", "python", "architecture", "disk_type"),
    **_texts("smi_driver", "smi_cuda", "smi_error"),
    **_counts("uid", "cores", "memory_bytes", "disk_free_bytes", "disk_used_bytes"),
    **_counts("shm_bytes", "shm_free_bytes", "image_store_free_bytes"),
    "disk_shared": "bool",
    "model_folder": {"type": "dict", "nullable": True, "options": MODEL_FOLDER},
    "nics": _list(_NIC),
    "routes": {"type": "dict", "elements": {"type": "dict", "options": _texts("nic", "source")}},
    "busy_ports": _list({"port": "int", **_texts("process", "container")}),
    "unreachable_peers": _NAMES,
    "cut_ports": _list({"peer": "str", "port": "int", "rejected": "bool"}),
    "hcas": _list(_HCA),
    "hcas_on_pci": _NAMES,
    "roce_on_pci": _NAMES,
    "rdma_devices": _NAMES,
    "gpus": _list(_GPU),
    "gpus_on_pci": _NAMES,
    "nvswitches": "int",
    "acs_bridges": _NAMES,
    "xids": _list({**_texts("bus", "text"), "xid": "int"}),
    "driver": {"type": "dict", "options": _DRIVER},
    "docker": {"type": "dict", "options": _DOCKER},
    "stuck": _NAMES,
    "cgroup_obstacle": {"type": "str", "choices": ("", *OBSTACLES)},
}


MODULE = "headfirst.serving.host_facts"
_SAMPLES = 3
_SURE_S = 0.5  # another reading is made where the one before is less sure
_TIME = re.compile(r"[0-9]{1,11}\.[0-9]{1,9}")


class ActionModule(GatedAction):
    """Runs the module on the host, and adds `clock_offset_s` and `clock_error_s` to its result."""

    _supports_check_mode = True
    ANSWERS: ClassVar[dict[str, Any]] = {
        MODULE: {"changed": "bool", "host": {"type": "dict", "options": HOST}}
    }
    RETURNS = ("host",)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result."""
        result = self.ask_module(MODULE, arguments)
        if "host" in result:
            result["host"] |= self._clock()
        return result

    def _clock(self) -> dict[str, float]:
        """The surest of a few readings, each between two of the controller's clock."""
        # The module's own Python: another one might need to be searched for.
        python = str(self._used_interpreter).lstrip("#!")
        readings: list[dict[str, float]] = []
        while not readings or (len(readings) < _SAMPLES and readings[-1]["clock_error_s"] > _SURE_S):
            before = time.time()
            answer = self.ask_shell(f"{python} -c 'import time; print(format(time.time(), \".6f\"))'")
            # Before it may be what sudo prints on a terminal.
            after, text = time.time(), answer["stdout"].strip().rpartition("\n")[2]
            if not _TIME.fullmatch(text):
                raise AnsibleActionFail(f"{self._host} reports no time: {(answer['stderr'] or text)[:60]}")
            readings.append(offset(before, float(text), after))
        return min(readings, key=lambda reading: reading["clock_error_s"])


def offset(before: float, read: float, after: float) -> dict[str, float]:
    """Return by how many seconds a clock is ahead of the controller's, and how far that may be wrong.

    It was `read` at some moment between `before` and `after` of the controller's clock, as in NTP.
    """
    return {"clock_offset_s": read - (before + after) / 2, "clock_error_s": abs(after - before) / 2}
