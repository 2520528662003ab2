"""Status and logs over a real sshd and a real Docker Engine; the engine is a busybox that serves files."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import tarfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import httpx
import pytest
from ansible_collections.headfirst.serving.plugins.module_utils.container_spec import SPEC_JSON_LABEL
from headfirst.common.errors import NotReadyError
from headfirst.control.live.logs import Logged, stream_logs
from headfirst.control.live.specifications import specifications
from headfirst.control.live.ssh_access.transport import NoEngineError, docker_over_ssh
from headfirst.control.live.ssh_access.tunnel import tunnel
from headfirst.control.live.status import ReplicaTarget, WebuiTarget, cluster_status
from headfirst.decide import engines
from headfirst.decide.cluster.login import Become

if TYPE_CHECKING:
    from docker.models.containers import Container
    from live_sshd import Sshd

pytestmark = pytest.mark.lab
pytest_plugins = ["live_sshd"]

BUSYBOX = Path("/bin/busybox")
READINESS = engines.get("sglang").readiness("chat")
PAGES = {
    "health_generate": "",
    "ready": "",
    "v1/models": json.dumps({"object": "list", "data": [{"id": "tiny"}]}),
}
SERVE = "for n in 1 2 3; do echo line $n; done; echo 'a\rb\rlast'; exec httpd -f -p 127.0.0.1:{port} -h /www"
Start = Callable[..., "Container"]


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """An image of one static busybox and the pages that an engine answers with."""
    assert BUSYBOX.exists(), "busybox is missing: apt-get install busybox-static"
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.add(BUSYBOX, "bin/busybox")
        for name in ("sh", "httpd", "sleep"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        for path, text in PAGES.items():
            page = tarfile.TarInfo(f"www/{path}")
            page.size = len(text)
            tar.addfile(page, io.BytesIO(text.encode()))
    tag = f"headfirst-test-{uuid.uuid4().hex[:8]}"
    client = docker.from_env()
    client.api.import_image_from_data(content.getvalue(), repository=tag, tag="1")
    yield f"{tag}:1"
    client.images.remove(f"{tag}:1", force=True)


@pytest.fixture
def start(image: str) -> Iterator[Start]:
    """Starts containers with a shell command; removes them afterwards."""
    client = docker.from_env()
    started: list[Container] = []

    def run(command: str, **more: Any) -> Container:
        container = client.containers.run(
            image,
            ["/bin/sh", "-c", command],
            name=f"headfirst-test-{uuid.uuid4().hex[:8]}",
            network_mode="host",
            detach=True,
            **more,
        )
        started.append(container)
        return container

    yield run
    for container in started:
        with contextlib.suppress(docker.errors.NotFound):
            container.remove(force=True)


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_status_of_a_running_cluster(sshd: Sshd, start: Start, port: int) -> None:
    command = SERVE.format(port=port)
    container = start(command)
    url = f"http://127.0.0.1:{port}"
    wait_for(port)
    ranks = [sshd.access("node1"), sshd.access("node2", address="127.0.0.2")]
    webui = WebuiTarget(ranks[0], url, container.name)
    status = cluster_status(
        [ReplicaTarget("tiny", 0, ranks, url, READINESS, container=container.name)], webui
    )
    assert status.ready
    assert [(rank.rank, rank.host, rank.state) for rank in status.replicas[0].ranks] == [
        (0, "node1", "running"),
        (1, "node2", "running"),
    ]
    head = status.replicas[0].ranks[0]
    # Without what would move the cursor of a terminal.
    assert head.argv == ["/bin/sh", "-c", command.replace("\r", "")]
    assert head.image_id == container.image.id
    assert head.restarts == 0
    assert head.exit_code is None
    assert status.replicas[0].engine.models == ["tiny"]
    assert status.webui is not None
    assert status.webui.ready
    assert json.loads(status.model_dump_json())["ready"] is True


def test_arguments_with_which_containers_run_or_ran(sshd: Sshd, start: Start) -> None:
    labels = {SPEC_JSON_LABEL: json.dumps({"command": ["serve", "--port", "1"]})}
    running, ended = start("sleep 600", labels=labels), start("exit 0")
    ended.wait()
    hosts = [sshd.access("node1"), sshd.access("node2", port=1)]
    asked = dict.fromkeys([str(running.name), str(ended.name), "headfirst-test-none"], "")
    answers = specifications(hosts, {"node1": asked, "node2": asked})
    present = answers["node1"]
    assert isinstance(present, dict)
    assert {name: container.command for name, container in present.items() if name in asked} == {
        running.name: ("serve", "--port", "1"),
        ended.name: (),
    }
    assert isinstance(answers["node2"], NotReadyError)
    assert not isinstance(answers["node2"], NoEngineError)
    sshd.program("docker", "echo 'docker: command not found' >&2; exit 127")
    assert isinstance(specifications(hosts[:1], {"node1": asked})["node1"], NoEngineError)


def test_status_shows_what_is_broken(sshd: Sshd, start: Start, port: int) -> None:
    container = start("exit 7")
    container.wait()
    ranks = [sshd.access("node1"), sshd.access("node2", port=1)]
    url = f"http://127.0.0.1:{port}"
    missing = WebuiTarget(ranks[0], url, "headfirst-test-none")
    status = cluster_status(
        [ReplicaTarget("tiny", 0, ranks, url, READINESS, container=container.name)], missing
    )
    assert not status.ready
    assert (status.replicas[0].ranks[0].state, status.replicas[0].ranks[0].exit_code) == ("exited", 7)
    assert status.replicas[0].ranks[1].state == "unreachable"
    assert "connection refused" in (status.replicas[0].ranks[1].problem or "")
    assert not status.replicas[0].engine.ready
    assert status.replicas[0].engine.problem == "nothing answers at its port"
    assert status.webui is not None
    assert (status.webui.state, status.webui.ready) == ("missing", False)


def test_history_of_all_ranks_is_merged_by_time(sshd: Sshd, start: Start) -> None:
    container = start("for n in 1 2 3; do echo line $n; sleep 0.2; done; echo 'a\rb\rlast' >&2")
    container.wait()
    access = [sshd.access("node1"), sshd.access("node2", address="127.0.0.2")]
    ranks = [Logged(f"rank {number}", one, container.name) for number, one in enumerate(access)]
    lines = list(stream_logs(ranks))
    assert [line.text for line in lines] == [
        text for text in ("line 1", "line 2", "line 3", "last") for _ in ranks
    ]
    assert {(line.title, line.host) for line in lines} == {("rank 0", "node1"), ("rank 1", "node2")}
    assert [line.time for line in lines] == sorted(line.time for line in lines)
    assert [line.text for line in stream_logs(ranks[:1], tail=2)] == [
        "line 3",
        "last",
    ]


def test_following_goes_on_over_a_restart_until_the_container_is_removed(sshd: Sshd, start: Start) -> None:
    container = start("echo first; until [ -e /go ]; do sleep 0.1; done; echo second")
    lines = stream_logs([Logged("rank 3", sshd.access(), container.name)], follow=True)
    assert next(lines).text == "first"
    container.exec_run(["/bin/busybox", "touch", "/go"])
    assert next(lines).text == "second"
    container.wait()
    container.start()
    assert [next(lines).text for _ in range(2)] == ["first", "second"]
    container.wait()
    container.remove()
    assert list(lines) == []


def test_logs_of_hosts_that_answer_come_before_the_error(sshd: Sshd, start: Start) -> None:
    container = start("echo hello")
    container.wait()
    access = [sshd.access("node1", port=1), sshd.access("node2")]
    ranks = [Logged(f"rank {number}", one, container.name) for number, one in enumerate(access)]
    lines = stream_logs(ranks, follow=True)
    assert next(lines).text == "hello"
    with pytest.raises(NotReadyError) as caught:
        next(lines)
    assert caught.value.where == "node1"


def test_sudo_is_used_when_the_login_is_not_root(sshd: Sshd) -> None:
    skip = 'while :; do case "$1" in -u) shift 2;; -*) shift;; *) break;; esac; done'
    sshd.program("sudo", f'printf "%s\\n" "$*" >> {sshd.folder}/calls; {skip}; exec "$@"')
    with docker_over_ssh(sshd.access(become=Become())) as client:
        assert client.ping()
    version, engine = (sshd.folder / "calls").read_text().splitlines()
    # -n: without a password sudo must not ask for one.
    assert "-n docker version" in version
    assert engine.endswith("-n docker system dial-stdio")


@pytest.mark.parametrize(
    ("program", "text", "what"),
    [
        ("sudo", "echo 'sudo: a password is required' >&2; exit 1", "needs a password for sudo"),
        ("docker", "echo 'Cannot connect to the Docker daemon.' >&2; exit 1", "Cannot connect"),
        ("docker", "exit 127", "not installed"),
    ],
)
def test_why_the_engine_cannot_be_reached(sshd: Sshd, program: str, text: str, what: str) -> None:
    sshd.program(program, text)
    access = sshd.access(become=Become() if program == "sudo" else None)
    with pytest.raises(NotReadyError, match=what) as caught, docker_over_ssh(access):
        pass
    assert caught.value.where == "node1"


def test_tunnel_carries_many_requests_at_once_and_closes(sshd: Sshd, start: Start, port: int) -> None:
    start(SERVE.format(port=port))
    wait_for(port)
    with tunnel(sshd.access(), f"http://127.0.0.1:{port}") as url:
        answers: list[int] = []
        threads = [
            threading.Thread(target=lambda: answers.append(httpx.get(f"{url}/ready").status_code))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [200] * 8
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/ready")


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"nothing listens at port {port}")


def test_a_line_that_docker_keeps_in_parts_has_one_time(sshd: Sshd, start: Start) -> None:
    container = start("/bin/busybox printf 'a%.0s' $(/bin/busybox seq 40000); echo")
    container.wait()
    (line,) = stream_logs([Logged("rank 0", sshd.access(), container.name)])
    assert line.text == "a" * 40000
