"""The variables and templates of a role, as Ansible computes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template


def templar(role: Path, **variables: Any) -> Templar:
    """What templates of the role read: its defaults, all files of its folder vars, and `variables`."""
    loader = DataLoader()
    known = yaml.safe_load((role / "defaults" / "main.yml").read_text())
    for path in sorted((role / "vars").rglob("*.yml")):
        known |= loader.load_from_file(str(path), trusted_as_template=True)
    return Templar(loader, variables={**known, "ansible_managed": "Ansible managed", **variables})


def value(role: Path, expression: str, **variables: Any) -> Any:
    """The value of an expression, such as the name of a variable."""
    return templar(role, **variables).template(trust_as_template("{{ " + expression + " }}"))
