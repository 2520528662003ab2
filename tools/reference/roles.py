"""The page of roles, from their argument specifications."""

from __future__ import annotations

from pathlib import Path

import yaml
from role_readme import INSTALL, readme, summaries

from reference.text import generated

ROLES = Path(__file__).resolve().parents[2] / "roles"
INTRODUCTION = """\
Each role has one capability and depends on no other role. The collection `headfirst.serving` has them, which
`pip install .` installs beside the command `deploy`.
"""


def page() -> str:
    """Every role with its variables, as in its README."""
    paths = sorted(ROLES.glob("*/meta/argument_specs.yml"))
    specs = {path.parent.parent.name: yaml.safe_load(path.read_text("utf-8")) for path in paths}
    lines = [
        generated("Roles", "roles/*/meta/argument_specs.yml"),
        INTRODUCTION,
        INSTALL,
        "| role | what it does |",
        "|---|---|",
    ]
    lines += [f"| [{role}](#{role}) | {text} |" for role, text in summaries(specs)]
    for role, spec in specs.items():
        text = readme(role, spec).split("\n", 3)[3]
        lines += ["", f"## {role}", "", text.strip().replace("\n## ", "\n### ")]
    return "\n".join(lines).rstrip() + "\n"
