"""Runs alone in namespaces of its own: the hosts' file systems, addresses, sshds and Docker Engines.

Usage: world.py FOLDER COUNT, started by StandIns. It serves until it is killed, and everything ends with it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from stand_ins.addresses import ENGINE_PORT, MODEL, WEBUI_PORT, address, name

FILES = Path(__file__).with_name("files")
IMAGE_ID = "sha256:" + "5" * 64
SSHD = """\
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
UsePAM no
UseDNS no
StrictModes no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
SetEnv PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
"""


def main(folder: Path, count: int) -> None:
    """Make the hosts, write FOLDER/ready, serve."""
    _network(count)
    roots = folder / "roots"
    roots.mkdir()
    _run("mount", "-t", "tmpfs", "none", str(roots))
    # A layer of an overlay must not be inside another one.
    shutil.copytree(FILES, roots / "files")
    for number in range(1, count + 1):
        root = _file_system(roots, folder, number)
        Engine(number).listen(root / "run" / "docker.sock")
        config = root / "run" / "sshd_config"
        config.write_text(SSHD.format(address=address(number), folder=folder))
        start = f"hostname {name(number)} && exec chroot {root} /usr/sbin/sshd -D -f /run/sshd_config"
        subprocess.Popen(["unshare", "--uts", "sh", "-c", start], stderr=subprocess.DEVNULL)
    _wait_for_port(address(count), 22)
    (folder / "ready").write_text("")
    while True:  # the first process of its namespace is the parent of what others leave behind
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(1)


def _network(count: int) -> None:
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "switch0")
    for device in ("eth0", "switch0"):
        _run("ip", "link", "set", device, "up")
    lines = "".join(f"address add {address(number)}/16 dev eth0\n" for number in range(1, count + 1))
    subprocess.run(["ip", "-batch", "-"], input=lines, text=True, check=True)


def _file_system(roots: Path, folder: Path, number: int) -> Path:
    """A copy of this machine's files that this host alone changes, with the fixtures over them."""
    base = roots / str(number)
    for part in ("upper", "work", "root"):
        (base / part).mkdir(parents=True)
    layers = f"lowerdir={roots / 'files'}:/,upperdir={base / 'upper'},workdir={base / 'work'}"
    root = base / "root"
    _run("mount", "-t", "overlay", "overlay", "-o", layers, str(root))
    for place in ("dev", "proc", "sys"):
        _run("mount", "--rbind", f"/{place}", str(root / place))
    # Nothing of a service on this machine is seen.
    for place in ("run", "tmp", "etc/headfirst", "opt/headfirst", "var/lib/headfirst"):
        (root / place).mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", "mode=755", "none", str(root / place))
    shutil.copytree(FILES / "opt" / "headfirst", root / "opt" / "headfirst", dirs_exist_ok=True)
    (root / "run" / "sshd").mkdir(mode=0o755)
    (root / "tmp").chmod(0o1777)
    if folder.is_relative_to("/tmp"):
        inside = root / folder.relative_to("/")
        inside.mkdir(parents=True)
        for file in ("host_key", "key.pub"):
            (inside / file).write_bytes((folder / file).read_bytes())
            (inside / file).chmod(0o600)
    (root / "etc" / "hosts").write_text(f"127.0.0.1 localhost {name(number)}\n")
    (root / "opt" / "headfirst" / "version").write_bytes((folder / "version").read_bytes())
    return root


class Engine:
    """The Docker Engine of one host; rank 0 and the chat page answer HTTP while their containers run."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.containers: dict[str, dict[str, Any]] = {}
        self._services: dict[str, ThreadingHTTPServer] = {}
        self._lock = threading.Lock()

    def listen(self, path: Path) -> None:
        """Answer at a socket of the host, in threads."""
        engine = self

        class Handler(_EngineHandler):
            pass

        Handler.engine = engine
        server = _UnixServer(str(path), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 60}, daemon=True).start()

    def create(self, name: str, config: dict[str, Any]) -> None:
        state = {"Status": "created", "Running": False, "Restarting": False, "ExitCode": 0}
        state |= {"OOMKilled": False, "Error": ""}
        self.containers[name] = {
            "Id": f"{self.number:04d}{len(self.containers):060d}",
            "Name": f"/{name}",
            "Image": IMAGE_ID,
            "Created": time.strftime("%Y-%m-%dT%H:%M:%S.000000000Z", time.gmtime()),
            "RestartCount": 0,
            "Path": "stand-in",
            "Args": config.get("Cmd") or [],
            "Config": {"Tty": True, "Env": [], "Labels": {}, **config},
            "HostConfig": config.get("HostConfig", {}),
            "State": {**state, "StartedAt": "0001-01-01T00:00:00Z", "FinishedAt": "0001-01-01T00:00:00Z"},
        }

    def start(self, name: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000000Z", time.gmtime())
        self.containers[name]["State"].update(Status="running", Running=True, StartedAt=now)
        port = _port(self.containers[name])
        with self._lock:
            if port and name not in self._services:
                server = ThreadingHTTPServer(("0.0.0.0", port), _ServiceHandler)
                self._services[name] = server
                threading.Thread(target=server.serve_forever, daemon=True).start()

    def stop(self, name: str) -> None:
        self.containers[name]["State"].update(Status="exited", Running=False, ExitCode=137)
        with self._lock:
            service = self._services.pop(name, None)
        if service:
            service.shutdown()
            service.server_close()

    def rename(self, name: str, wanted: str) -> None:
        with self._lock:
            self.containers[wanted] = {**self.containers.pop(name), "Name": f"/{wanted}"}
            if name in self._services:
                self._services[wanted] = self._services.pop(name)

    def listed(self) -> list[dict[str, Any]]:
        """The containers that run, with every port as a published one."""
        running = [one for one in self.containers.values() if one["State"]["Running"]]
        return [
            {"Id": one["Id"], "Names": [one["Name"]], "Ports": [{"PublicPort": _port(one)}]}
            for one in running
        ]


def _called(containers: dict[str, dict[str, Any]], wanted: str) -> str:
    """The name of a container that is named, or whose ID is given; "" when there is none."""
    return next((key for key, one in containers.items() if wanted in (key, one["Id"])), "")


def _port(container: dict[str, Any]) -> int:
    labels = container["Config"]["Labels"]
    if "headfirst-webui" in container["Name"]:
        return WEBUI_PORT
    return ENGINE_PORT if labels.get("headfirst.rank") == "0" else 0


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that does not wait for its answer is no error here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def reply(self, status: int, data: bytes | dict[str, Any]) -> None:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "text/plain" if isinstance(data, bytes) else "application/json")
        self.end_headers()
        self.wfile.write(body)

    def body(self) -> dict[str, Any]:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return json.loads(data) if data else {}


class _EngineHandler(_Handler):
    engine: Engine

    def address_string(self) -> str:
        return "unix"

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, method: str) -> None:
        url, body = urlsplit(self.path), self.body()
        words = [unquote(word) for word in url.path.split("/") if word]
        if words and words[0].startswith("v1."):
            del words[0]
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        known = self.engine.containers
        if words[0] == "images":
            image = {
                "Id": IMAGE_ID,
                "RootFS": {"Layers": []},
                "Created": "",
                "Config": {"Labels": {}},
                "Size": 1,
            }
            self.reply(200, {**image, "RepoDigests": [], "RepoTags": []})
        elif words[0] == "info":
            self.reply(200, {"ServerVersion": "24.0.0", "Runtimes": {}, "Containers": len(known)})
        elif words == ["stand-in", "names"]:
            self.reply(200, json.dumps(list(known)).encode())
        elif words == ["containers", "json"]:
            self.reply(200, json.dumps(self.engine.listed()).encode())
        elif words[0] != "containers":
            self.reply(200, {"ApiVersion": "1.43"})
        elif words[1] == "create":
            self.engine.create(query["name"], body)
            self.reply(201, {"Id": query["name"]})
        elif (called := _called(known, words[1])) == "":
            self.reply(404, {"message": f"No such container: {words[1]}"})
        else:
            self._container(method, called, words[2] if len(words) > 2 else "", query, body)

    def _container(self, method: str, name: str, verb: str, query: dict[str, str], body: Any) -> None:
        engine = self.engine
        if verb == "json":
            self.reply(200, engine.containers[name])
        elif verb == "logs":
            self.reply(200, str(engine.containers[name].get("log", "")).encode())
        elif verb == "start":
            engine.start(name)
            self.reply(204, b"")
        elif verb in ("stop", "kill"):
            engine.stop(name)
            self.reply(204, b"")
        elif verb == "update":
            engine.containers[name]["HostConfig"]["RestartPolicy"] = body["restart_policy"]
            self.reply(200, {})
        elif verb == "rename":
            engine.rename(name, query["name"])
            self.reply(204, b"")
        elif method == "DELETE":
            engine.stop(name)
            del engine.containers[name]
            self.reply(204, b"")
        else:
            self.reply(200, {})


class _ServiceHandler(_Handler):
    """An engine that serves, and a chat page that lists its model."""

    def do_GET(self) -> None:
        self.reply(200, {"data": [{"id": MODEL}]})

    def do_POST(self) -> None:
        self.body()
        message = {"role": "assistant", "content": "Hello"}
        choices = [{"message": message, "index": 0, "finish_reason": "stop"}]
        self.reply(200, {"token": "stand-in", "choices": choices, "usage": {"completion_tokens": 1}})


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True)


def _wait_for_port(host: str, port: int) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"no sshd at {host}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
