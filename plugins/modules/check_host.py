"""Module: facts that the rules of role `check` look at, gathered in one round trip. Standard library only."""

from __future__ import annotations

DOCUMENTATION = r"""
module: check_host
short_description: Gather what the check role needs to know of a host
version_added: 0.1.0
description:
  - Reads the host's identity, resources, clock, ports and routes to its peers in one round trip.
  - Changes nothing and judges nothing; the check_report action does that, for all hosts together.
author: The Headfirst authors
attributes:
  check_mode:
    description: Changes nothing, so check mode is the same.
    support: full
options:
  disk_path:
    description: Folder whose filesystem is measured; it need not exist yet.
    type: path
    required: true
  ports:
    description: TCP ports whose listeners are looked up.
    type: list
    elements: int
    default: []
  peers:
    description: IPv4 addresses of the other hosts that this host must reach.
    type: list
    elements: str
    default: []
  controller_time:
    description: The controller's clock when the task was sent, in seconds since 1970.
    type: float
    required: true
"""

EXAMPLES = r"""
- name: Gather what the rules look at
  headfirst.serving.check_host:
    disk_path: /var/lib/headfirst
    ports: [30000, 5000]
    peers: [192.0.2.12]
    controller_time: "{{ now(utc=true).timestamp() }}"
"""

RETURN = r"""
host:
  description:
    - Keys hostname, addresses, os (like debian-12), os_name, python, architecture, uid, memory_bytes,
      disk_free_bytes, disk_used_bytes, clock_skew_s, busy_ports and unreachable_peers.
  type: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.headfirst.serving.plugins.module_utils import host_facts, host_network


def main() -> None:
    """Gather and exit."""
    module = AnsibleModule(
        argument_spec={
            "disk_path": {"type": "path", "required": True},
            "ports": {"type": "list", "elements": "int", "default": []},
            "peers": {"type": "list", "elements": "str", "default": []},
            "controller_time": {"type": "float", "required": True},
        },
        supports_check_mode=True,
    )
    ports, peers = module.params["ports"], module.params["peers"]
    host = dict(
        host_facts.clock(module.params["controller_time"]),  # first: gathering the rest takes time
        **host_facts.system(),
        **host_facts.disk(module.params["disk_path"]),
        addresses=host_network.own_addresses(),
        busy_ports=host_network.busy_ports(ports),
        unreachable_peers=host_network.unreachable(peers, [22, *ports]),
    )
    module.exit_json(changed=False, host=host)


if __name__ == "__main__":
    main()
