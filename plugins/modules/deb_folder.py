#!/usr/bin/python
"""Module: a folder of .deb files as a repository that apt can use. Standard library only."""

from __future__ import annotations

DOCUMENTATION = r"""
module: deb_folder
short_description: Make an apt repository of the .deb files in a folder of the node
description:
  - Writes an index, and links to the files, into a folder of its own; the files stay where they are.
  - Use it as C(deb [trusted=yes] file:DEST ./). The index holds the SHA-256 of each file.
author: The Headfirst authors (@headfirst)
attributes:
  check_mode:
    description: Writes nothing and reports what it would do.
    support: full
options:
  src:
    description: The folder of .deb files.
    type: path
    required: true
  dest:
    description: The folder of the index and the links; it belongs to this module alone.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Index the packages
  headfirst.serving.deb_folder:
    src: /srv/packages
    dest: /var/lib/headfirst/packages
"""

RETURN = r"""
packages:
  description: How many packages the folder holds.
  type: int
  returned: success
"""

import glob
import os
import subprocess

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.headfirst.serving.plugins.module_utils.deb_index import stanza
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource


def main() -> None:
    """Compare, write and exit."""
    module = AnsibleModule(
        argument_spec={"src": {"type": "path", "required": True}, "dest": {"type": "path", "required": True}},
        supports_check_mode=True,
    )
    dest = module.params["dest"]
    files = sorted(glob.glob(os.path.join(module.params["src"], "*.deb")))
    if not files:
        module.fail_json(msg=f"There is no .deb file in {module.params['src']}.")
    index = os.path.join(dest, "Packages")
    try:
        text = "\n".join(stanza(path, os.path.basename(path)) for path in files)
    except subprocess.CalledProcessError as error:
        module.fail_json(msg=f"{error.cmd[-1]} is not a package: dpkg-deb cannot read it.")
    links = {os.path.join(dest, os.path.basename(path)): path for path in files}
    there = {path: os.readlink(path) for path in glob.glob(os.path.join(dest, "*.deb"))}
    changed = HostSource().read_bytes(index) != text.encode() or there != links
    if changed and not module.check_mode:
        os.makedirs(dest, mode=0o755, exist_ok=True)
        for path in there:
            os.unlink(path)
        for path, target in links.items():
            os.symlink(target, path)
        with open(index, "w", encoding="utf-8") as file:
            file.write(text)
    module.exit_json(changed=changed, packages=len(files))


if __name__ == "__main__":
    main()
