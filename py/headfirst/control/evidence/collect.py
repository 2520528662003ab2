"""All nodes asked at the same time, one SSH round each; all times on the controller's clock."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, count, repeat
from pathlib import Path
from typing import Any

from ansible_collections.headfirst.serving.plugins.module_utils import docker_api
from ansible_collections.headfirst.serving.plugins.module_utils.http_probe import holds
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line

from headfirst.common import container_names as names
from headfirst.common.container_state import container_state
from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError, for_terminal, json_document
from headfirst.control.evidence import node_answer
from headfirst.control.evidence.node_answer import ContainerProblem, EngineContainer, NodeAnswer
from headfirst.control.live.clock import Clock, run_script
from headfirst.control.live.ssh_access.ssh import AT_ONCE
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.diagnose.subject import Subject, masked
from headfirst.decide.diagnose.types import HttpAnswer, NodeFacts, RankContainer
from headfirst.decide.engines.base import ReadinessProbe
from headfirst.decide.scrub import Scrubber

_SCRIPT = Path(__file__).with_name("node_script.py")
# The slowest are nvidia-smi on a sick driver and the health of a busy engine; each has a limit of its own.
TIMEOUT_S = 90.0


def collect(
    targets: Sequence[HostAccess],
    engine_url: str,
    subject: Subject,
    secrets: Sequence[str] = (),
    *,
    container: str = names.ENGINE,
) -> list[NodeFacts]:
    """The nodes by rank; `engine_url` as the head sees it. `secrets` are redacted in all that comes back.

    A host that does not answer, or answers what no node script does, is a node with its problem.
    """
    scrubber = Scrubber(secrets)
    nothing = {"container": container, "health": "", "metrics": "", "probe": ""}
    everything = nothing | (_requests(engine_url, subject) if engine_url else {})
    with ThreadPoolExecutor(max_workers=min(len(targets), AT_ONCE)) as pool:
        requests = chain([everything], repeat(nothing))
        return list(pool.map(_node, count(), targets, requests, repeat(subject), repeat(scrubber)))


def _requests(url: str, subject: Subject) -> dict[str, Any]:
    """What rank 0 is asked; the model only where the health does not prove that it computes."""
    readiness = subject.readiness
    requests: dict[str, Any] = {"health": url + readiness.path, "metrics": url + subject.metrics.path}
    if not readiness.generates:
        requests["probe"] = url + readiness.probe_path
        requests["body"] = {**readiness.probe_body, "model": subject.model}
    return requests


def _node(
    rank: int, access: HostAccess, request: dict[str, Any], subject: Subject, scrubber: Scrubber
) -> NodeFacts:
    try:
        clock, sent = run_script(
            access,
            _SCRIPT.read_text(),
            json.dumps(request),
            what="its state",
            timeout_s=TIMEOUT_S,
            limit=node_answer.MAX_SENT,
            last=f"go {subject.api_key}" if request["health"] else "go",
        )
        facts = node_answer.decode(sent, where=access.host)
        return parse(rank, access.host, clock, scrubber.value(facts), subject)
    except (NotReadyError, UntrustedError) as error:
        return NodeFacts(rank, access.host, now=time.time(), problem=error.what)


def parse(rank: int, host: str, clock: Clock, facts: Any, subject: Subject) -> NodeFacts:
    """What the node script reported, on the controller's clock, the values of secret flags masked.

    Raises UntrustedError naming the host.
    """
    answer = node_answer.check(facts, where=host)
    engine = answer.engine if isinstance(answer.engine, EngineContainer) else None
    try:
        container = _container(engine, clock, subject.about.secret_flags) if engine else None
    except (ValueError, OverflowError, UntrustedError) as error:
        reason = error.what if isinstance(error, UntrustedError) else error
        raise UntrustedError(f"the answer of the node is refused: {reason}", where=host) from None
    return NodeFacts(
        rank=rank,
        host=host,
        offset=clock.offset,
        now=time.time(),
        problem=answer.engine.problem if isinstance(answer.engine, ContainerProblem) else None,
        container=container,
        kernel=tuple(Line(clock.corrected(line.at), line.text) for line in answer.kernel),
        driver=tuple(answer.driver.said),
        packages=tuple(answer.driver.packages),
        gpus=tuple(answer.driver.gpus),
        hcas=tuple(answer.hcas),
        health=_health(answer, subject.readiness, where=host),
        metrics=HttpAnswer(metrics.status, metrics.text) if (metrics := answer.metrics) else None,
    )


def _health(answer: NodeAnswer, readiness: ReadinessProbe, *, where: str) -> HttpAnswer | None:
    """The first answer that no ready service gives, else 200."""
    health, probe = answer.health, answer.probe
    if health is None:
        return None
    if health.status != 200:
        return HttpAnswer(health.status, f"{readiness.path} {health.text}")
    if probe and probe.status != 200:
        return HttpAnswer(probe.status, f"{readiness.probe_path} {probe.text}")
    keys = [str(key) for key in readiness.answer]
    if probe and not holds(json_document(probe.text, what="the answer to the probe", where=where), keys):
        return HttpAnswer(0, f"{readiness.probe_path} has nothing at {'.'.join(keys)}")
    return HttpAnswer(200, "")


def _container(engine: EngineContainer, clock: Clock, secret_flags: Collection[str]) -> RankContainer:
    def when(at: str) -> float:
        return clock.corrected(docker_api.seconds(at)) if at > "0002" else 0.0

    state = container_state(engine.inspected)
    return RankContainer(
        id=state.id,
        image=state.image,
        image_id=state.image_id,
        argv=masked(state.argv, secret_flags),
        status=state.status,
        running=state.status in ("running", "paused"),
        exit_code=state.exit_code,
        oom_killed=state.oom_killed,
        error=state.error,
        restarts=state.restarts,
        created_at=when(state.created_at),
        started_at=when(state.started_at),
        finished_at=when(state.finished_at),
        cuda=engine.cuda,
        log=_lines(engine.log, clock),
        earlier=_lines(engine.earlier, clock),
    )


def _lines(told: list[str], clock: Clock) -> tuple[Line, ...]:
    """Docker's time and text of each line; of a progress bar that redraws itself, the last state."""
    pairs = (line.partition(" ") for line in told)
    lines = [
        Line(clock.corrected(docker_api.seconds(at)), for_terminal(text.rpartition("\r")[2]))
        for at, _, text in pairs
    ]
    return tuple(sorted(lines, key=lambda line: line.at))
