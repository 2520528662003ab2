"""What `status`, `logs`, `chat` and `test` do where a service has routers; SSH is left out."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from headfirst.common.errors import InputError, NotReadyError
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.hosts import router_status as of_routers
from headfirst.control.deployment.verbs import service as running
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.cluster.types import Cluster
from serving import QuietHandler, serving

ENGINE = ServiceSettings().engine_port
PORT = ServiceSettings().router_port

INVENTORY = """\
[chat]
node1 ansible_host=192.0.2.1
node2 ansible_host=192.0.2.2
[chat:vars]
model=Qwen/Qwen3-32B
replicas=2
[router]
edge1 ansible_host=192.0.2.8
edge2 ansible_host=192.0.2.9
[all:vars]
gpus=8
gpu=H100-80G
"""
ID = "01a20327-f11f-7008-bf4e-189e8d1103ee"


def answering(body: Any) -> AbstractContextManager[str]:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

    return serving(Handler)


def listed(url: str, status: str, load: int, role: str = "regular") -> dict[str, Any]:
    return {"id": ID, "url": url, "status": status, "load": load, "worker_type": role}


@pytest.mark.parametrize(
    ("role", "second", "state", "is_ready"),
    [
        ("regular", [listed(f"http://192.0.2.2:{ENGINE}", "ready", 3)], ("ready", 3), True),
        ("regular", [listed(f"http://192.0.2.2:{ENGINE}", "draining", 1)], ("draining", 1), False),
        ("regular", [], ("missing", None), False),
        ("prefill", [listed(f"http://192.0.2.2:{ENGINE}", "ready", 3, "decode")], ("ready", 3), True),
        # Each is ready, and no request can be answered.
        ("prefill", [listed(f"http://192.0.2.2:{ENGINE}", "ready", 3, "prefill")], ("ready", 3), False),
    ],
)
def test_a_router_is_ready_when_it_has_every_replica(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    role: str,
    second: list[Any],
    state: tuple[str, int | None],
    is_ready: bool,
) -> None:
    workers = [listed(f"http://192.0.2.1:{ENGINE}", "ready", 0, role), *second]
    with answering({"workers": workers}) as url:
        monkeypatch.setattr(of_routers, "ssh", lambda access: contextlib.nullcontext())
        monkeypatch.setattr(of_routers, "docker_client", lambda *_: contextlib.nullcontext())
        monkeypatch.setattr(of_routers, "forward", lambda *_: contextlib.nullcontext(url))
        monkeypatch.setattr(
            of_routers,
            "container_fields",
            lambda client, host, name: {"host": host, "state": "running", "image": name},
        )
        found = of_routers.router_status(cluster, cluster.services, Secrets())
    assert [(one.host, one.url, one.image) for one in found] == [
        ("edge1", f"http://192.0.2.8:{PORT}", "headfirst-router-chat"),
        ("edge2", f"http://192.0.2.9:{PORT}", "headfirst-router-chat"),
    ]
    assert [one.ready for one in found] == [is_ready] * 2
    assert [(one.state, one.requests) for one in found[0].replicas] == [("ready", 0), state]


def api(
    cluster: Cluster,
    chosen: str | None,
    monkeypatch: pytest.MonkeyPatch,
    alive: dict[str, str],
    *,
    routed: bool = True,
) -> str:
    """The address that a verb uses; `alive` has those behind the tunnels."""
    secrets = Secrets().with_keys(["chat"])
    monkeypatch.setattr(running, "current_credentials", lambda _: secrets)

    @contextlib.contextmanager
    def tunnel(access: HostAccess, url: str, **_: object) -> Iterator[str]:
        if url not in alive:
            raise NotReadyError("no answer", where=access.host)
        yield alive[url]

    monkeypatch.setattr(running, "tunnel", tunnel)
    with running.open_api(cluster, chosen, routed=routed) as (url, key):
        assert key == secrets.api_key("chat")
        return url


def test_the_first_router_that_answers_is_asked(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (router.url for router in cluster.services[0].routers)
    with answering({}) as url:
        assert api(cluster, "chat", monkeypatch, {second: url}) == url
        assert api(cluster, None, monkeypatch, {first: "http://127.0.0.1:1", second: url}) == url
        with pytest.raises(NotReadyError, match="no router of chat answers"):
            api(cluster, None, monkeypatch, {})


def test_paths_that_no_router_passes_on_are_asked_at_a_replica(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = {cluster.services[0].replicas[0].url: "http://127.0.0.1:9"}
    assert api(cluster, "chat", monkeypatch, alive, routed=False) == "http://127.0.0.1:9"


def test_a_replica_that_is_named_is_asked_itself(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    alive = {f"http://192.0.2.2:{ENGINE}": "http://127.0.0.1:9"}
    assert api(cluster, "chat/1", monkeypatch, alive) == "http://127.0.0.1:9"


def test_logs_of_routers_are_asked_for_by_their_own_name(cluster: Cluster) -> None:
    routers = running.logged(cluster, None, None, "router")
    assert [(router.title, router.access.host, router.container) for router in routers] == [
        ("chat router", "edge1", "headfirst-router-chat"),
        ("chat router", "edge2", "headfirst-router-chat"),
    ]
    assert {rank.title[-6:] for rank in running.logged(cluster, None, None, None)} == {"rank 0"}


def test_logs_of_the_page_and_of_a_proxy_that_is_not_there(cluster: Cluster) -> None:
    (page,) = running.logged(cluster, None, None, "page")
    assert (page.title, page.access.host, page.container) == ("page", cluster.webui.name, "headfirst-webui")
    with pytest.raises(InputError, match="no proxy"):
        running.logged(cluster, None, None, "proxy")


def test_logs_of_routers_that_are_not_there(tmp_path: Path) -> None:
    path = tmp_path / "one.ini"
    path.write_text("[head]\nnode1 ansible_host=192.0.2.1 gpus=8\n[all:vars]\nmodel=a/b\n")
    with pytest.raises(InputError, match="router"):
        running.logged(load([path]), None, None, "router")
