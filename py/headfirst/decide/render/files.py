"""What a target makes: texts by their paths in one folder, each below a header by which it is recognised."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from headfirst import __version__
from headfirst.decide.plan.types import Plan


@dataclass(frozen=True)
class File:
    """A text and the mode of its file."""

    text: str
    mode: int = 0o644


Files = dict[str, File]


def script(text: str) -> File:
    """A program that people start."""
    return File(text, 0o755)


def numbered(host: str, index: int, count: int) -> str:
    """The name, without its end, of the file of a host: in the order in which they are used."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", host)
    return f"{index + 1:0{len(str(count))}}-{plain}"


_MADE = "Made by Headfirst "


def header(plan: Plan, command: str) -> list[str]:
    """Lines without comment signs: the program, the command, the plan, and what serves."""
    digest = hashlib.sha256(plan.model_dump_json().encode()).hexdigest()
    lines = [
        f"{_MADE}{__version__}; the next `deploy render` replaces this file.",
        f"Command: {command}",
        f"Plan: cluster {plan.cluster}, sha256:{digest}",
    ]
    for service in plan.services:
        image = service.replicas[0].nodes[0].container.image
        lines.append(f"{service.served_model_name}: {service.engine} {service.engine_version}, image {image}")
    return lines


def comment(lines: Sequence[str]) -> str:
    """The lines as comments of a shell script or a YAML file."""
    return "".join(f"# {_printable(line)}".rstrip() + "\n" for line in lines)


def is_ours(text: str) -> bool:
    """Whether a file begins with our header, after the line that names its interpreter."""
    return any(line.startswith(f"# {_MADE}") for line in text.splitlines()[:2])


def _printable(line: str) -> str:
    """The comment must end where the line ends."""
    return "".join(sign if sign.isprintable() else "?" for sign in line)


class _AliasFreeDumper(yaml.SafeDumper):
    """Without anchors, which not every reader expects."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _AliasFreeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_AliasFreeDumper.add_representer(str, _text)


def documents(header: Sequence[str], *values: Any) -> str:
    """The values as one YAML file below the header."""
    text = yaml.dump_all(
        values,
        Dumper=_AliasFreeDumper,
        sort_keys=False,
        default_flow_style=False,
        width=100,
        allow_unicode=True,
    )
    return comment(header) + text
