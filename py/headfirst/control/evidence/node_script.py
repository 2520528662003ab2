"""Sent to a node and run there by its own Python (3.8 or newer), standard library only.

Protocol: for each line `time` on stdin it answers its clock, seconds since 1970; on `go` one line follows,
the base64 of the zlib of a JSON object. `go KEY` sends that API key with `health` and `probe`. It changes
nothing. Argument: a JSON object with `container`, and with `health`, `metrics` and `probe`, addresses to ask
("" to ask none); `probe` is sent `body` as JSON.
"""

from __future__ import annotations

import base64
import csv
import http.client
import json
import re
import shutil
import subprocess
import sys
import time
import typing as t
import urllib.parse
import zlib
from pathlib import Path

HEAD_BYTES = 512 * 1024
TAIL_LINES = 10000
TAIL_BYTES = 4 * 1024 * 1024
EARLIER_LINES = 3000
LINE_CHARS = 2000
COMMAND_S = 20
HEALTH_S = 12  # generating one token behind requests that are being served
KERNEL = re.compile(r"NVRM|oom-kill|Out of memory|unavailable key|nvidia|mlx5|fallen off")
STAMPED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d) ")
PACKAGE = re.compile(r" upgrade (lib)?nvidia-")
GPU_FIELDS = ["index", "driver_version", "memory.used", "utilization.gpu", "utilization.memory"]
INSPECTED = ["Id", "Image", "Created", "Path", "Args", "RestartCount", "State"]
NVSWITCHES = Path("/proc/driver/nvidia-nvswitch/devices")
HCAS = Path("/sys/class/infiniband")


def run(*command: str) -> tuple[int, str]:
    """Exit code and merged output of a short command; 127 where there is no such command."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=COMMAND_S, check=False
        )
    except FileNotFoundError:
        return 127, f"{command[0]} is not installed"
    except subprocess.TimeoutExpired:
        return 124, f"{command[0]} did not answer within {COMMAND_S} s"
    return done.returncode, done.stdout.decode("utf-8", "replace")


def logs(container: str, *options: str, head: int = 0) -> list[str]:
    """Lines of a container's log, its time before each: the first `head` bytes, or the last TAIL_BYTES."""
    command = ["docker", "logs", "--timestamps", *options, container]
    data = b""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        if process.stdout and head:
            data = process.stdout.read(head)
            data = data[: data.rfind(b"\n") + 1]
            process.kill()
        elif process.stdout:
            data = process.stdout.read()[-TAIL_BYTES:]
    lines = [line.rstrip("\r")[:LINE_CHARS] for line in data.decode("utf-8", "replace").split("\n")]
    return [line for line in lines if STAMPED.match(line)]  # the first one may be cut


def engine(container: str) -> dict[str, t.Any] | None:
    """State and log of the rank's container; None where there is none."""
    code, text = run("docker", "inspect", "--type", "container", container)
    if code:
        missing = code != 127 and "no such" in text.lower()
        return None if missing else {"problem": text.strip()[:500]}
    inspected = json.loads(text)[0]
    started = inspected["State"]["StartedAt"]
    since = ["--since", started] if started > "0002" else []
    first = logs(container, *since, head=HEAD_BYTES)
    last_time = first[-1].split(" ", 1)[0] if first else ""
    rest = logs(container, *since, "--tail", str(TAIL_LINES))
    earlier = logs(container, "--until", started, "--tail", str(EARLIER_LINES)) if since else []
    # The environment has secrets: it stays here.
    described = {key: inspected[key] for key in INSPECTED}
    environment = dict(pair.partition("=")[::2] for pair in inspected["Config"].get("Env") or ())
    return {
        "inspected": {**described, "Config": {"Image": inspected["Config"]["Image"]}},
        "cuda": environment.get("CUDA_VERSION", ""),
        "log": first + [line for line in rest if line.split(" ", 1)[0] > last_time],
        "earlier": earlier,
    }


def kernel() -> list[tuple[float, str]]:
    """Telling lines of the kernel's log, each with its time in seconds since 1970."""
    booted = time.time() - float(Path("/proc/uptime").read_text().split()[0])
    code, text = run("dmesg")
    lines = [re.match(r"\[ *(\d+\.\d+)\] (.*)", line) for line in text.splitlines()] if code == 0 else []
    told = [(booted + float(line.group(1)), line.group(2)) for line in lines if line]
    return [line for line in told if KERNEL.search(line[1])][-400:]


def driver() -> dict[str, t.Any]:
    """What the NVIDIA driver reports of itself and its GPUs; empty lists where there is none."""
    said: list[str] = []
    gpus: list[dict[str, str]] = []
    if shutil.which("nvidia-smi"):
        query = "--query-gpu=" + ",".join(GPU_FIELDS)
        code, text = run("nvidia-smi", query, "--format=csv,noheader,nounits")
        if code:
            said = text.splitlines()[:20]
        else:
            gpus = list(csv.DictReader(text.splitlines(), GPU_FIELDS, skipinitialspace=True))
    if NVSWITCHES.is_dir():
        said += run("journalctl", "-u", "nvidia-fabricmanager", "-n", "20", "-o", "cat")[1].splitlines()
    log = Path("/var/log/dpkg.log")
    packages = log.read_text(errors="replace").splitlines() if log.exists() else []
    return {"said": said, "gpus": gpus, "packages": [line for line in packages if PACKAGE.search(line)][-5:]}


def ask(url: str, seconds: float, body: t.Any = None, key: str = "") -> dict[str, t.Any]:
    """Status and text of a GET, or of a POST with a body; status 0 and the reason where nothing answers."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=seconds)
    path = parts.path
    headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + key} if key else {})}
    try:
        if body is None:
            connection.request("GET", path, headers=headers)
        else:
            connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        if answer.status in (301, 307):  # /metrics is mounted, and requires its slash
            path = urllib.parse.urlsplit(answer.headers["Location"]).path
            answer.read()
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
        return {"status": answer.status, "text": answer.read().decode("utf-8", "replace")}
    except (OSError, http.client.HTTPException) as error:
        return {"status": 0, "text": str(error) or type(error).__name__}
    finally:
        connection.close()


def main() -> None:
    """Answer the clock, then gather once."""
    request, key = json.loads(sys.argv[1]), ""
    for line in sys.stdin:
        word, _, key = line.strip().partition(" ")
        if word == "go":
            break
        print(repr(time.time()), flush=True)
    facts = {
        "engine": engine(request["container"]),
        "kernel": kernel(),
        "driver": driver(),
        "hcas": sorted(path.name for path in HCAS.iterdir()) if HCAS.is_dir() else [],
        "health": ask(request["health"], HEALTH_S, None, key) if request["health"] else None,
        "metrics": ask(request["metrics"], COMMAND_S, None, key) if request["metrics"] else None,
        "probe": ask(request["probe"], HEALTH_S, request["body"], key) if request["probe"] else None,
    }
    print(base64.b64encode(zlib.compress(json.dumps(facts).encode())).decode(), flush=True)


if __name__ == "__main__":
    main()
