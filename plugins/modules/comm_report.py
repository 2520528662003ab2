"""Documentation of the action comm_report; the work is done in plugins/action/comm_report.py."""

DOCUMENTATION = r"""
module: comm_report
short_description: Evaluate the connections and the collectives of the ranks
description:
  - Runs on the controller, changes nothing, and fails for nothing that it finds.
author: The Headfirst authors (@headfirst)
extends_documentation_fragment: headfirst.serving.read_only
options:
  hosts:
    description:
      - Inventory name to rank, address, ports, rendezvous_port, link_gbit, rdma_gbit, C(reach) (the result of
        module reach) and, once the collectives have run, C(run) (the result of their job).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Judge
  headfirst.serving.comm_report:
    hosts: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'met'))) }}"
"""

RETURN = r"""
report:
  description:
    - Keys hosts, pairs, rendezvous_held, port (for the collectives, 0 where ranks do not reach each other),
      torch, runs (back-end, ranks, rows, stopped), errors and nccl.
  type: dict
  returned: always
errors:
  description: A sentence for each finding that prevents serving.
  type: list
  elements: str
  returned: always
headfirst_findings:
  description: Dictionaries with id, severity (error or warning), host, what, why and fix.
  type: list
  elements: dict
  returned: always
"""
