"""The container in which an image answers: without a network and without secrets, removed when it ends."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError, for_terminal, json_document
from headfirst.control.image_probe.kept import AskedCommand
from headfirst.control.live.ssh_access.privileged import privileged
from headfirst.control.live.ssh_access.ssh import HostConnection, run, run_privileged
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.containers.spec import Container, docker_run
from headfirst.decide.engines import probing

# vLLM's answer, with the choices of all options, has 80 KB.
_MOST_BYTES = 8 << 20
# Each part and each command has 120 s in the program; importing an engine from a slow disk takes a minute.
_PART_S = 150.0
NAME = "headfirst-probe-"


class Answer(NamedTuple):
    """The document of the image, None where that was not asked, and what the engine made of each command."""

    document: Any
    commands: tuple[AskedCommand, ...]


def image_id(access: HostAccess, connection: HostConnection, image: str) -> str:
    """The ID of an image on a host; "" where the host has no such image, or no container runtime."""
    found = run_privileged(access, connection, "docker", "image", "inspect", "--format", "{{.Id}}", image)
    id = found.out.strip()
    if found.code != 0 or not id:
        return ""
    if len(id) > 80 or not id.removeprefix("sha256:").isalnum():
        raise UntrustedError("the ID of the image is none", where=access.host)
    return id


def ask(
    access: HostAccess,
    connection: HostConnection,
    engine: str,
    image: str,
    gpus: Mapping[str, Any],
    question: Mapping[str, Any],
) -> Answer:
    """What the engine in the image answers. `gpus`: fields of a Container; `question`: see probe_tasks.py.

    Raises NotReadyError where the container gives no answer, UntrustedError for what is none.
    """
    loader, modules = probing.program(engine)
    container = Container(
        name=f"{NAME}{secrets.token_hex(4)}",
        image=image,
        user="0",  # it writes the model's files, wherever the plan has them
        entrypoint="python3",
        command=["-c", loader],
        environment={"HOME": "/tmp"},  # noqa: S108 - of the container, which is removed
        network_mode="none",
        cap_drop=["ALL"],
        **gpus,
    )
    words = docker_run(container)
    words[words.index("--detach")] = "--rm"
    line, first = privileged(access, words[0], words[1], "--interactive", *words[2:])
    sent = json.dumps({"modules": modules, "request": question}).encode()
    parts = 5 * bool(question["answers"]) + len(question["commands"])
    done = run(connection, line, _PART_S * parts, first + sent, _MOST_BYTES)
    if done.code != 0:
        lines = done.err.strip().splitlines() or ["it printed no reason"]
        reason = next((line for line in lines if line.startswith(("docker: ", "podman: "))), lines[-1])
        what = f"the probe ended with exit code {done.code}: {for_terminal(reason)[:500]}"
        raise NotReadyError(what, where=access.host)
    return _answer(
        json_document(done.out, what="the answer of the image", where=access.host, limit=_MOST_BYTES),
        len(question["commands"]),
        where=access.host,
    )


def _answer(document: object, commands: int, *, where: str) -> Answer:
    told = document.get("commands") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(told, list) or len(told) != commands:
        raise UntrustedError("the answer of the image does not match the question", where=where)
    return Answer(document.get("answers"), tuple(_command(each, where) for each in told))


def _command(told: object, where: str) -> AskedCommand:
    if not isinstance(told, dict):
        raise UntrustedError("the answer to a command is no object", where=where)
    return AskedCommand(_text(told.get("problem"), where), _text(told.get("why"), where))


def _text(value: object, where: str) -> str:
    if not isinstance(value, str | None):
        raise UntrustedError("the answer to a command is no text", where=where)
    return " ".join(for_terminal(value or "").split())[:2000]
