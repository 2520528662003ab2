#!/usr/bin/python
"""Module: the facts of a host that role nvidia_driver needs first. Standard library only."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_facts
short_description: Read a host's NVIDIA GPUs, their driver and what belongs to it
description:
  - Reads sysfs, procfs, nvidia-smi, modinfo, dkms, dpkg and systemd, in one round trip.
  - Changes nothing, and needs no driver.
author: The Headfirst authors (@headfirst)
extends_documentation_fragment: headfirst.serving.read_only
options:
  pin_file:
    description: apt preferences that name the version of the driver.
    type: path
    required: true
  source_file:
    description: The file of apt sources that is the role's own.
    type: path
    required: true
  repository:
    description: URI of a mirror; the result reports whether another file of apt sources has what is below it.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Read the driver
  headfirst.serving.nvidia_driver_facts:
    pin_file: /etc/apt/preferences.d/headfirst-nvidia-driver
    source_file: /etc/apt/sources.list.d/headfirst-nvidia-driver.sources
"""

RETURN = r"""
host:
  description:
    - Always os, os_version, architecture, kernel, gpus_on_pci (addresses), nvswitches (how many, or how many
      devices manage those of NVLink 5), nvlink5 (whether they do), open_possible and open_needed (whether the
      open kernel module can drive all GPUs, and whether only it can), state, pinned (the version in pin_file)
      and repository_known.
    - state is no-gpu; absent (no driver); unbuilt (its sources are there, no module for this kernel);
      unloaded; outdated (another version is running than is installed); faulty (nvidia-smi does not list
      every GPU); works.
    - Where there is a GPU also driver (as of host_facts), nouveau (it holds a GPU), smi_error, gpus_listed,
      persistence, dkms, dkms_ready, headers (those of the running kernel), key_enrolled (with Secure Boot),
      services, subnet_manager (NVLink 5's is installed and can send) and faults (sentences; empty when all
      is well).
  type: dict
  returned: always
"""

import re

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.headfirst.serving.plugins.module_utils import apt_sources, nvidia_driver
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource


def main() -> None:
    """Read the state and exit."""
    module = AnsibleModule(
        argument_spec={
            "pin_file": {"type": "path", "required": True},
            "source_file": {"type": "path", "required": True},
            "repository": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    source = HostSource()
    host = nvidia_driver.gather(source)
    pin = re.search(r"^Pin: version ([\d.]+)-", source.read(module.params["pin_file"]), re.MULTILINE)
    host["pinned"] = pin.group(1) if pin else ""
    host["repository_known"] = apt_sources.has(
        source, module.params["repository"], module.params["source_file"]
    )
    module.exit_json(changed=False, host=host)


if __name__ == "__main__":
    main()
