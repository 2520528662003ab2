"""Bring an image into this node's Docker Engine and tell how far it is. Needs python3-docker.

Usage: image_job.py pull NAME | load TARBALL NAME | build FOLDER NAME LABEL=VALUE | save NAME TARBALL
HEADFIRST_REGISTRY_LOGIN has the login for a pull, as JSON; without it that of root's config.json is used.
Progress goes to the file named by HEADFIRST_PROGRESS_FILE, the result to HEADFIRST_RESULT_FILE, both JSON.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker

CHUNK = 4 * 2**20
INTERVAL_S = 0.5
Event = dict[str, Any]


class Progress:
    """Writes the progress file, at most twice a second."""

    def __init__(self) -> None:
        self._path = Path(os.environ["HEADFIRST_PROGRESS_FILE"])
        self._next = 0.0
        self._alive = 0

    def __call__(self, done: int, total: int, note: str, unit: str = "bytes") -> None:
        """Report that `done` of `total` units are done; each call is a sign of life."""
        self._alive += 1
        if time.monotonic() < self._next and done < total:
            return
        self._next = time.monotonic() + INTERVAL_S
        write(self._path, {"done": done, "total": total, "unit": unit, "note": note, "alive": self._alive})


def write(path: Path, content: dict[str, Any]) -> None:
    """Write JSON so that a reader never sees half of it."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content), encoding="utf-8")
    new.replace(path)


def events(stream: Iterator[Event]) -> Iterator[Event]:
    """Pass the engine's events on; its error ends the job."""
    for event in stream:
        if "error" in event:
            raise RuntimeError(event["error"])
        yield event


class Layers:
    """Adds up what the engine tells of each layer."""

    def __init__(self) -> None:
        self._layers: dict[str, tuple[int, int]] = {}

    def take(self, event: Event) -> tuple[int, int]:
        """Return (bytes done, bytes in all) after this event."""
        detail, layer = event.get("progressDetail") or {}, event.get("id", "")
        if detail.get("total"):
            self._layers[layer] = (detail["current"], detail["total"])
        elif layer in self._layers:  # no detail: this layer is through
            self._layers[layer] = (self._layers[layer][1],) * 2
        return self.totals

    @property
    def totals(self) -> tuple[int, int]:
        """Bytes done, and bytes in all, of the layers so far."""
        layers = self._layers.values()
        return sum(done for done, _all in layers), sum(all_ for _done, all_ in layers)


def split(name: str) -> tuple[str, str, str]:
    """Repository, tag and digest of a name; "latest" where neither is given."""
    rest, _at, digest = name.partition("@")
    repository, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:  # the colon belongs to the registry's port
        repository, tag = rest, ""
    return repository, tag or ("" if digest else "latest"), digest


def pull(client: docker.DockerClient, progress: Progress, name: str) -> None:
    """Pull by digest where there is one, and give the image its tag."""
    repository, tag, digest = split(name)
    layers = Layers()
    progress(0, 0, f"waiting for the registry of {repository}")
    login = json.loads(os.environ.get("HEADFIRST_REGISTRY_LOGIN", "null"))
    stream = client.api.pull(repository, tag=digest or tag, stream=True, decode=True, auth_config=login)
    for event in events(stream):
        # Each layer counts twice, once on the wire and once on disk; only the first is in bytes of one kind.
        if event.get("status") in ("Downloading", "Download complete"):
            progress(*layers.take(event), "downloading")
        elif event.get("status") == "Extracting":
            progress(*layers.totals, "unpacking")
        elif event.get("status", "").startswith("Retrying"):
            progress(*layers.totals, event["status"])
    image = client.images.get(f"{repository}@{digest}" if digest else f"{repository}:{tag}")
    if digest and tag:
        image.tag(repository, tag)


def load(client: docker.DockerClient, progress: Progress, tarball: str, name: str) -> None:
    """Load an archive made by docker save, and give the image its name."""
    size = Path(tarball).stat().st_size
    total = 2 * size  # read once by the engine, then unpacked

    def chunks() -> Iterator[bytes]:
        done = 0
        with Path(tarball).open("rb") as file:
            while chunk := file.read(CHUNK):
                done += len(chunk)
                progress(done, total, "reading the archive")
                yield chunk

    layers, loaded = Layers(), ""
    for event in events(client.api.load_image(chunks(), quiet=False)):
        found = re.match(r"Loaded image(?: ID)?: (\S+)", event.get("stream", ""))
        if found:
            loaded = found.group(1) if loaded != name else loaded
        elif event.get("status") == "Loading layer":
            progress(size + min(size, layers.take(event)[0]), total, "unpacking")
    image = client.images.get(loaded)
    repository, tag, _digest = split(name)
    image.tag(repository, tag)
    progress(total, total, "loaded")


def build(client: docker.DockerClient, progress: Progress, folder: str, name: str, label: str) -> None:
    """Build from a folder with a Dockerfile, on the host's network."""
    labels = dict([label.split("=", 1)])
    for event in events(
        client.api.build(path=folder, tag=name, labels=labels, network_mode="host", rm=True, decode=True)
    ):
        text = event.get("stream", "")
        print(text, end="", flush=True)
        step = re.match(r"Step (\d+)/(\d+) : (.*)", text)
        if step:
            progress(int(step.group(1)) - 1, int(step.group(2)), step.group(3)[:80], "layers")
    client.images.get(name)  # raises where the build left none


def save(client: docker.DockerClient, progress: Progress, name: str, tarball: str) -> None:
    """Write the archive of an image; the file appears when it is whole."""
    image = client.images.get(name)
    done, total = 0, image.attrs["Size"]
    part = Path(tarball + ".part")
    with part.open("wb") as file:
        # Podman puts the name of a registry before it.
        known = next((tag for tag in image.tags if tag == name or tag.endswith("/" + name)), name)
        for chunk in image.save(chunk_size=CHUNK, named=known):
            file.write(chunk)
            done += len(chunk)
            progress(done, max(total, done), "saving")
    part.replace(tarball)


COMMANDS: dict[str, Callable[..., None]] = {"pull": pull, "load": load, "build": build, "save": save}


def main() -> int:
    """Run one command; return the exit code."""
    command, arguments = sys.argv[1], sys.argv[2:]
    result_file = Path(os.environ["HEADFIRST_RESULT_FILE"])
    try:
        # Unpacking a layer of many GB can keep the engine silent for long.
        client = docker.from_env(version="auto", timeout=3600)
        COMMANDS[command](client, Progress(), *arguments)
    except (docker.errors.DockerException, OSError, RuntimeError) as error:
        private = command == "pull" and re.search(r"denied|unauthorized|authentication required", str(error))
        hint = ". The login of a private registry: registry_logins in the inventory" if private else ""
        write(result_file, {"changed": False, "msg": f"{command} failed: {error}{hint}"})
        return 1
    write(result_file, {"changed": command != "save"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
