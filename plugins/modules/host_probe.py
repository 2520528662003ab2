#!/usr/bin/python
"""Ansible module: what an inventory may leave out about a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_probe
short_description: Reports a host's GPUs, the interface that holds an address, cores and memory
description:
  - Asks C(nvidia-smi) for the GPUs' names, C(ip) for the interface and C(/sys) for the rest. Changes nothing.
options:
  address:
    description: IPv4 address whose interface is wanted.
    type: str
    required: true
author: The Headfirst authors
"""

EXAMPLES = r"""
- name: Probe the host
  headfirst.serving.host_probe:
    address: 192.0.2.11
"""

RETURN = r"""
gpus:
  description: Name of each GPU as the driver reports it; empty where there is no driver.
  returned: always
  type: list
  elements: str
nic:
  description: Interface that holds the address; empty if none does.
  returned: always
  type: str
link_mbit:
  description: Speed of that interface in Mbit/s as its driver reports it; 0 where it reports none.
  returned: always
  type: int
cores:
  description: Cores of the processors, each counted once whatever the threads it runs.
  returned: always
  type: int
memory_bytes:
  description: Memory of the host.
  returned: always
  type: int
"""

import glob
import os

from ansible.module_utils.basic import AnsibleModule


def link_mbit(nic):
    """Speed of the interface; 0 for one that is down or has no driver that tells (-1, or EINVAL)."""
    try:
        with open("/sys/class/net/{}/speed".format(nic)) as file:
            return max(0, int(file.read()))
    except OSError:
        return 0


def cores():
    """Cores, or threads where the kernel does not tell which threads share one."""
    siblings = set()
    for path in glob.glob("/sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list"):
        with open(path) as file:
            siblings.add(file.read())
    return len(siblings) or os.cpu_count()


def main():
    module = AnsibleModule(
        argument_spec={"address": {"type": "str", "required": True}}, supports_check_mode=True
    )
    gpus = []
    smi = module.get_bin_path("nvidia-smi")
    if smi:
        code, out, err = module.run_command([smi, "--query-gpu=name", "--format=csv,noheader"])
        if code != 0:
            module.fail_json(msg="nvidia-smi fails: {}".format((err or out).strip()))
        gpus = [line.strip() for line in out.splitlines() if line.strip()]
    _, out, _ = module.run_command(
        [module.get_bin_path("ip", required=True), "-4", "-o", "address"], check_rc=True
    )
    holders = [
        line.split()[1] for line in out.splitlines() if " {}/".format(module.params["address"]) in line
    ]
    nic = holders[0] if holders else ""
    module.exit_json(
        changed=False,
        gpus=gpus,
        nic=nic,
        link_mbit=link_mbit(nic),
        cores=cores(),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    )


if __name__ == "__main__":
    main()
