"""The commands of a plan: whole where the first of its kind runs, then what differs by rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher

from rich.markup import escape

from headfirst.control.terminal import Terminal
from headfirst.decide.plan.types import Plan
from headfirst.decide.render.docker_run import option_lines

_WORKER = " worker"  # whose first is as rank 0
_MARKS = (
    "A command that is like an earlier one has only the lines that differ: leave out those with -, and write "
    "those with + in their place, or after the line without a mark."
)


def print_commands(console: Terminal, plan: Plan, shows: Callable[[str], bool]) -> None:
    """Those of the hosts that are shown. Of those that are alike, the first is whole."""
    commands = [command for command in _commands(plan) if shows(command[1])]
    if len({alike.removesuffix(_WORKER) for _, _, alike, _ in commands}) < len(commands):
        console.print()
        console.paragraph(_MARKS)
    first: dict[str, tuple[str, list[str]]] = {}
    for name, host, alike, lines in commands:
        earlier = first.get(alike) or first.get(alike.removesuffix(_WORKER))
        first.setdefault(alike, (name, lines))
        title = f"# {name} on {host}" + (f": as {earlier[0]}" if earlier else "")
        text = "\n".join(differences(earlier[1], lines)) if earlier else " \\\n".join(lines)
        console.print(f"\n[bold]{escape(title)}[/]\n{escape(text)}".rstrip(), soft_wrap=True)


def _commands(plan: Plan) -> Iterator[tuple[str, str, str, list[str]]]:
    """Name, host, what commands like it have in common, and the command with one option a line."""
    for service in plan.services:
        for replica in service.replicas:
            of = f"{service}/{replica.index}" if len(service.replicas) > 1 else f"{service}"
            for node in replica.nodes:
                alike = f"{service} {replica.role}{_WORKER if node.rank else ''}"
                lines = option_lines(node.docker_run, node.container)
                yield f"rank {node.rank} of {of}", node.host, alike, lines
        for router in service.routers:
            lines = option_lines(router.docker_run, router.container)
            yield f"router of {service}", router.host, f"router of {service}", lines
    for name, part in (("chat page", plan.webui), ("proxy", plan.proxy)):
        if part:
            yield name, part.host, name, option_lines(part.docker_run, part.container)


def differences(base: Sequence[str], lines: Sequence[str]) -> list[str]:
    """What makes `lines` of `base`: lines to leave out (-) and to add (+), in their order. An addition that
    replaces nothing follows the line that it comes after."""
    changed: list[str] = []
    for kind, low, high, start, end in SequenceMatcher(None, base, lines, autojunk=False).get_opcodes():
        if kind != "equal":
            changed += [f"  {line}" for line in base[low - 1 : low]] if kind == "insert" else []
            changed += [f"- {line}" for line in base[low:high]] + [f"+ {line}" for line in lines[start:end]]
    return changed
