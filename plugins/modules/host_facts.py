#!/usr/bin/python
"""Module: what the plan and the rules of role `check` need of a host, in one round. Standard library only."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_facts
short_description: Gather a host's GPUs, network, driver, Docker Engine and resources
description:
  - Reads sysfs, procfs, nvidia-smi, iproute2, dmesg, dpkg and the Docker Engine, all in parallel.
  - Changes nothing and evaluates nothing. What a host does not have is empty; without root, dmesg may be too.
author: The Headfirst authors (@headfirst)
extends_documentation_fragment: headfirst.serving.read_only
options:
  disk_path:
    description: Folder whose filesystem is measured; it need not exist yet.
    type: path
    default: /var/lib/headfirst
  ports:
    description: TCP ports whose listeners are read.
    type: list
    elements: int
    default: []
  peers:
    description: IPv4 addresses of the other hosts that this host must reach.
    type: list
    elements: str
    default: []
  open_peers:
    description: IPv4 addresses of those that this host must reach at any port, as ranks of one engine do.
    type: list
    elements: str
    default: []
  open_ports:
    description: TCP ports to try at open_peers, beside one of the ephemeral range. They need no listener.
    type: list
    elements: int
    default: []
  model_folder:
    description: Folder of a model that the host may serve where it is. Empty for none.
    type: str
    default: ""
  images:
    description: Names of container images whose IDs are returned.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Gather what the rules check
  headfirst.serving.host_facts:
    disk_path: /var/lib/headfirst
    ports: [30000, 5000]
    peers: [192.0.2.12]
"""

RETURN = r"""
host:
  description:
    - Of the system hostname, os (like debian-12), os_name, kernel, cmdline, python, architecture, uid, cores,
      memory_bytes, disk_free_bytes, disk_used_bytes, disk_type, shm_bytes, shm_free_bytes,
      image_store_free_bytes.
    - Of the action clock_offset_s, by how many seconds the clock is ahead of the controller's, and
      clock_error_s, how far that may be wrong.
    - Of O(model_folder) model_folder, as module shared_folder_facts returns it; disk_shared, whether
      disk_path is on a file system that hosts share.
    - Of the network nics (name, kind, addresses, mtu, state, mbit), routes (to each peer its nic and source),
      busy_ports, unreachable_peers, cut_ports (peer, port and rejected of what answers at other ports only).
    - Of RDMA hcas (name, firmware, pci, numa, gpu_distances, ports with their GIDs), hcas_on_pci,
      roce_on_pci (Ethernet cards that an RDMA driver besides their own makes RoCE devices), rdma_devices.
    - Of the GPUs gpus (name, bus, memory_bytes, compute_capability, vbios, ecc_uncorrectable, remap_failure,
      fabric, persistence, processes),
      gpus_on_pci, nvswitches, acs_bridges, xids, smi_driver, smi_cuda, smi_error.
    - Of the software driver (running, open, installed, modules, secure_boot, fabric_manager,
      fabric_manager_active, unheld, auto_upgrades) and docker (version, runtimes, cgroup_driver,
      cgroup_version, snap, char_links, images, image_store).
    - cgroup_obstacle is what prevents rules of nftables by the cgroup of a socket (cgroup-v1, nested,
      cgroup-driver, nftables), or any rules beside (no-rules); empty for nothing.
    - stuck lists the commands that did not end.
  type: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.headfirst.serving.plugins.module_utils import (
    host_facts,
    host_gather,
    host_network,
    shared_folder,
)
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource


def main() -> None:
    """Gather and exit."""
    module = AnsibleModule(
        argument_spec={
            "disk_path": {"type": "path", "default": "/var/lib/headfirst"},
            "ports": {"type": "list", "elements": "int", "default": []},
            "peers": {"type": "list", "elements": "str", "default": []},
            "open_peers": {"type": "list", "elements": "str", "default": []},
            "open_ports": {"type": "list", "elements": "int", "default": []},
            "model_folder": {"type": "str", "default": ""},
            "images": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    params, source = module.params, HostSource()
    module.get_bin_path("ip", required=True)
    silent = host_network.unreachable(params["peers"], [22, *params["ports"]])
    open_peers = [peer for peer in params["open_peers"] if peer not in silent]
    # First, so that it is in `stuck` where it does not end.
    busy_ports = host_network.busy_ports(source, params["ports"])
    host = dict(
        **host_gather.gather(source, params["disk_path"], params["peers"], params["images"]),
        **host_facts.disk(params["disk_path"]),
        **host_facts.shared_memory(),
        model_folder=shared_folder.model_folder(params["model_folder"]) if params["model_folder"] else None,
        disk_shared=shared_folder.is_shared(params["disk_path"]),
        busy_ports=busy_ports,
        unreachable_peers=silent,
        cut_ports=host_network.cut_ports(open_peers, params["open_ports"]),
    )
    host["image_store_free_bytes"] = host_facts.free(host["docker"]["image_store"])
    host_network.name_containers(source, [process for gpu in host["gpus"] for process in gpu["processes"]])
    module.exit_json(changed=False, host=host)


if __name__ == "__main__":
    main()
