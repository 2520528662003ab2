"""Write every role's README.md, and COLLECTION.md, which is the README of the collection's archive.

A role's page is made from its meta/argument_specs.yml and from the play that its molecule scenario runs.
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

ROOT = Path(__file__).resolve().parent.parent
ROLES = ROOT / "roles"
SCENARIOS = ROOT / "molecule"
GALAXY = yaml.safe_load((ROOT / "galaxy.yml").read_text("utf-8"))
RUNTIME = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text("utf-8"))
INSTALL = f"""\
Install the collection from the repository, or from the archive that each release has and that
`ansible-galaxy collection build` makes in a checkout. On the controller it needs nothing but ansible-core
{RUNTIME["requires_ansible"].removeprefix(">=")} or later:

```sh
ansible-galaxy collection install git+{GALAXY["repository"]}.git,main
ansible-galaxy collection install headfirst-serving-{GALAXY["version"]}.tar.gz
```

In the file `requirements.yml` of a project, for `ansible-galaxy collection install -r requirements.yml`:

```yaml
collections:
  - name: {GALAXY["repository"]}.git
    type: git
    version: main
```
"""
# Ansible's markup: C(code), V(value), O(option), M(module), B(bold), I(italic).
MARKUP = re.compile(r"\b([CVOMBI])\(([^)]*)\)")
DECIDED_NOTE = (
    "`deploy` refuses a variable that is **set by the plan** in an inventory; a playbook of your own sets it."
)
_VARS_FILE = re.compile(r"^  vars_files: \[(\S+)\]\n", re.MULTILINE)
QUOTES = {"B": "**", "I": "*"}


def readme(role: str, specs: dict[str, Any]) -> str:
    """The README's text; `specs` is the loaded meta/argument_specs.yml."""
    main = specs["argument_specs"]["main"]
    options: dict[str, dict[str, Any]] = main.get("options", {})
    lines = [
        "<!-- Written by tools/role_readme.py from meta/argument_specs.yml and molecule: change those. -->",
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
        example(role),
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


def example(role: str) -> str:
    """The play that the role's molecule scenario runs, with the variables of its file in their place."""
    folder = SCENARIOS / role
    path = next(path for path in (folder / "example.yml", folder / "converge.yml") if path.is_file())

    def variables(match: re.Match[str]) -> str:
        text = (folder / match[1]).read_text("utf-8").removeprefix("---\n")
        return "  vars:\n" + "".join(f"    {line}" for line in text.splitlines(keepends=True))

    return _VARS_FILE.sub(variables, path.read_text("utf-8").removeprefix("---\n")).rstrip()


def collection(specs: dict[str, dict[str, Any]]) -> str:
    """The README of the collection: its links are to files in the archive, or to the repository."""
    lines = [
        "<!-- Written by tools/role_readme.py: do not edit. -->",
        "# headfirst.serving",
        "",
        f"{GALAXY['description']}.",
        "",
        INSTALL,
        "Each role has one capability and depends on no other role. Its page has its variables and a play to",
        "paste, which the tests of the role run.",
        "",
        "| Role | What it does |",
        "|---|---|",
        *[f"| [{role}](roles/{role}/README.md) | {text} |" for role, text in summaries(specs)],
        "",
        "`ansible-doc --list headfirst.serving` lists the modules. The command `deploy`, which plans a",
        f"cluster and runs all roles, is in [the repository]({GALAXY['repository']}).",
        "",
        "[Changes](CHANGELOG.md) · [Apache-2.0](LICENSE)",
    ]
    return "\n".join(lines) + "\n"


def summaries(specs: dict[str, dict[str, Any]]) -> list[tuple[str, str]]:
    """Each role with its sentence."""
    return [(role, spec["argument_specs"]["main"]["short_description"]) for role, spec in specs.items()]


def _paragraphs(description: str | list[str]) -> list[str]:
    texts = [description] if isinstance(description, str) else description
    return [
        MARKUP.sub(lambda m: f"{QUOTES.get(m[1], '`')}{m[2]}{QUOTES.get(m[1], '`')}", text) for text in texts
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def specifications() -> dict[str, dict[str, Any]]:
    """The loaded meta/argument_specs.yml of each role."""
    paths = sorted(ROLES.glob("*/meta/argument_specs.yml"))
    return {path.parent.parent.name: yaml.safe_load(path.read_text("utf-8")) for path in paths}


def main() -> int:
    """Write, or compare with --check; return the exit code."""
    specs = specifications()
    pages = {ROLES / role / "README.md": readme(role, spec) for role, spec in specs.items()}
    return generated.write(pages | {ROLES.parent / "COLLECTION.md": collection(specs)})


if __name__ == "__main__":
    sys.exit(main())
