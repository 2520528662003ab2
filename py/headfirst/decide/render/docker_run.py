"""One shell script a host: the containers of the plan as lines of docker run, nerdctl or Podman."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from headfirst.decide.containers.spec import Container, docker_run
from headfirst.decide.plan.types import Plan
from headfirst.decide.render import secret_files
from headfirst.decide.render.files import Files, numbered, script
from headfirst.decide.render.host_parts import ASK_SCRIPT, HostPart, HostParts, ask_script, hosts, secrets
from headfirst.decide.render.shell import CHECKS, FAIL, checks, command_line, program

_STOP_S = 60


def files(plan: Plan, header: Sequence[str], container_program: str) -> Files:
    """`container_program`: docker, nerdctl or podman."""
    host_parts = hosts(plan)
    host_files = {
        f"{numbered(host.name, index, len(host_parts))}.sh": script(_host(header, host, container_program))
        for index, host in enumerate(host_parts)
    }
    return {
        secret_files.SCRIPT: script(secret_files.make_script(header, plan, secrets(host_parts))),
        **host_files,
        ASK_SCRIPT: script(ask_script(header, plan)),
    }


def _host(header: Sequence[str], host: HostParts, container_program: str) -> str:
    about = [
        f"Host {host.name} ({host.address}):",
        *(f"- {part.what}, image {part.container.image}" for part in host.parts),
        "Run it as root on this host, in the order of the files' numbers; `down` removes the containers.",
    ]
    if needed := list(dict.fromkeys(file.name for part in host.parts for file in part.files)):
        about.append(
            f"It needs, from {secret_files.SCRIPT}: {', '.join(f'secrets/{name}' for name in needed)}"
        )
    return program(
        [*header, "", *about],
        FAIL,
        CHECKS,
        'cd "$(dirname "$0")"\n',
        _down(host.parts, container_program),
        _checks(host.parts, container_program),
        *(_run(part, container_program) for part in host.parts),
    )


def _run(part: HostPart, container_program: str) -> str:
    return " \\\n".join(option_lines(docker_run(part.container, container_program), part.container)) + "\n"


def option_lines(line: Sequence[str], container: Container) -> list[str]:
    """A command that runs the container, one option a line: those of the program, then the image with its
    command."""
    options = len(line) - len(container.command) - 1
    text = f"{command_line(line[:options])} \\\n  {command_line(line[options:], '  ')}"
    return text.split(" \\\n")


def _down(parts: Sequence[HostPart], container_program: str) -> str:
    """Rank 0 first: workers may ignore the signal and wait until rank 0 ends them."""
    lines = []
    for part in parts:
        name = shlex.quote(part.container.name)
        lines.append(f"  {container_program} stop --time {_STOP_S} {name} || true\n")
        lines.append(f"  {container_program} rm --force {name} || true\n")
    return (
        'case "${1:-up}" in\nup) ;;\ndown)\n' + "".join(lines) + "  exit 0\n  ;;\n"
        '*) fail "$0 takes up (the default) or down, not $1." ;;\nesac\n'
    )


def _checks(parts: Sequence[HostPart], container_program: str) -> str:
    """What would fail later is found before anything is changed."""
    lines = []
    for part in parts:
        name = part.container.name
        lines.append(
            f"! {container_program} container inspect {shlex.quote(name)} >/dev/null 2>&1 ||\n"
            f'  fail "There is a container {name} already. Remove it: $0 down"\n'
        )
    for service in {id(part.rank.service): part.rank.service for part in parts if part.rank}.values():
        lines.append(checks(service))
    for part in parts:
        for file in part.files:
            source = shlex.quote(f"{secret_files.FOLDER}/{file.name}")
            missing = f"{file.name} is not in secrets/. Make it: ./{secret_files.SCRIPT}"
            lines.append(f"[ -s {source} ] || fail {shlex.quote(missing)}\n")
    for part in parts:
        for file in part.files:
            source = shlex.quote(f"{secret_files.FOLDER}/{file.name}")
            lines.append(f"install -D -m 0600 {source} {shlex.quote(file.path)}\n")
        # What people write in the page is not for other users of the host.
        folders = [volume.split(":")[0] for volume in part.container.volumes if not part.rank]
        lines += [f"install -d -m 0700 {shlex.quote(folder)}\n" for folder in folders]
    return "".join(lines)
