"""Hosts out of data/hosts: files.txt unpacked to a folder, commands and Docker from files beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.headfirst.serving.plugins.module_utils import host_gather
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource

SHAPES = Path(__file__).parent / "data" / "hosts"


class RecordedSource(HostSource):
    """A shape; `changes` has files (path to text, None to remove), commands and edits (line to old, new)."""

    def __init__(self, shape: str, folder: Path, changes: Mapping[str, Any] | None = None) -> None:
        self.shape, self.changes = SHAPES / shape, changes or {}
        files, links = _files((self.shape / "files.txt").read_text())
        for path, text in {**files, **self.changes.get("files", {})}.items():
            if text is not None:
                _place(folder, path).write_bytes(_bytes(text))
        for path, target in links.items():
            if path not in self.changes.get("files", {}):
                _place(folder, path).symlink_to(f"{folder}{target}")
        super().__init__(str(folder))

    def run(self, *argv: str, stdin: str = "") -> str:
        """What the command printed there; of a batch for `ip`, what each line would have printed alone."""
        if "-batch" in argv:
            return "".join(self.run("ip", "-j", "-4", *line.split()) for line in stdin.splitlines())
        line = " ".join(argv)
        if line in self.changes.get("commands", {}):
            return str(self.changes["commands"][line])
        file = self.shape / "commands" / re.sub(r"[^\w.-]", "", "_".join(argv))
        text = file.read_text() if file.exists() else ""
        for old, new in self.changes.get("edits", {}).get(line, []):
            assert old in text, f"{old!r} is not in the output of {line}"
            text = text.replace(old, new, 1)
        return text

    def docker(self, path: str) -> dict[str, Any]:
        """What the Docker Engine answered there."""
        answers = json.loads((self.shape / "docker.json").read_text()) | self.changes.get("docker", {})
        return dict(answers.get(path, {}))


def facts(
    shape: str, folder: Path, *, peers: tuple[str, ...] = (), changes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Facts of a recorded host, and what only a live host can tell as a healthy one would."""
    folder.mkdir(parents=True, exist_ok=True)
    source = RecordedSource(shape, folder, changes)
    found = host_gather.gather(source, "/var/lib/headfirst", list(peers), ["engine:1"])
    for process in (process for gpu in found["gpus"] for process in gpu["processes"]):
        process["container"] = ""
    live = {
        "clock_offset_s": 0.4,
        "clock_error_s": 0.1,
        "disk_free_bytes": 4 * 10**12,
        "disk_used_bytes": 0,
        "image_store_free_bytes": 4 * 10**12,
        "busy_ports": [],
    }
    own = {"uid": 0, "python": "3.10.12", "architecture": "x86_64"}
    return (
        found
        | live
        | own
        | {"unreachable_peers": [], "cut_ports": [], "shm_bytes": 10**12, "shm_free_bytes": 10**12}
        | (changes or {}).get("live", {})
    )


def _files(text: str) -> tuple[dict[str, str], dict[str, str]]:
    files, links = {}, {}
    for line in text.splitlines():
        if " -> " in line:
            path, _, target = line.partition(" -> ")
            links[path] = target
        else:
            path, _, content = line.partition(" =")
            files[path] = content.removeprefix(" ").replace("\\n", "\n")
    return files, links


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("hex:")) if text.startswith("hex:") else text.encode() + b"\n"


def _place(folder: Path, path: str) -> Path:
    place = folder / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    return place
