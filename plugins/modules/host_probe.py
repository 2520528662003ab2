#!/usr/bin/python
"""Ansible module: what an inventory may leave out about a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_probe
short_description: Reports a host's GPUs and the interface that holds an address
description:
  - Asks C(nvidia-smi) for the GPUs' names and C(ip) for the interface. Changes nothing.
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
"""

from ansible.module_utils.basic import AnsibleModule


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
    module.exit_json(changed=False, gpus=gpus, nic=holders[0] if holders else "")


if __name__ == "__main__":
    main()
