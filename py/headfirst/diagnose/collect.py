"""All nodes asked at the same time, one SSH round each; all times on the controller's clock."""

from __future__ import annotations

import base64
import binascii
import json
import shlex
import time
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from headfirst.containers import names
from headfirst.diagnose.clock import Clock, from_rfc3339, measure
from headfirst.diagnose.types import Answer, Container, Line, Node
from headfirst.errors import NotReadyError
from headfirst.live import explain
from headfirst.live.access import HostAccess
from headfirst.live.ssh import ssh
from headfirst.run.scrub import MASK, Scrubber

_SCRIPT = Path(__file__).with_name("node_script.py")
# The slowest are nvidia-smi on a sick driver and the health of a busy engine; each has a limit of its own.
TIMEOUT_S = 90.0
_SECRET_FLAGS = ("--api-key", "--admin-api-key", "--hf-token")


class Target(NamedTuple):
    """One rank's host: how it is reached, and its address among the ranks."""

    access: HostAccess
    address: str


def collect(targets: Sequence[Target], engine_url: str, secrets: Sequence[str] = ()) -> list[Node]:
    """The nodes by rank; `engine_url` as the head sees it. `secrets` are blotted out of all that comes back.

    A host that does not answer is a node with its problem, not an exception.
    """
    scrubber = Scrubber(secrets)
    with ThreadPoolExecutor(max_workers=len(targets)) as pool:
        asked = [
            pool.submit(_node, rank, target, engine_url if rank == 0 else "", scrubber)
            for rank, target in enumerate(targets)
        ]
        return [future.result() for future in asked]


def _node(rank: int, target: Target, url: str, scrubber: Scrubber) -> Node:
    try:
        clock, facts = _gather(target.access, url)
    except NotReadyError as error:
        return Node(rank, target.access.host, target.address, now=time.time(), problem=error.what)
    return parse(rank, target, clock, scrubber.value(facts))


def _gather(access: HostAccess, url: str) -> tuple[Clock, dict[str, Any]]:
    wanted = {
        "container": names.ENGINE,
        "health": url and f"{url}/health_generate",
        "metrics": url and f"{url}/metrics",
    }
    command = ["python3", "-c", _SCRIPT.read_text(), json.dumps(wanted)]
    if access.become:
        command = ["sudo", "-n", *command]
    with ssh(access) as connection:
        try:
            to, out, err = connection.exec_command(shlex.join(command), timeout=TIMEOUT_S)
            clock = measure(to, out)
            to.write("go\n")
            to.flush()
            text = out.read()
            return clock, json.loads(zlib.decompress(base64.b64decode(text)))
        except TimeoutError as error:
            what = f"it gave no answer within {TIMEOUT_S:.0f} s"
            raise NotReadyError(what, where=access.host, hint=access.ssh_command("true")) from error
        except (OSError, EOFError, ValueError, binascii.Error, zlib.error) as error:
            out.channel.close()  # a script that still waits for us would keep its errors open
            said = err.read().decode(errors="replace").strip()
            known = explain.not_ready(access, said)
            last = (said.splitlines() or [str(error)])[-1]
            raise known or NotReadyError(f"its state cannot be read: {last}", where=access.host) from error


def parse(rank: int, target: Target, clock: Clock, facts: dict[str, Any]) -> Node:
    """What the node script told, on the controller's clock."""
    engine, driver = facts["engine"], facts["driver"]
    problem = engine.get("problem") if engine else None
    return Node(
        rank=rank,
        host=target.access.host,
        address=target.address,
        offset=clock.offset,
        error=clock.error,
        now=time.time(),
        problem=problem,
        container=_container(engine, clock) if engine and not problem else None,
        kernel=tuple(Line(clock.corrected(at), text) for at, text in facts["kernel"]),
        driver=tuple(driver["said"]),
        packages=tuple(driver["packages"]),
        gpus=tuple(driver["gpus"]),
        hcas=tuple(facts["hcas"]),
        health=Answer(**facts["health"]) if facts["health"] else None,
        metrics=Answer(**facts["metrics"]) if facts["metrics"] else None,
    )


def _container(engine: dict[str, Any], clock: Clock) -> Container:
    def when(key: str) -> float:
        return clock.corrected(from_rfc3339(engine[key])) if engine[key] > "0002" else 0.0

    same = ("id", "image", "image_id", "status", "running", "exit_code", "oom_killed", "error", "restarts")
    return Container(
        **{key: engine[key] for key in same},
        argv=_without_secrets(engine["argv"]),
        created_at=when("created_at"),
        started_at=when("started_at"),
        finished_at=when("finished_at"),
        log=_lines(engine["log"], clock),
        earlier=_lines(engine["earlier"], clock),
    )


def _lines(told: list[str], clock: Clock) -> tuple[Line, ...]:
    """Docker's time and text of each line; of a progress bar that redraws itself, the last state."""
    pairs = (line.partition(" ") for line in told)
    lines = [Line(clock.corrected(from_rfc3339(at)), text.rpartition("\r")[2]) for at, _, text in pairs]
    return tuple(sorted(lines, key=lambda line: line.at))


def _without_secrets(argv: list[str]) -> tuple[str, ...]:
    shown, secret = [], False
    for word in argv:
        flag, equals, _ = word.partition("=")
        hidden = f"{flag}={MASK}" if flag in _SECRET_FLAGS and equals else word
        shown.append(MASK if secret else hidden)
        secret = word in _SECRET_FLAGS
    return tuple(shown)
