#!/usr/bin/python
"""Module: do the hosts of a play reach each other's ports?"""

from __future__ import annotations

DOCUMENTATION = r"""
module: reach
short_description: Listen on ports and connect to those of the other hosts, all at the same time
description:
  - Run on all hosts at once, for each is the other end of the others. Ends as soon as all have met, else
    after O(seconds).
  - A connection counts only when a listener of this module has answered it; over a port that a service holds
    nothing is sent.
  - Fails for nothing that it sees; the caller judges.
author: The Headfirst authors (@headfirst)
extends_documentation_fragment: headfirst.serving.read_only
options:
  address:
    description: This host's own address, at which the others reach it.
    type: str
    required: true
  ports:
    description: TCP ports to listen on.
    type: list
    elements: int
    required: true
  peers:
    description: The other hosts, each with its address and the ports to try there.
    type: list
    elements: dict
    required: true
    suboptions:
      address: {description: Address of the peer., type: str, required: true}
      ports: {description: Ports on which it listens., type: list, elements: int, required: true}
  token:
    description: The same word on all hosts of a run, another one in each run.
    type: str
    required: true
  seconds:
    description: The longest time to wait for the others.
    type: int
    default: 15
"""

EXAMPLES = r"""
- name: Try port 41000 between two hosts
  headfirst.serving.reach:
    address: "{{ ansible_host }}"
    ports: [41000]
    peers: "{{ [{'address': other, 'ports': [41000]}] }}"
    token: "{{ run_token }}"
"""

RETURN = r"""
listening:
  description: By port, V(open), V(held) by somebody else, or why it could not be opened.
  type: dict
  returned: always
reached:
  description:
    - For each port of a peer its address, port, state and words. The state is V(ok), V(stranger) (something
      else answers), V(refused), V(dropped) (no answer) or V(unreachable).
  type: list
  elements: dict
  returned: always
arrived:
  description: Who has connected to which port, address and port.
  type: list
  elements: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.headfirst.serving.plugins.module_utils.comm_reach import PortMeeting


def main() -> None:
    """Run the module."""
    peer_options = {
        "address": {"type": "str", "required": True},
        "ports": {"type": "list", "elements": "int", "required": True},
    }
    module = AnsibleModule(
        argument_spec={
            "address": {"type": "str", "required": True},
            "ports": {"type": "list", "elements": "int", "required": True},
            "peers": {"type": "list", "elements": "dict", "required": True, "options": peer_options},
            "token": {"type": "str", "required": True, "no_log": False},
            "seconds": {"type": "int", "default": 15},
        },
        supports_check_mode=True,
    )
    params = module.params
    targets = [(peer["address"], port) for peer in params["peers"] for port in peer["ports"]]
    peers = [peer["address"] for peer in params["peers"]]
    meeting = PortMeeting(params["address"], params["ports"], peers, targets, params["token"])
    module.exit_json(changed=False, **meeting.hold(params["seconds"]))


if __name__ == "__main__":
    main()
