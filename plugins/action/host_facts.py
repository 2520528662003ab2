"""Action: module host_facts, with a clock that is compared whatever the way to the host takes."""

from __future__ import annotations

import time
from typing import Any, ClassVar

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
_MODEL_FOLDER: Spec = {
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
    "disk_read_rate": "float",
    "disk_shared": "bool",
    "clock_skew_s": "float",
    "model_folder": {"type": "dict", "nullable": True, "options": _MODEL_FOLDER},
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


class ActionModule(GatedAction):
    """Runs the module on the host and corrects `clock_skew_s` of its result."""

    _supports_check_mode = True
    ANSWERS: ClassVar[dict[str, Any]] = {
        MODULE: {"changed": "bool", "host": {"type": "dict", "options": HOST}}
    }
    RETURNS = ("host",)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the module's result."""
        sent = time.time()
        result = self.ask_module(MODULE, {**arguments, "controller_time": sent})
        if "host" in result:
            host = result["host"]
            host["clock_skew_s"] = skew(host["clock_skew_s"], time.time() - sent)
        return result


def skew(ahead: float, round_trip: float) -> float:
    """Return by how much a clock differs at least, in seconds.

    `ahead` is its time less that of the controller when the task began. A host among a hundred may be asked
    half a minute later: any time within the round trip is right.
    """
    return max(0.0, ahead - round_trip) + min(0.0, ahead)
