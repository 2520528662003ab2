#!/usr/bin/python
"""The API keys that a proxy accepts: in its file, and in the process that runs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: proxy_keys
short_description: Replace the API keys that HAProxy accepts, without a restart
description:
  - Writes the keys to a map file of HAProxy, mode 0600, and replaces the map of a process that runs in one
    transaction of its admin socket. Connections, running requests and counters stay.
options:
  keys:
    description: The keys that are accepted.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: Name of the key., type: str, required: true}
      sha256: {description: "SHA-256 of the key, in hex.", type: str, required: true}
      service: {description: The only service that it is for; empty for all., type: str, default: ""}
      requests_per_minute: {description: Limit; 0 for none., type: int, default: 0}
  file: {description: The map file on the node., type: path, required: true}
  map: {description: The same file as the process sees it., type: str, required: true}
  socket: {description: Admin socket of the process., type: path, required: true}
  required: {description: Fail where no process answers at the socket., type: bool, default: false}
attributes:
  check_mode: {support: full, description: Reports what would change.}
  diff_mode: {support: none, description: No differences.}
author: The Headfirst authors (@headfirst)
"""

EXAMPLES = r"""
- name: Accept one key
  headfirst.serving.proxy_keys:
    keys:
      - name: alice
        sha256: "{{ 'sk-example' | hash('sha256') }}"
    file: /etc/headfirst/proxy/keys.map
    map: /etc/headfirst-proxy/keys.map
    socket: /var/lib/headfirst/proxy/admin.sock
"""

RETURN = r"""
applied: {description: A process runs and has these keys., type: bool, returned: always}
"""

import os
import re
import socket
import tempfile
import typing as t

from ansible.module_utils.basic import AnsibleModule

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
SERVICE = re.compile(r"[a-z0-9_]{0,63}")
DIGEST = re.compile(r"[0-9a-f]{64}")
TIMEOUT_S = 10
# HAProxy reads a command and what follows it into one buffer of 16 KiB.
AT_ONCE = 50

Records = t.Dict[str, str]


class ProxyKeysError(Exception):
    """A value, or an answer of the process, is not what it should be."""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "keys": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "no_log": False,
                "options": {
                    "name": {"type": "str", "required": True},
                    "sha256": {"type": "str", "required": True},
                    "service": {"type": "str", "default": ""},
                    "requests_per_minute": {"type": "int", "default": 0},
                },
            },
            "file": {"type": "path", "required": True},
            "map": {"type": "str", "required": True},
            "socket": {"type": "path", "required": True},
            "required": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        planned = records(params["keys"])
        process = ProxyProcess(params["socket"], params["map"])
        there = process.read()
        if there is None and params["required"]:
            raise ProxyKeysError("no proxy runs here: nothing answers at {}".format(params["socket"]))
        changed = write(params["file"], planned, module.check_mode)
        if there is not None and there != planned:
            changed = True
            if not module.check_mode:
                process.replace(planned)
    except (ProxyKeysError, OSError) as error:
        module.fail_json(msg="The keys of the proxy: {}.".format(error))
    else:
        module.exit_json(changed=changed, applied=there is not None)


def records(keys: t.List[t.Dict[str, t.Any]]) -> Records:
    """Return what the map has: digest to NAME|LIMIT|SERVICE."""
    by_digest: Records = {}
    for key in keys:
        if not NAME.fullmatch(key["name"]):
            raise ProxyKeysError("{!r} cannot be the name of a key".format(key["name"]))
        if not SERVICE.fullmatch(key["service"]):
            raise ProxyKeysError("{!r} cannot be the name of a service".format(key["service"]))
        if not DIGEST.fullmatch(key["sha256"]):
            raise ProxyKeysError("the key {} has no SHA-256 in hex".format(key["name"]))
        if key["requests_per_minute"] < 0:
            raise ProxyKeysError("the limit of the key {} is less than 0".format(key["name"]))
        by_digest[key["sha256"]] = "{}|{}|{}".format(
            key["name"], key["requests_per_minute"] or "", key["service"]
        )
    return by_digest


def write(path: str, planned: Records, check: bool) -> bool:
    """Write the map file; return whether it differed."""
    text = "".join("{} {}\n".format(digest, record) for digest, record in sorted(planned.items()))
    try:
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return False
    except FileNotFoundError:
        pass
    if not check:
        with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(path), delete=False) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, path)  # the temporary file has mode 0600
    return True


class ProxyProcess:
    """The map of a running HAProxy, through its admin socket."""

    def __init__(self, path: str, name: str) -> None:
        self._path, self._map = path, name

    def read(self) -> t.Optional[Records]:
        """Return its entries, None where no process answers."""
        try:
            answer = self._ask("show map {}".format(self._map))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        lines = [line.split() for line in answer.splitlines() if line.strip()]
        if any(len(line) != 3 or not line[0].startswith("0x") for line in lines):
            raise ProxyKeysError("the proxy answers {!r}".format(answer[:200]))
        return {digest: record for _entry, digest, record in lines}

    def replace(self, planned: Records) -> None:
        """Replace all entries at once."""
        answer = self._ask("prepare map {}".format(self._map))
        match = re.fullmatch(r"New version created: (\d+)", answer.strip())
        if match is None:
            raise ProxyKeysError("the proxy answers {!r}".format(answer[:200]))
        version = match.group(1)
        entries = sorted(planned.items())
        for start in range(0, len(entries), AT_ONCE):
            part = "".join("{} {}\n".format(*entry) for entry in entries[start : start + AT_ONCE])
            self._order("add map @{} {} <<\n{}".format(version, self._map, part))
        self._order("commit map @{} {}".format(version, self._map))
        if self.read() != planned:
            raise ProxyKeysError("the proxy does not have the keys that it was sent")

    def _order(self, command: str) -> None:
        answer = self._ask(command).strip()
        if answer:
            raise ProxyKeysError("the proxy answers {!r}".format(answer[:200]))

    def _ask(self, command: str) -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.connect(self._path)
            connection.sendall(command.encode() + b"\n")
            parts = []
            while True:
                part = connection.recv(65536)
                if not part:
                    return b"".join(parts).decode("utf-8", "replace")
                parts.append(part)


if __name__ == "__main__":
    main()
