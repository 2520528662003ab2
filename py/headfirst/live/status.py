"""What runs right now: the ranks' containers, the engine's answer, the chat page; hosts asked in parallel."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import docker
import httpx
from pydantic import ValidationError

from headfirst.containers import names
from headfirst.errors import HeadfirstError, NotReadyError
from headfirst.live.access import HostAccess
from headfirst.live.ssh import AT_ONCE, ssh
from headfirst.live.status_types import ClusterStatus, ContainerStatus, EngineStatus, RankStatus, WebuiStatus
from headfirst.live.transport import docker_client
from headfirst.live.tunnel import forward, tunnel
from headfirst.untrusted import UntrustedError, joined, json_document, line

# The engine's health generates a token, behind requests that are being served.
HTTP_TIMEOUT_S = 15.0
ANSWER_BYTES = 1 << 20


class WebuiTarget(NamedTuple):
    """Where the chat page is: its host, and its address as that host sees it."""

    access: HostAccess
    url: str
    container: str = names.WEBUI


def cluster_status(
    ranks: Sequence[HostAccess],
    *,
    engine_url: str,
    api_key: str | None = None,
    webui: WebuiTarget | None = None,
    container: str = names.ENGINE,
) -> ClusterStatus:
    """Ask all hosts. `ranks` is in the order of the ranks, the head first; `engine_url` as the head sees it.

    `container` is the ranks' container on each host.

    A host that does not answer is a row with its problem, not an exception.
    """
    with ThreadPoolExecutor(max_workers=min(len(ranks) + 2, AT_ONCE)) as pool:
        asked = [pool.submit(_rank, rank, access, container) for rank, access in enumerate(ranks)]
        asked_engine = pool.submit(_engine, ranks[0], engine_url, api_key)
        asked_page = pool.submit(_webui, webui) if webui else None
        rows, engine = [row.result() for row in asked], asked_engine.result()
        page = asked_page.result() if asked_page else None
    running = all(row.state == "running" for row in rows)
    ready = running and engine.ready and (page is None or page.ready)
    return ClusterStatus(ready=ready, ranks=rows, engine=engine, webui=page)


def _rank(rank: int, access: HostAccess, container: str) -> RankStatus:
    try:
        with ssh(access) as connection, docker_client(access, connection) as client:
            return RankStatus(rank=rank, **_container(client, access.host, container))
    except (NotReadyError, UntrustedError) as error:
        return RankStatus(rank=rank, host=access.host, state="unreachable", problem=error.what)


def _engine(head: HostAccess, url: str, api_key: str | None) -> EngineStatus:
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with (
            tunnel(head, url) as local,
            httpx.Client(base_url=local, headers=headers, timeout=HTTP_TIMEOUT_S) as client,
        ):
            status, _ = _get(client, "/health_generate")
            if status != 200:
                problem = f"/health_generate answers {status}: it is starting, or it hangs"
                return EngineStatus(url=url, ready=False, problem=problem)
            status, body = _get(client, "/v1/models")
            if status != 200:
                return EngineStatus(url=url, ready=False, problem=f"/v1/models answers {status}")
            return EngineStatus(url=url, ready=True, models=_models(body))
    except (NotReadyError, UntrustedError, httpx.HTTPError) as error:
        return EngineStatus(url=url, ready=False, problem=_problem(error))


def _webui(target: WebuiTarget) -> WebuiStatus:
    access, url, container = target
    try:
        with ssh(access) as connection, docker_client(access, connection) as client:
            row = _container(client, access.host, container)
            if row["state"] != "running":
                return WebuiStatus(url=url, ready=False, **row)
            try:
                with (
                    forward(connection, url) as local,
                    httpx.Client(base_url=local, timeout=HTTP_TIMEOUT_S) as http,
                ):
                    status, _ = _get(http, "/ready")
            except httpx.HTTPError as error:
                return WebuiStatus(url=url, ready=False, **{**row, "problem": _problem(error)})
            if status != 200:
                row["problem"] = f"/ready answers {status}"
            return WebuiStatus(url=url, ready=status == 200, **row)
    except (NotReadyError, UntrustedError) as error:
        return WebuiStatus(url=url, ready=False, host=access.host, state="unreachable", problem=error.what)


def _get(client: httpx.Client, path: str) -> tuple[int, bytes]:
    """Status and body of a GET; UntrustedError for a body that no such service sends."""
    with client.stream("GET", path, headers={"Accept-Encoding": "identity"}) as answer:
        return answer.status_code, joined(
            answer.iter_bytes(), what=f"the answer to {path}", limit=ANSWER_BYTES
        )


def _models(body: bytes) -> list[str]:
    listed = json_document(body, what="the list of models")
    try:
        return [line(model["id"], what="the name of a model") for model in listed["data"]]
    except (KeyError, TypeError):
        raise UntrustedError("the list of models is not what the API defines") from None


def _container(client: docker.DockerClient, host: str, name: str) -> dict[str, Any]:
    """Fields of a ContainerStatus, from the engine's own description of the container."""
    try:
        found = client.containers.get(name).attrs
    except docker.errors.NotFound:
        return {"host": host, "state": "missing"}
    try:
        fields = _fields(found, host)
        ContainerStatus.model_validate(fields)
    except (KeyError, TypeError, AttributeError, ValidationError):
        what = f"its Docker Engine does not describe {name} as the API defines"
        raise UntrustedError(what, where=host) from None
    return fields


def _fields(found: dict[str, Any], host: str) -> dict[str, Any]:
    state, config = found["State"], found["Config"]
    return {
        "host": host,
        "state": state["Status"],
        "health": (state.get("Health") or {}).get("Status"),
        "restarts": found["RestartCount"],
        "exit_code": None if state["Running"] else state["ExitCode"],
        "problem": "out of memory" if state.get("OOMKilled") else state.get("Error") or None,
        "image": config["Image"],
        "image_id": found["Image"],
        "started_at": state["StartedAt"],
        "argv": [found["Path"], *found["Args"]],
    }


def _problem(error: Exception) -> str:
    if isinstance(error, httpx.TimeoutException):
        return f"no answer within {HTTP_TIMEOUT_S:.0f} s"
    if isinstance(error, (httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError)):
        return "nothing answers at its port"
    return error.what if isinstance(error, HeadfirstError) else str(error)
