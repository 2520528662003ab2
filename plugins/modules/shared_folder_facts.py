#!/usr/bin/python
"""Module: on which file systems a model folder and the folder of the weights are."""

from __future__ import annotations

DOCUMENTATION = r"""
module: shared_folder_facts
short_description: Read which file system holds a folder, and whether other hosts see the same one
description:
  - Hosts that return the same C(id) of O(place), or the same C(sight) of O(model), see the same folder.
  - Writes nothing into O(model). With O(mark), a marker of 32 characters is written into O(place), once,
    where its file system is a shared one.
author: The Headfirst authors (@headfirst)
attributes:
  check_mode:
    description: Writes no marker.
    support: full
options:
  model:
    description: Folder of a model. Empty for none.
    type: str
    default: ""
  place:
    description: Folder that the hosts write into.
    type: path
    required: true
  mark:
    description: Make O(place), and a marker in it, where it is on a shared file system.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Read where the model is
  headfirst.serving.shared_folder_facts:
    model: /share/DeepSeek-R1
    place: /var/lib/headfirst/models
"""

RETURN = r"""
model:
  description:
    - Keys exists, type (of the mount), shared (by that type), cached (the kernel's page cache has its
      pages), files, bytes, shape (equal where names and sizes are equal), sight (equal where it is the same
      folder), leads_out (a symbolic link leads out of it).
    - Empty where none was given.
  type: dict
  returned: always
place:
  description:
    - Keys type, shared, cached and id, which is equal on hosts that write into the same folder, and "" where
      it is not known.
  type: dict
  returned: always
error:
  description: Why no marker could be written, or "".
  type: str
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.headfirst.serving.plugins.module_utils import shared_folder


def main() -> None:
    """Read the state and exit."""
    module = AnsibleModule(
        argument_spec={
            "model": {"type": "str", "default": ""},
            "place": {"type": "path", "required": True},
            "mark": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params, error = module.params, ""
    try:
        place = shared_folder.place(params["place"], mark=params["mark"] and not module.check_mode)
    except OSError as failure:
        place = shared_folder.place(params["place"], mark=False)
        error = str(failure)
    model = shared_folder.model_folder(params["model"]) if params["model"] else {}
    module.exit_json(changed=False, model=model, place=place, error=error)


if __name__ == "__main__":
    main()
