"""What is at the top of every rendered file, and how such a file is recognised."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from headfirst import __version__
from headfirst.decide.plan.types import Plan

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
