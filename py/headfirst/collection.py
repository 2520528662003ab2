"""Where the Ansible collection and the data files are, in a checkout and in a wheel."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent.parent


@cache
def is_checkout() -> bool:
    """True when this package runs from a checkout of the repository."""
    return (_CHECKOUT / "galaxy.yml").is_file() and (_CHECKOUT / "py" / "headfirst").samefile(_PACKAGE)


@cache
def collection_root() -> Path:
    """Folder of the collection `headfirst.serving` (roles/, playbooks/, plugins/)."""
    if is_checkout():
        return _CHECKOUT
    return _PACKAGE.parent / "ansible_collections" / "headfirst" / "serving"


@cache
def role_packages(role: str) -> dict[str, Any]:
    """What a role installs and from where: its vars/main/packages.yml, plain data."""
    import yaml

    text = (collection_root() / "roles" / role / "vars" / "main" / "packages.yml").read_text(encoding="utf-8")
    variables: dict[str, Any] = yaml.safe_load(text)
    return variables


def data_dir(name: str) -> Path:
    """Folder `templates` or `inventories`; in a wheel also `locks`."""
    return (_CHECKOUT if is_checkout() else _PACKAGE) / name
