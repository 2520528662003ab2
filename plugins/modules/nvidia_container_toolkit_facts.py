#!/usr/bin/python
"""Module: the facts of a host that role nvidia_container_toolkit needs. Standard library only."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_container_toolkit_facts
short_description: Read a host's GPUs, its container toolkit, its Docker Engine and its CDI specification
description:
  - Reads sysfs, dpkg, apt's sources, daemon.json and the Docker Engine in one round trip. Changes nothing.
author: The Headfirst authors (@headfirst)
extends_documentation_fragment: headfirst.serving.read_only
options:
  version:
    description: The version that the packages shall have; empty is any.
    type: str
    default: ""
  repository:
    description: URI of an apt repository; the result reports whether another file of apt sources has it.
    type: str
    default: ""
  own_source:
    description: The file of apt sources that is the role's own.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Read the toolkit
  headfirst.serving.nvidia_container_toolkit_facts:
    version: 1.19.1
    own_source: /etc/apt/sources.list.d/headfirst-nvidia-container-toolkit.sources
"""

RETURN = r"""
host:
  description:
    - Always os (like debian), gpus (how many there are on PCI) and todo (of packages, hold, runtime, links
      and cdi, what is left to do; empty where there is no GPU).
    - Where there is a GPU also driver (the running one's version, or empty), packages (name to version),
      held, repository_known, links (whether /dev/char has those that systemd's cgroups need, and keeps them).
    - engine has answers, containers (how many are running), cgroup_driver, live_restore, configured and
      running (the runtime nvidia in daemon.json, and in the process) and stale (older than the toolkit).
    - cdi has units (those of the toolkit's own refresh), enabled and specs (the text of the specifications).
  type: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.headfirst.serving.plugins.module_utils import nvidia_container_toolkit
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource


def main() -> None:
    """Read the state and exit."""
    module = AnsibleModule(
        argument_spec={
            "version": {"type": "str", "default": ""},
            "repository": {"type": "str", "default": ""},
            "own_source": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    params = module.params
    host = nvidia_container_toolkit.gather(
        HostSource(), params["version"], params["repository"], params["own_source"]
    )
    module.exit_json(changed=False, host=host)


if __name__ == "__main__":
    main()
