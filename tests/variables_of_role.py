"""The variables of a role's vars folder, as Ansible loads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader


def role_vars(loader: DataLoader, role: Path) -> dict[str, Any]:
    """Of all files in it, templates unrendered."""
    own: dict[str, Any] = {}
    for path in sorted((role / "vars").rglob("*.yml")):
        own |= loader.load_from_file(str(path), trusted_as_template=True)
    return own
