"""Documentation of the action check_report; the work is done in plugins/action/check_report.py."""

DOCUMENTATION = r"""
module: check_report
short_description: Judge what host_facts gathered on all hosts, and report every finding at once
description:
  - Applies the rules to each host, compares the hosts with each other, and fails when a finding is an error.
  - Runs on the controller and changes nothing.
author: The Headfirst authors (@headfirst)
extends_documentation_fragment: headfirst.serving.read_only
options:
  results:
    description: Inventory name to the registered result of host_facts, failed and unreachable ones too.
    type: dict
    required: true
  variables:
    description: Inventory name to what the host must meet, as the variables of the role check.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Report what is wrong
  headfirst.serving.check_report:
    results: {node1: "{{ hostvars.node1.gathered }}"}
    variables: {node1: {check_min_disk_gb: 100}}
"""

RETURN = r"""
headfirst_findings:
  description: Dictionaries with id, severity (error or warning), host, what, why and fix.
  type: list
  elements: dict
  returned: always
"""
