"""Documentation of the action check_report; the work is done in plugins/action/check_report.py."""

DOCUMENTATION = r"""
module: check_report
short_description: Judge what host_facts gathered on all hosts, and report every finding at once
version_added: 0.1.0
description:
  - Applies the rules to each host, compares the hosts with each other, and fails when a finding is an error.
  - Runs on the controller and changes nothing.
author: The Headfirst authors (@headfirst)
attributes:
  check_mode:
    description: Changes nothing, so check mode is the same.
    support: full
options:
  results:
    description: Inventory name to the registered result of host_facts, failed and unreachable ones too.
    type: dict
    required: true
  limits:
    description:
      - Inventory name to its limits, keys supported_os, architectures, python_min, disk_path, min_disk_gb,
        min_memory_gb, max_clock_skew_s, max_clock_difference_s, address, is_rank, services, gpus, min_cuda,
        min_shm_gb, min_kv_shm_gb, nic, hca, ib_gid_index, closed_ports, exposed_ports,
        slow_start_args, model_folder, model_folder_required, roles_to_come and may_reboot.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Report what is wrong
  headfirst.serving.check_report:
    results: {node1: "{{ hostvars.node1.gathered }}"}
    limits: {node1: "{{ hostvars.node1.limits }}"}
"""

RETURN = r"""
headfirst_findings:
  description: Dictionaries with id, severity (error or warning), host, what, why and fix.
  type: list
  elements: dict
  returned: always
"""
