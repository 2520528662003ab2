"""Nodes that reach their sources through a proxy alone, which asks for a login: tinyproxy of Debian.

Sources are Debian's archive and the package index of this machine, and a hub and a registry that run here.
The nodes' direct ways to all of them are closed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from bare_nodes import BareNodes, bare_nodes
from fake_hub import MODEL, FakeHub, running
from headfirst.control import demo
from headfirst.control.machine import packages
from small_registry import registry

pytestmark = pytest.mark.lab
DEPLOY = Path(sys.executable).with_name("deploy")
NAME, NETWORK = "test-proxy", "10.213.83"
GATEWAY, PORT = f"{NETWORK}.1", 3128
NODES = {"node1": f"{NETWORK}.11", "node2": f"{NETWORK}.12"}
TINYPROXY = packages.Package("tinyproxy-bin", commands=("tinyproxy",))
USER, PASSWORD = "campus", "pass-w0rd_of-a-campus"  # tinyproxy takes no other signs
CONFIGURATION = f"""\
Port {PORT}
Listen {GATEWAY}
Timeout 600
MaxClients 100
LogLevel Connect
BasicAuth {USER} {PASSWORD}
"""
# A node asks the other one, the proxy, and itself.
CLOSED = f"""\
table inet closed {{
  chain out {{
    type filter hook output priority -10; policy accept;
    oifname "lo" accept
    ct state established,related accept
    ip daddr {{ {", ".join(NODES.values())} }} accept
    ip daddr {GATEWAY} tcp dport {PORT} accept
    reject with icmpx admin-prohibited
  }}
}}
"""
NO_NAMES = "echo nameserver 127.0.0.1 > /etc/resolv.conf"
INVENTORY = """\
[head]
node1 ansible_host={nodes[node1]}

[workers]
node2 ansible_host={nodes[node2]}

[all:vars]
{login}
nic=eth0
cpu_cores=0-1
engine_device=cpu
engine_image={registry}/tiny:1
engine_version=0.5.23
docker_engine_insecure_registries=["{registry}"]
model_source=huggingface
model={model}
weights_fetch=head
http_proxy=http://{gateway}:{port}
"""
LOGIN = ("-e", "http_proxy_login_file=login")
STAGES = ("-t", "docker,tools,image,weights")
KEPT = ["/etc/headfirst/outbound/apt.conf", "/etc/headfirst/outbound/environment"]
DROP_IN = "/etc/systemd/system/docker.service.d/headfirst-proxy.conf"


@dataclass(frozen=True)
class Campus:
    """The nodes, the inventory's folder, and the proxy's log."""

    nodes: BareNodes
    folder: Path
    hub: FakeHub
    registry: str

    def deploy(self, *words: str) -> subprocess.CompletedProcess[str]:
        variables = {"HF_ENDPOINT": self.hub.url, "XDG_STATE_HOME": str(self.folder / "state")}
        argv = [DEPLOY, words[0], self.folder / "campus.ini", *words[1:]]
        return subprocess.run(argv, env=os.environ | variables, capture_output=True, text=True, check=False)

    def run(self, node: str, command: str) -> subprocess.CompletedProcess[str]:
        return self.nodes.run(int(node[-1]), command)

    @property
    def requests(self) -> list[tuple[str, str]]:
        """Method and target of each request that the proxy got, in order."""
        log = (self.folder / "tinyproxy.log").read_text()
        return re.findall(r"Request \(file descriptor \d+\): (\w+) (\S+) HTTP", log)


@contextlib.contextmanager
def tinyproxy(folder: Path) -> Iterator[None]:
    """The proxy on this machine, at its address in the nodes' network."""
    packages.install(packages.missing([TINYPROXY]), lambda what, done, total: None)
    log = folder / "tinyproxy.log"
    (folder / "tinyproxy.conf").write_text(f'{CONFIGURATION}LogFile "{log}"\n')
    log.touch()
    log.chmod(0o666)
    with subprocess.Popen(["tinyproxy", "-d", "-c", folder / "tinyproxy.conf"]) as process:
        try:
            wait_until_it_listens()
            yield
        finally:
            process.terminate()


def wait_until_it_listens() -> None:
    end = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection((GATEWAY, PORT)).close()
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.1)


def close_direct_ways() -> None:
    for node in NODES:
        argv = ["docker", "inspect", "--format", "{{.State.Pid}}", f"headfirst-{NAME}-{node}"]
        pid = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
        subprocess.run(["nsenter", "-t", pid, "-n", "nft", "-f", "-"], input=CLOSED, text=True, check=True)
        # Names outside are for the proxy to resolve.
        argv = ["docker", "exec", f"headfirst-{NAME}-{node}", "sh", "-c", NO_NAMES]
        subprocess.run(argv, check=True)


def checkpoint() -> dict[str, bytes]:
    with demo.checkpoint(demo.CHAT_MODEL) as source:
        return {path.name: path.read_bytes() for path in source.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def campus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campus]:
    folder = tmp_path_factory.mktemp("campus")
    (folder / "login").write_text(f"{USER}:{PASSWORD}\n")
    (folder / "login").chmod(0o600)
    with contextlib.ExitStack() as stack:
        nodes = stack.enter_context(bare_nodes(NAME, NETWORK, 2, tmp_path_factory.mktemp("lab")))
        hub = stack.enter_context(running(checkpoint(), GATEWAY))
        _, address = stack.enter_context(registry(GATEWAY))
        stack.enter_context(tinyproxy(folder))
        close_direct_ways()
        (folder / "campus.ini").write_text(
            INVENTORY.format(
                nodes=NODES, login=nodes.login, registry=address, model=MODEL, gateway=GATEWAY, port=PORT
            )
        )
        yield Campus(nodes, folder, hub, address)


@contextlib.contextmanager
def watched_arguments() -> Iterator[list[str]]:
    """Argument lists with the password, of all processes here: those of the nodes are among them."""
    found: list[str] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    text = path.read_bytes().decode(errors="replace")
                    if PASSWORD in text:
                        found.append(text.replace("\0", " "))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def apt_source() -> str:
    """ADDRESS:PORT of the first repository that apt uses here."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    url = urlsplit(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0])
    assert url.hostname
    return f"{socket.gethostbyname(url.hostname)}:{url.port or {'http': 80, 'https': 443}[url.scheme]}"


def test_the_direct_ways_are_closed(campus: Campus) -> None:
    sources = [apt_source(), campus.hub.url.removeprefix("http://"), campus.registry]
    for node in NODES:
        for source in sources:
            address, _, port = source.partition(":")
            assert campus.run(node, f"exec 3<>/dev/tcp/{address}/{port}").returncode != 0
        assert campus.run(node, f"exec 3<>/dev/tcp/{GATEWAY}/{PORT}").returncode == 0


def test_without_the_setting_the_error_names_it(campus: Campus) -> None:
    done = campus.deploy("up", *STAGES, "--plain", "-e", "http_proxy=")
    assert done.returncode == 1 and "set http_proxy" in done.stderr, done.stdout[-3000:] + done.stderr
    assert not campus.requests


def test_without_the_login_the_error_names_its_file(campus: Campus) -> None:
    done = campus.deploy("up", *STAGES, "--plain")
    assert done.returncode == 1 and "http_proxy_login_file" in done.stderr, done.stdout[-3000:] + done.stderr


def test_every_source_is_reached_through_the_proxy(campus: Campus) -> None:
    before = len(campus.requests)
    with watched_arguments() as found:
        done = campus.deploy("up", *STAGES, *LOGIN, "--plain", "-vvv")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert not found
    assert PASSWORD not in done.stdout + done.stderr
    requests = campus.requests[before:]
    assert [target for _, target in requests if re.search(r"/debian/.*docker\.io_", target)]  # apt
    assert [target for method, target in requests if method == "CONNECT" and target.endswith(":443")]  # pip
    assert [target for _, target in requests if f"{campus.registry}/v2/tiny/blobs/" in target]  # Docker
    files = [target for _, target in requests if target.startswith(f"{campus.hub.url}/cdn/")]  # the hub
    assert files and all(".safetensors" in target for target in files)
    for node in NODES:
        served = f"/var/lib/headfirst/models/{MODEL.rpartition('/')[2]}-bf16/config.json"
        there = f"test -f {served} && docker image inspect {campus.registry}/tiny:1"
        assert campus.run(node, there).returncode == 0


def test_nothing_between_hosts_passes_the_proxy(campus: Campus) -> None:
    between = re.compile("|".join(map(re.escape, [*NODES.values(), *NODES])))
    assert not [target for _, target in campus.requests if between.search(target)]


def test_the_login_is_in_files_of_root_alone(campus: Campus) -> None:
    folders = "/etc /home /opt /root /run /srv /tmp /var"
    for node in NODES:
        found = campus.run(node, f"grep -rlFs {PASSWORD} {folders} | sort").stdout
        assert found.split() == [*KEPT, DROP_IN]
        modes = campus.run(node, f"stat -c '%a %U' {' '.join(found.split())}").stdout
        assert set(modes.splitlines()) == {"600 root"}
        assert campus.run(node, f"journalctl --no-pager | grep -F {PASSWORD}").stdout == ""
    argv = ["grep", "-rlF", PASSWORD, campus.folder]
    logs = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    assert sorted(Path(path).name for path in logs.split()) == ["login", "tinyproxy.conf"]


def test_a_second_run_changes_nothing(campus: Campus) -> None:
    done = campus.deploy("up", *STAGES, *LOGIN, "--json")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["changed"] == 0


def test_a_proxy_without_a_login_leaves_no_login_behind(campus: Campus) -> None:
    done = campus.deploy("up", "-t", "docker", "--plain")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    for node in NODES:
        assert "@" not in campus.run(node, f"cat {DROP_IN}").stdout
        assert campus.run(node, f"ls {' '.join(KEPT)}").stdout == ""
