"""Write every role's README.md from its meta/argument_specs.yml.

Usage: python tools/role_readme.py [--check]
With --check nothing is written; exit code 1 tells that a README is not up to date.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import generated
import yaml
from headfirst.control.inventory.decided import DECIDED

ROLES = Path(__file__).resolve().parent.parent / "roles"
# Ansible's markup: C(code), V(value), O(option), M(module), B(bold), I(italic).
MARKUP = re.compile(r"\b([CVOMBI])\(([^)]*)\)")
DECIDED_NOTE = (
    "`deploy` refuses a variable that is **set by the plan** in an inventory; a playbook of your own sets it."
)
QUOTES = {"B": "**", "I": "*"}


def readme(role: str, specs: dict[str, Any]) -> str:
    """The README's text; `specs` is the loaded meta/argument_specs.yml."""
    main = specs["argument_specs"]["main"]
    options: dict[str, dict[str, Any]] = main.get("options", {})
    lines = [
        "<!-- Written by tools/role_readme.py from meta/argument_specs.yml: change that file. -->",
        f"# headfirst.serving.{role}",
        "",
        f"{main['short_description']}.",
        "",
        *[f"{line}\n" for line in _paragraphs(main["description"])],
        "## Variables",
        "",
        *([DECIDED_NOTE, ""] if DECIDED & options.keys() else []),
        "| Variable | Type | Default | What it is |",
        "|---|---|---|---|",
        *[_row(name, option) for name, option in options.items()],
        "",
        "## Use",
        "",
        "```yaml",
        "- hosts: all",
        "  become: true",
        "  roles:",
        f"    - role: headfirst.serving.{role}",
        *_example(options),
        "```",
    ]
    return "\n".join(lines) + "\n"


def _row(name: str, option: dict[str, Any]) -> str:
    kind = option.get("type", "str")
    if "elements" in option:
        kind += f" of {option['elements']}"
    default = (
        "required" if option.get("required") else f"`{json.dumps(option.get('default'), ensure_ascii=False)}`"
    )
    text = ("**Set by the plan.** " if name in DECIDED else "") + " ".join(_paragraphs(option["description"]))
    if "choices" in option:
        text += f" One of {', '.join(f'`{choice}`' for choice in option['choices'])}."
    for key, sub in option.get("options", {}).items():
        text += f"<br>`{key}`: {' '.join(_paragraphs(sub['description']))}"
    return f"| `{name}` | {kind} | {_cell(default)} | {_cell(text)} |"


def _example(options: dict[str, dict[str, Any]]) -> list[str]:
    required = {name: option["type"] for name, option in options.items() if option.get("required")}
    if not required:
        return []
    return ["      vars:", *[f"        {name}: …  # {kind}" for name, kind in required.items()]]


def _paragraphs(description: str | list[str]) -> list[str]:
    texts = [description] if isinstance(description, str) else description
    return [
        MARKUP.sub(lambda m: f"{QUOTES.get(m[1], '`')}{m[2]}{QUOTES.get(m[1], '`')}", text) for text in texts
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main() -> int:
    """Write, or compare with --check; return the exit code."""
    specs = {spec.parent.parent: spec.read_text("utf-8") for spec in ROLES.glob("*/meta/argument_specs.yml")}
    return generated.write(
        {role / "README.md": readme(role.name, yaml.safe_load(text)) for role, text in sorted(specs.items())}
    )


if __name__ == "__main__":
    sys.exit(main())
