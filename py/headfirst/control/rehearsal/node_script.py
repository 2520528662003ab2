"""Sent to a node and run there by its own Python (3.8 or newer), standard library only: a rank with dummies.

Protocol: the first line on stdin is the request, a JSON object that run.py makes; later lines are `beat`,
`folders` with the base64 of the zlib of {folder: {file: base64}}, `reach` and `stop SECONDS`. It writes one
JSON object a line, each with `event`: those of rank.py. The container ends with this script: after `stop`,
without a line for SILENT_S, or when stdin closes; where this script is killed, at the deadline that is in the
container's command.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import select
import shutil
import socket
import subprocess
import threading
import time
import typing as t
import urllib.parse
import zlib
from pathlib import Path

SILENT_S = 60
BEAT_S = 10
POLL_S = 2
COMMAND_S = 120
START_S = 240  # less than the controller waits for a line
ANSWER_S = 60
STOP_S = 10
CONNECT_S = 5
ATTEMPTS = 4  # to connect, in which the rank itself would have connected many times
ERROR_CHARS = 2000
ENGINES = "headfirst-engine"


class Refused(Exception):
    """Why the rank is not started here."""


def tell(event: str, **facts: t.Any) -> None:
    """Write one line to the controller; what it no longer reads is lost, and stdin ends then, too."""
    with contextlib.suppress(OSError):
        print(json.dumps({"event": event, **facts}), flush=True)


def run(*command: str, seconds: float = COMMAND_S) -> tuple[int, str]:
    """Exit code and merged output of a command; 127 where there is no such command."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=seconds, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        return 127, f"{command[0]} is not installed"
    except subprocess.TimeoutExpired:
        return 124, f"{command[0]} did not answer within {seconds:.0f} s"
    return done.returncode, done.stdout.decode("utf-8", "replace")


class Lines:
    """stdin as lines, without waiting for longer than asked."""

    def __init__(self) -> None:
        self.rest = bytearray()
        self.heard = time.monotonic()
        self.closed = False

    def next(self, seconds: float) -> str | None:
        """Return the next line; None where there is none in time, or stdin is closed."""
        end, searched = time.monotonic() + seconds, 0
        while self.rest.find(b"\n", searched) < 0:
            searched = len(self.rest)
            left = end - time.monotonic()
            if self.closed or left < 0 or not select.select([0], [], [], left)[0]:
                return None
            data = os.read(0, 1 << 16)
            self.closed = not data
            self.rest += data
            self.heard = time.monotonic()
        at = self.rest.index(b"\n")
        line = self.rest[:at].decode("utf-8", "replace")
        del self.rest[: at + 1]
        return line

    def gone(self) -> bool:
        """Whether nobody is there who could stop the rank."""
        return self.closed or time.monotonic() - self.heard > SILENT_S


class Rank:
    """The container of one rank, from its files to its removal."""

    def __init__(self, request: dict[str, t.Any]) -> None:
        self.request = request
        self.runtime = str(request["runtime"])
        self.name = str(request["name"])
        self.folder = Path(request["folder"])
        self.sent: dict[str, str] = {}  # folders of the model that are not here -> those with small files

    def clear(self) -> None:
        """Remove what an earlier rehearsal left: containers that this run does not have here, and files."""
        _, text = run(self.runtime, "ps", "--all", "--format", "{{.Names}}")
        kept = [name for name in self.request["beside"] if name != self.name]
        left = [name for name in text.split() if name.startswith(self.request["prefix"]) and name not in kept]
        if left:
            run(self.runtime, "rm", "--force", *left)
        for path in self.folder.parent.iterdir() if self.folder.parent.is_dir() else ():
            if path.name not in kept:
                shutil.rmtree(str(path), ignore_errors=True)

    def check(self) -> None:
        """Raise Refused where something else works on what the rank would have, or the image is not here."""
        code, text = run(self.runtime, "image", "inspect", "--format", "{{.Id}}", self.request["image"])
        if code:
            lacking = "no such" in text.lower() or "not known" in text.lower()
            raise Refused("the image {} is not on this host".format(self.request["image"])
                          if lacking else text.strip()[-ERROR_CHARS:])  # fmt: skip
        gpus = planned_gpus(self.request["gpus"]) if self.request["cuda"] else None
        if gpus is not None:
            busy(gpus)
        _, text = run(self.runtime, "ps", "--format", "{{.Names}}")
        for name in text.split():
            if name.startswith(ENGINES) and (gpus is None or shares(self.runtime, name, gpus)):
                raise Refused(f"{name} serves here")

    def missing(self) -> list[str]:
        """Return the folders of the model that are not complete on this host."""
        return [
            folder
            for folder in self.request["folders"]
            if not any((Path(folder) / name).is_file() for name in self.request["complete"])
        ]

    def write(self, folders: dict[str, dict[str, str]]) -> None:
        """Write the small files of a model whose folder is not here yet."""
        for number, (folder, files) in enumerate(sorted(folders.items())):
            place = self.folder / f"model-{number}"
            for name, content in files.items():
                path = place / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(base64.b64decode(content))
            self.sent[folder] = str(place)

    def start(self) -> tuple[int, str]:
        """Write its files and run the container; exit code and output of the command."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path, text in self.request["files"].items():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
        mounts = {f"{real}:{real}:ro": f"{at}:{real}:ro" for real, at in self.sent.items()}
        words = [mounts.get(word, word) for word in self.request["run"]]
        code, text = run(*words, seconds=START_S)
        for path in self.request["once"]:
            Path(path).unlink()
        return code, text

    def ended(self) -> int | None:
        """Return the exit code of a container that has ended."""
        form = "{{.State.Running}} {{.State.ExitCode}}"
        code, text = run(self.runtime, "inspect", "--type", "container", "--format", form, self.name)
        words = text.split()
        return int(words[1]) if code == 0 and words[0] == "false" else None

    def remove(self, seconds: float) -> None:
        """Stop the container, with `seconds` for a clean end, and remove it and its files."""
        if seconds:
            run(self.runtime, "stop", "--time", str(int(seconds)), self.name, seconds=seconds + COMMAND_S)
        run(self.runtime, "rm", "--force", "--volumes", self.name)
        shutil.rmtree(str(self.folder), ignore_errors=True)


def planned_gpus(devices: list[str] | None) -> dict[str, str]:
    """Return the planned GPUs, index by UUID; None are all of this host."""
    code, text = run("nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader")
    if code:
        raise Refused("nvidia-smi fails: " + text.strip()[-ERROR_CHARS:])
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if "," in line]
    listed = {row[1]: row[0] for row in rows}
    return {uuid: index for uuid, index in listed.items()
            if devices is None or uuid in devices or index in devices}  # fmt: skip


def busy(gpus: dict[str, str]) -> None:
    """Raise Refused where a process computes on one of the GPUs."""
    query = "--query-compute-apps=gpu_uuid,pid,used_memory"
    code, text = run("nvidia-smi", query, "--format=csv,noheader")
    if code:
        raise Refused("nvidia-smi fails: " + text.strip()[-ERROR_CHARS:])
    for line in text.splitlines():
        uuid, _, process = line.partition(",")
        if uuid.strip() in gpus:
            what = process.strip().replace(",", " with")
            raise Refused(f"GPU {gpus[uuid.strip()]} is in use by process {what}")


def shares(runtime: str, container: str, gpus: dict[str, str]) -> bool:
    """Return whether a container has one of the GPUs, or may have."""
    form = "{{json .HostConfig.DeviceRequests}}"
    code, text = run(runtime, "inspect", "--type", "container", "--format", form, container)
    try:
        requests = json.loads(text) if code == 0 else None
        named = [device for request in requests or () for device in request["DeviceIDs"] or ()]
    except (ValueError, KeyError, TypeError):
        return True
    return not named or any(device in gpus or device in gpus.values() for device in named)


def listens(port: int) -> bool:
    """Return whether a process of this host listens on the TCP port."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
        except OSError:
            continue
        if any(row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port for row in rows):
            return True
    return False


def connect(address: str, port: int) -> str:
    """Return why no connection can be made; "" where it can."""
    try:
        socket.create_connection((address, port), CONNECT_S).close()
    except socket.timeout:  # noqa: UP041 - Python 3.8 and 3.9 have another class
        return "no answer"
    except OSError as error:
        return error.strerror or str(error)
    return ""


def ask(url: str, key: str, body: t.Any = None) -> int:
    """Return the status of a GET, or of a POST with a body; 0 where nothing answers."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWER_S)
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + key}
    try:
        if body is None:
            connection.request("GET", parts.path, headers=headers)
        else:
            connection.request("POST", parts.path, json.dumps(body), headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def serves(ready: dict[str, t.Any]) -> bool:
    """Return whether the replica is ready and answers one request; the text of the answer says nothing."""
    if ask(ready["url"] + ready["path"], ready["key"]) != 200:
        return False
    return ask(ready["url"] + ready["probe_path"], ready["key"], ready["body"]) == 200


class Readiness(threading.Thread):
    """Ask a replica again and again until it serves; a request that hangs holds up nothing else."""

    def __init__(self, ready: dict[str, t.Any]) -> None:
        super().__init__(daemon=True)
        self.ready = ready
        self.serving = False

    def run(self) -> None:
        while not serves(self.ready):
            time.sleep(POLL_S)
        self.serving = True


def watch(rank: Rank, lines: Lines) -> float:
    """Report what the rank does until it is to stop; the seconds for that."""
    request = rank.request
    port, failures, reach = request["listens"], 0, False
    ended, told = False, time.monotonic()
    readiness = Readiness(request["ready"]) if request["ready"] else None
    if readiness:
        readiness.start()
    while not lines.gone():
        line = lines.next(POLL_S) or ""
        if line.startswith("stop"):
            return float(line.partition(" ")[2] or 0)
        reach = reach or line == "reach"
        if time.monotonic() - told > BEAT_S:
            tell("beat")
            told = time.monotonic()
        if ended:
            continue
        code = rank.ended()
        if code is not None:
            ended = True
            tell("exited", code=code)
        elif port and listens(port):
            port = None
            tell("listening")
        elif reach:
            why = connect(*request["head"])
            failures, reach = (failures + 1, True) if why else (0, False)
            if failures == ATTEMPTS:
                reach = False
                tell("unreachable", why=why)
        elif readiness and readiness.serving:
            readiness = None
            tell("serving")
    return STOP_S


def folders(rank: Rank, lines: Lines) -> bool:
    """Take the small files of folders that are not here; whether all are there now."""
    missing = rank.missing()
    if not missing:
        return True
    tell("folders", missing=missing)
    while not lines.gone():
        word, _, packed = (lines.next(POLL_S) or "").partition(" ")
        if word == "folders":
            rank.write(json.loads(zlib.decompress(base64.b64decode(packed))))
            return True
        if word == "stop":
            return False
    return False


def main() -> None:
    """Run one rank."""
    lines = Lines()
    rank = Rank(json.loads(lines.next(SILENT_S) or "{}"))
    seconds = 0.0
    try:
        rank.clear()
        rank.check()
        if folders(rank, lines):
            code, text = rank.start()
            if code:
                tell("failed", why=text.strip()[-ERROR_CHARS:])
            else:
                tell("started")
            seconds = watch(rank, lines)
    except Refused as refusal:
        tell("refused", why=str(refusal))
    finally:
        rank.remove(seconds)
    tell("gone")


if __name__ == "__main__":
    main()
