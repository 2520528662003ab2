#!/usr/bin/python
"""Module: the facts that role rdma needs of a host, in one round. Standard library only."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rdma_facts
short_description: Read a host's RDMA cards, devices, ports and modules
description:
  - Reads PCI, /sys/class/infiniband, the kernel's modules and dpkg in one round trip. Changes nothing.
author: The Headfirst authors (@headfirst)
extends_documentation_fragment: headfirst.serving.read_only
options:
  packages:
    description: Packages that shall be installed.
    type: list
    elements: str
    default: []
  devices:
    description: RDMA devices that shall serve; empty is all.
    type: list
    elements: str
    default: []
  wait:
    description: Seconds to wait until there are no problems.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Wait for the ports
  headfirst.serving.rdma_facts:
    packages: [rdma-core]
    devices: [mlx5_0, mlx5_1]
    wait: 60
"""

RETURN = r"""
host:
  description:
    - Always os (like debian), cards (PCI addresses of cards that can do RDMA), hcas (as of host_facts), ports
      (a line each), todo (of packages, modules and peer_memory; what is left to do), problems and notes
      (sentences), and reboot (why the host must be rebooted, or empty).
    - Where there is RDMA hardware also modules (those that are needed) and peer_memory (whether the NVIDIA
      driver needs nvidia_peermem).
  type: dict
  returned: always
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.headfirst.serving.plugins.module_utils import rdma
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource


def main() -> None:
    """Read the state, repeat while there is something to wait for, and exit."""
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "list", "elements": "str", "default": []},
            "devices": {"type": "list", "elements": "str", "default": []},
            "wait": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    params = module.params
    deadline = time.monotonic() + params["wait"]
    host = rdma.gather(HostSource(), params["packages"], params["devices"])
    while host["problems"] and time.monotonic() < deadline:
        time.sleep(1)
        host = rdma.gather(HostSource(), params["packages"], params["devices"])
    module.exit_json(changed=False, host=host)


if __name__ == "__main__":
    main()
