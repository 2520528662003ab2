"""The page of roles, from their argument specifications."""

from __future__ import annotations

from role_readme import INSTALL, readme, specifications, summaries

from reference.text import generated

INTRODUCTION = """\
Each role has one capability and depends on no other role. The collection `headfirst.serving` has them, which
`pip install .` installs beside the command `deploy`.
"""


def page() -> str:
    """Every role with its variables, as in its README."""
    specs = specifications()
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
