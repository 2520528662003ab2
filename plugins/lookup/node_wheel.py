"""Lookup that makes the node tools' wheel on the controller."""

from __future__ import annotations

DOCUMENTATION = """
name: node_wheel
short_description: Make the wheel of Headfirst's node tools
author: The Headfirst authors (@headfirst)
description:
  - Makes the wheel and the files of requirements beside it, on the controller, from the collection's files.
  - A wheel of the same content is not made again.
options:
  _terms:
    description: None.
  folder:
    description: Folder of the wheel.
    type: path
    default: ~/.cache/headfirst/wheels
"""
EXAMPLES = """
- name: Print where the wheel is
  ansible.builtin.debug:
    msg: "{{ lookup('headfirst.serving.node_wheel') }}"
"""
RETURN = """
_raw:
  description: Path of the wheel.
  type: list
  elements: str
"""

from pathlib import Path
from typing import Any

from ansible.plugins.lookup import LookupBase
from ansible_collections.headfirst.serving.plugins.plugin_utils.node_wheel import build_node_wheel


class LookupModule(LookupBase):
    """Lookup `headfirst.serving.node_wheel`."""

    def run(self, terms: list[Any], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[str]:
        """Path of the wheel, which is there afterwards."""
        self.set_options(var_options=variables, direct=kwargs)
        return [str(build_node_wheel(Path(self.get_option("folder"))))]
