"""Fixture: the part of Python's docker SDK that our modules use, over the stand-in of the Docker Engine."""

import http.client
import json
import re
import socket
from urllib.parse import quote

from docker import errors, types

__all__ = ["DockerClient", "errors", "from_env", "types"]


class _Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect("/var/run/docker.sock")


def _ask(method, path, body=None):
    connection = _Connection("localhost")
    connection.request(method, path, json.dumps(body) if body is not None else None)
    answer = connection.getresponse()
    data = answer.read()
    if answer.status == 404:
        raise errors.ImageNotFound(path) if path.startswith("/images") else errors.NotFound(path)
    if answer.status >= 400:
        raise errors.APIError(data.decode())
    return data


class Container:
    def __init__(self, name):
        self.name = name
        self.reload()

    def reload(self):
        self.attrs = json.loads(_ask("GET", f"/containers/{quote(self.name)}/json"))
        self.id, self.labels = self.attrs["Id"], self.attrs["Config"]["Labels"]
        self.status = self.attrs["State"]["Status"]

    def start(self):
        _ask("POST", f"/containers/{quote(self.name)}/start")

    def stop(self, timeout=10):
        _ask("POST", f"/containers/{quote(self.name)}/stop")

    def rename(self, name):
        _ask("POST", f"/containers/{quote(self.name)}/rename?name={quote(name)}")
        self.name = name

    def update(self, **changes):
        _ask("POST", f"/containers/{quote(self.name)}/update", changes)

    def remove(self, v=False, force=False):
        _ask("DELETE", f"/containers/{quote(self.name)}")

    def logs(self, since=None, tail=None, **_):
        return _ask("GET", f"/containers/{quote(self.name)}/logs")


class _Containers:
    def get(self, name):
        return Container(name)

    def list(self, all=False, filters=None):
        containers = [Container(name) for name in json.loads(_ask("GET", "/stand-in/names"))]
        name, label = (filters or {}).get("name", ""), (filters or {}).get("label")
        return [
            container
            for container in containers
            if re.search(name, container.name)
            and (label is None or label in container.labels)
            and (all or container.status == "running")
        ]

    def create(self, image, name, labels, environment=None, command=None, **host):
        config = {"Image": image, "Labels": labels, "Cmd": command or []}
        config["HostConfig"] = {"RestartPolicy": host.get("restart_policy") or {"Name": "no"}}
        config["Env"] = [f"{key}={value}" for key, value in (environment or {}).items()]
        _ask("POST", f"/containers/create?name={quote(name)}", config)
        return Container(name)


class _Image:
    def __init__(self, attrs):
        self.attrs, self.id, self.tags = attrs, attrs["Id"], attrs.get("RepoTags", [])


class _Images:
    def get(self, name):
        return _Image(json.loads(_ask("GET", f"/images/{quote(name)}/json")))


class DockerClient:
    containers, images = _Containers(), _Images()

    def ping(self):
        return True

    def version(self):
        return {"Components": [{"Name": "Engine"}]}


def from_env(**_):
    return DockerClient()
