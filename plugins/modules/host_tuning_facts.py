#!/usr/bin/python
"""Module: the facts of a host that role host_tuning needs first. Standard library only."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_tuning_facts
short_description: Read a host's limits, clock, names, packet filters and PCI access control
description:
  - Reports in one round which work of role host_tuning is done already. Changes nothing.
author: The Headfirst authors (@headfirst)
extends_documentation_fragment: headfirst.serving.read_only
options:
  files:
    description: The role's files and the text that each should hold; an empty text means no file.
    type: dict
    default: {}
  memlock:
    description: Limit of locked memory in KiB, or C(unlimited), that root shall be able to set.
    type: str
    default: unlimited
  nofile:
    description: Limit of open files that root shall be able to set.
    type: int
    default: 1048576
  peers:
    description: Addresses and networks that may reach every port.
    type: list
    elements: str
    default: []
  closed_ports:
    description: TCP ports, like C(30000) or C(32768-60999), that no other host may reach.
    type: list
    elements: str
    default: []
  open_port:
    description: A port that must not be among C(closed_ports), because Ansible comes in by it.
    type: int
    default: 22
  hosts:
    description: Names of the ranks and the addresses that they must have.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Read the host
  headfirst.serving.host_tuning_facts:
    peers: [192.0.2.12]
    closed_ports: ["5000", 32768-60999]
"""

RETURN = r"""
tuning:
  description:
    - Keys outdated (paths of files), limits_refused, upgrades (unattended-upgrades is there), clock (service,
      running, refused), hosts (present, needed), acs_bridges and translated (PCI addresses).
    - Of the packet filters nft (it is installed), firewall (the role's service runs), digest (of the role's
      rules in the kernel), ufw and firewalld (active, missing, surplus), dropping (chains of nftables).
    - Key sources has, by each address of C(hosts), the address of this host that its connections come from.
  type: dict
  returned: always
"""

import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.headfirst.serving.plugins.module_utils import host_firewall, host_tuning
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource

FIREWALL = "headfirst-firewall"


def main() -> None:
    """Read the state and exit."""
    module = AnsibleModule(
        argument_spec={
            "files": {"type": "dict", "default": {}},
            "memlock": {"type": "str", "default": "unlimited"},
            "nofile": {"type": "int", "default": 1048576},
            "peers": {"type": "list", "elements": "str", "default": []},
            "closed_ports": {"type": "list", "elements": "str", "default": []},
            "open_port": {"type": "int", "default": 22},
            "hosts": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    params, source = module.params, HostSource()
    try:
        peers = host_firewall.normal_peers(params["peers"])
        ports = host_firewall.normal_ports(params["closed_ports"])
    except ValueError as error:
        module.fail_json(
            msg=f"host_tuning_peers, host_tuning_closed_ports or host_tuning_rendezvous_ports: {error}."
        )
    if any(low <= params["open_port"] <= high for low, high in ports):
        module.fail_json(
            msg=f"host_tuning_closed_ports or host_tuning_rendezvous_ports holds port {params['open_port']}, "
            "which Ansible uses for SSH."
        )
    units = host_tuning.units(source, *host_tuning.CLOCKS, FIREWALL)
    tuning = {
        "outdated": host_tuning.outdated(source, params["files"]),
        "limits_refused": host_tuning.limits_refused(source, params["memlock"], params["nofile"]),
        "upgrades": shutil.which("unattended-upgrade") is not None,
        "clock": host_tuning.clock(units),
        "hosts": host_tuning.hosts(source, params["hosts"]),
        "nft": shutil.which("nft", path="/usr/sbin:/sbin") is not None,
        "sources": host_firewall.sources(params["hosts"].values()),
        "firewall": host_tuning.keeps_running(units.get(FIREWALL, {})),
    }
    tuning.update(host_tuning.peer_to_peer(source))
    tuning.update(host_firewall.gather(source, peers))
    module.exit_json(changed=False, tuning=tuning)


if __name__ == "__main__":
    main()
