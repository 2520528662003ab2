#!/usr/bin/python
"""Module: which of NVIDIA's packages, at which version, belong together. Standard library only."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_packages
short_description: Choose packages of one driver version out of what apt can give
description:
  - Reads the versions that apt has (C(apt-cache madison)) and chooses the newest of a branch that is there
    of all packages, the fabric manager included. A package's name is never taken for its version.
  - Changes nothing. Fails where there is no such version, and reports which ones there are.
author: The Headfirst authors (@headfirst)
extends_documentation_fragment: headfirst.serving.read_only
options:
  sets:
    description: Names of a driver's packages, one list for each way in which they may be cut, the best first.
    type: list
    elements: list
    default: []
  managers:
    description: Names that the fabric manager may have. None where it is not needed.
    type: list
    elements: str
    default: []
  branch:
    description: Beginning of the version, like 580, or the whole version.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Choose the packages
  headfirst.serving.nvidia_driver_packages:
    sets: [[nvidia-headless-580-open, nvidia-utils-580]]
    managers: [nvidia-fabricmanager-580, nvidia-fabricmanager]
    branch: "580"
"""

RETURN = r"""
version:
  description: The driver's version, like 580.126.20.
  type: str
  returned: success
packages:
  description: What to install, like nvidia-utils-580=580.126.20-1ubuntu1.
  type: list
  elements: str
  returned: success
"""

import subprocess

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.headfirst.serving.plugins.module_utils import nvidia_packages


def main() -> None:
    """Choose and exit."""
    module = AnsibleModule(
        argument_spec={
            "sets": {"type": "list", "elements": "list", "default": []},
            "managers": {"type": "list", "elements": "str", "default": []},
            "branch": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    sets, managers, branch = (module.params[key] for key in ("sets", "managers", "branch"))
    names = list(dict.fromkeys([name for names in sets for name in names] + managers))
    listing = subprocess.run(
        ["apt-cache", "madison", *names],
        stdout=subprocess.PIPE,
        universal_newlines=True,
        check=True,
    )
    versions = nvidia_packages.offered(listing.stdout)
    chosen = nvidia_packages.choose(versions, sets, managers, branch)
    if chosen is None:
        what = "fabric manager" if not sets else "driver with its fabric manager" if managers else "driver"
        module.fail_json(
            msg=f"apt has no {what} {branch} that is complete and of one version. "
            f"Of {', '.join(names)} it has: {nvidia_packages.explain(versions, names)}. "
            "Choose another nvidia_driver_branch or nvidia_driver_source, or update its packages."
        )
    module.exit_json(changed=False, **chosen)


if __name__ == "__main__":
    main()
