"""Documentation of action `apt`, which runs on the controller: plugins/action/apt.py."""

DOCUMENTATION = r"""
module: apt
short_description: Install packages with apt, on a host whose dpkg may have been interrupted
description:
  - Runs M(headfirst.serving.dpkg_repair), then M(ansible.builtin.apt) with the same options.
  - Unless they are given, C(lock_timeout) is 300 and C(install_recommends) is false.
author: The Headfirst authors (@headfirst)
attributes:
  check_mode:
    description: As that of the two modules.
    support: full
options:
  name:
    description: Packages, and the other options of M(ansible.builtin.apt).
    type: list
    elements: str
seealso:
  - module: ansible.builtin.apt
"""

EXAMPLES = r"""
- name: Install nftables
  headfirst.serving.apt:
    name: nftables
    update_cache: true
"""

RETURN = r"""
repaired:
  description: What an interrupted dpkg had left, as M(headfirst.serving.dpkg_repair) reports it.
  type: str
  returned: always
"""
