"""Check that every role's defaults/main.yml and meta/argument_specs.yml agree.

Usage: python tools/role_defaults.py
A public variable stands in both files with the same default; only a required one has none, and stands in
argument_specs.yml alone. Public variables carry the role's name as a prefix. Exit code 1 when a role differs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).resolve().parent.parent / "roles"


def load(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; an absent or empty file is an empty mapping."""
    return (yaml.safe_load(path.read_text()) if path.exists() else None) or {}


def differences(role: Path) -> list[str]:
    """Sentences about what does not agree in the folder of one role."""
    defaults = load(role / "defaults" / "main.yml")
    specs = load(role / "meta" / "argument_specs.yml")
    if "main" not in specs.get("argument_specs", {}):
        return [f"{role.name}: meta/argument_specs.yml has no entry point main"]
    options = specs["argument_specs"]["main"].get("options", {})
    found = [f"{key} is in defaults but not in argument_specs" for key in defaults.keys() - options.keys()]
    for key, option in options.items():
        if not key.startswith(f"{role.name}_"):
            found.append(f"{key} lacks the prefix {role.name}_")
        if key in defaults and option.get("required"):
            found.append(f"{key} is required, so its default can never be used")
        elif key in defaults and "default" not in option:
            found.append(f"{key} has a default, which argument_specs does not tell")
        elif key not in defaults and not option.get("required"):
            found.append(f"{key} is neither required nor in defaults")
        elif option.get("default") != defaults.get(key):
            found.append(f"{key} defaults to {defaults[key]!r}, argument_specs says {option['default']!r}")
    return [f"{role.name}: {text}" for text in sorted(found)]


def main() -> int:
    """Print what differs; return the exit code."""
    found = [text for role in sorted(ROLES.iterdir()) if role.is_dir() for text in differences(role)]
    print("\n".join(found) or "Defaults and argument_specs agree in every role.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
