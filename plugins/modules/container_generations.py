#!/usr/bin/python
"""The generations of one container on a node: the one that serves, and those that are kept beside it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: container_generations
short_description: Keep several generations of one container, of which one serves
description:
  - A generation is one specification of a service. Its container on a node carries the label
    C(headfirst.generation). The container of the current generation is called O(name), every other one
    C(NAME.GENERATION).
  - A record of each generation is stored in /etc/headfirst/NAME/GENERATION.json, mode 0600. It has what is
    needed to start the generation again and to check whether it serves, and when it served.
options:
  name:
    description: Name of the container that serves.
    type: str
    required: true
  state:
    description:
      - V(read) changes nothing. With O(generation) it returns RV(beside).
      - V(recorded) writes the record of O(generation), and its files where they are missing.
      - V(planned) adds to the record of O(generation) that a rollback returns to O(version).
      - V(current) gives O(name) to the container of O(generation), which must not run, and writes its files.
      - V(kept) records that O(generation), which is current, served; gives it the restart policy of its
        specification; and removes all generations that are not in O(keep).
      - V(pruned) removes all generations that are not in O(keep), with their records and files. The
        current one stays.
      - V(kept) and V(pruned) also remove the image of a removed generation, unless a container or a second
        name uses it.
      - V(adopted) gives O(name) what served of O(former), where O(former) is at O(url) and O(name)
        served nothing before.
      - V(absent) removes the containers, records and files of all generations.
    type: str
    choices: [read, recorded, planned, current, kept, pruned, adopted, absent]
    default: read
  generation: {description: A generation., type: str}
  record:
    description: What V(recorded) writes.
    type: dict
    suboptions:
      url: {description: Address of the service., type: str, required: true}
      model: {description: Name of its model., type: str, default: ""}
      api_key: {description: Key of its API., type: str, default: ""}
      readiness: {description: The requests that check whether it serves., type: dict, default: {}}
      files: {description: "Content of files on the node, by path; mode 0600.", type: dict, default: {}}
      supervision: {description: What the supervisor needs to keep the ranks alive., type: dict, default: {}}
  former: {description: Another name of the service., type: str}
  url: {description: Address of the service., type: str}
  version:
    description:
      - Name of the service's version that the generation belongs to, with one generation of each replica.
        V(recorded) adds to the record when it was planned, V(kept) when it served. Empty for none.
    type: str
    default: ""
  keep: {description: Generations that V(kept) and V(pruned) leave., type: list, elements: str, default: []}
  restarted: {description: The generation was started by this run., type: bool, default: false}
  start_seconds: {description: How long its start took; it is kept in the record., type: float}
  stop_timeout: {description: Seconds between SIGTERM and SIGKILL., type: int, default: 30}
attributes:
  check_mode: {support: full, description: Reports what would change.}
  diff_mode: {support: none, description: No differences.}
author: The Headfirst authors (@headfirst)
"""

EXAMPLES = r"""
- name: Read which generations of a page are there
  headfirst.serving.container_generations:
    name: headfirst-page
"""

RETURN = r"""
current:
  description: The container called NAME. Keys generation ("" for none), running (bool), rank.
  type: dict
  returned: with V(read)
generations:
  description:
    - Generation to worked_at (time of the node's clock, 0 for never), rank, ranks, container, url,
      start_seconds, versions (version to planned_at, served_at, and returned where a rollback planned it).
  type: dict
  returned: with V(read)
names:
  description: Names of all containers on the node that have generations, each once, without the generation.
  type: list
  elements: str
  returned: with V(read)
beside:
  description: Names of other containers that run with a GPU or the address of O(generation).
  type: list
  elements: str
  returned: with V(read) and O(generation)
"""

import functools
import json
import os
import tempfile
import time
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.headfirst.serving.plugins.module_utils import (
    container_runtime,
    container_spec,
    generation_records,
)
from ansible_collections.headfirst.serving.plugins.module_utils.docker_client import (
    APIError,
    DockerException,
    connect,
)

if t.TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

_GPU = "nvidia.com/gpu="
Result = t.Dict[str, t.Any]
OPTIONS: t.Dict[str, t.Dict[str, t.Any]] = {
    "name": {"type": "str", "required": True},
    "state": {
        "type": "str",
        "choices": ["read", "recorded", "planned", "current", "kept", "pruned", "adopted", "absent"],
        "default": "read",
    },
    "generation": {"type": "str"},
    "record": {
        "type": "dict",
        "options": {
            "url": {"type": "str", "required": True},
            "model": {"type": "str", "default": ""},
            "api_key": {"type": "str", "default": "", "no_log": True},
            "readiness": {"type": "dict", "default": {}},
            "files": {"type": "dict", "default": {}, "no_log": True},
            "supervision": {"type": "dict", "default": {}, "no_log": True},
        },
    },
    "former": {"type": "str"},
    "url": {"type": "str"},
    "version": {"type": "str", "default": ""},
    "keep": {"type": "list", "elements": "str", "default": []},
    "restarted": {"type": "bool", "default": False},
    "start_seconds": {"type": "float"},
    "stop_timeout": {"type": "int", "default": 30},
}


class Generations:
    """The generations of the container called `name`."""

    def __init__(
        self,
        client: t.Optional[DockerClient],
        runtime: container_runtime.Runtime,
        name: str,
        *,
        check: bool,
        records: str,
    ) -> None:
        self._client, self._runtime = client, runtime
        self._name, self._check, self._records = name, check, Path(records)
        self._folder = self._records / name
        containers = client.containers.list(all=True, filters={"name": name}) if client is not None else []
        every = {"label": container_spec.GENERATION_LABEL}
        labelled = client.containers.list(all=True, filters=every) if client is not None else []
        self._names = sorted({_base_name(container) for container in labelled})
        self._others = [other for other in labelled if other.name == _base_name(other) != name]
        self._containers: t.Dict[str, Container] = {
            container.name: container
            for container in containers
            if container.name == name or container.name.startswith(name + ".")
        }

    def read(self, generation: t.Optional[str] = None) -> Result:
        """Return what is there, and what else runs in the place of a generation."""
        generations: Result = {}
        for container in self._containers.values():
            name = _generation(container)
            if not name:
                continue
            record = self._record(name)
            generations[name] = {
                "worked_at": record.get("worked_at", 0),
                "rank": int(container.labels[container_spec.RANK_LABEL]),
                "ranks": int(container.labels[container_spec.RANKS_LABEL]),
                "container": container.name,
                "url": record.get("url", ""),
                "start_seconds": record.get("start_seconds", 0),
                "versions": record.get("versions", {}),
            }
        return {
            "changed": False,
            "current": self._current(),
            "generations": generations,
            "names": self._names,
            "beside": self.beside(generation) if generation else [],
        }

    def beside(self, generation: str) -> t.List[str]:
        """Return what else runs in the place of a generation."""
        wanted = [one for one in self._containers.values() if _generation(one) == generation]
        place = self._place(wanted[0], self._name) if wanted else set()
        return [
            str(other.name)
            for other in self._others
            if other.attrs["State"]["Running"] and _share(place, self._place(other, str(other.name)))
        ]

    def adopt(self, former: "Generations", url: str) -> Result:
        """Take over what served under a former name; the current one, by which it is known, comes last."""
        generations = {_generation(container) for container in self._containers.values()}
        before = [self._record(generation) for generation in generations - {self._current()["generation"]}]
        # An interrupted run has adopted some.
        served = [one for one in before if one.get("worked_at") and one.get("former") != former._name]
        if served or former._record(former._current()["generation"]).get("url") != url:
            return {"changed": False}
        for name in sorted(former._containers, reverse=True):
            container = former._containers[name]
            generation = _generation(container)
            record = former._record(generation)
            if not record.get("worked_at") or generation in generations:
                continue
            if not self._check:
                is_current = name == former._name and self._name not in self._containers
                self._write(self._path(generation), json.dumps({**record, "former": former._name}))
                container.rename(self._name if is_current else "{}.{}".format(self._name, generation))
                former._path(generation).unlink()
        return {"changed": True}

    def record(self, generation: str, record: Result, version: str = "") -> Result:
        """Write the record of a generation; files that another generation uses stay as they are."""
        old = self._record(generation)
        new = {**{key: old[key] for key in ("start_seconds", "versions") if key in old}, **record}
        if version and not self._is_planned(generation, version):
            new["versions"] = _with_times(old, version, planned_at=time.time(), returned=False)
        # What took over once waits again, now that the inventory's generation serves.
        waits = "standby" in (record.get("supervision") or {})
        new["worked_at"] = 0 if waits else old.get("worked_at", 0)
        changed = new != old
        if changed:
            self._write(self._path(generation), json.dumps(new))
        for path, text in record["files"].items():
            if not os.path.isfile(path):
                changed = True
                self._write(Path(path), text)
        return {"changed": changed}

    def plan_return(self, generation: str, version: str) -> Result:
        """Record that a rollback returns to a version, before it changes anything."""
        record = self._record(generation)
        versions = _with_times(record, version, planned_at=time.time(), returned=True)
        self._write(self._path(generation), json.dumps({**record, "versions": versions}))
        return {"changed": True}

    def make_current(self, generation: str) -> Result:
        """Give the name to the container of a generation."""
        current = self._containers.get(self._name)
        changed = current is None or _generation(current) != generation
        if changed and not self._check:
            container = self._containers["{}.{}".format(self._name, generation)]
            if current is not None:
                self._set_aside(current)
            container.rename(self._name)
        for path, text in self._record(generation).get("files", {}).items():
            if not os.path.isfile(path) or Path(path).read_text(encoding="utf-8") != text:
                changed = True
                self._write(Path(path), text)
        return {"changed": changed}

    def keep(
        self,
        generation: str,
        keep: t.List[str],
        restarted: bool,
        start_seconds: t.Optional[float] = None,
        version: str = "",
    ) -> Result:
        """Record that a generation served, let it restart by itself, and remove what is not kept."""
        record = self._record(generation)
        served = restarted or not record.get("worked_at")
        changed = served or bool(version and not _served_last(record, version))
        if changed:
            now = time.time()
            if served:
                record["worked_at"] = now
            if version:
                record["versions"] = _with_times(record, version, served_at=now)
            if start_seconds is not None:
                record["start_seconds"] = start_seconds
            self._write(self._path(generation), json.dumps(record))
        container = self._containers.get(self._name)
        if container is not None:
            changed = container_runtime.keep_running(self._runtime, container, self._check) or changed
        return {"changed": self.prune(keep)["changed"] or changed}

    def prune(self, keep: t.List[str]) -> Result:
        """Remove all generations that are neither current nor kept, with their records and images."""
        changed = False
        current = self._current()["generation"]
        for container in self._containers.values():
            if container.name != self._name and _generation(container) not in keep:
                changed = True
                self._remove(container, 0)
                self._remove_image(container.attrs["Image"])
        gone = {path for path in self._folder.glob("*.json") if path.stem not in (*keep, current)}
        return {"changed": self._forget(gone) or changed}

    def remove(self, stop_timeout: int) -> Result:
        """Remove containers, records and files of all generations."""
        for container in self._containers.values():
            self._remove(container, stop_timeout)
        changed = self._forget(set(self._folder.glob("*.json"))) or bool(self._containers)
        if self._folder.is_dir() and not self._check:
            self._folder.rmdir()
        return {"changed": changed}

    def _forget(self, records: t.Set[Path]) -> bool:
        """Remove records, and their files that no other record names.

        What served under a former name is mounted with the files of that name.
        """
        names = {self._name, *self._names}
        others = {path for name in names for path in (self._records / name).glob("*.json")} - records
        present = [path for path in [*(_files(records) - _files(others)), *records] if path.exists()]
        for path in present if not self._check else ():
            path.unlink()
        return bool(present)

    def _place(self, container: Container, name: str) -> t.Set[str]:
        """The GPUs of a container and its address."""
        spec = json.loads(container.labels.get(container_spec.SPEC_JSON_LABEL, "{}"))
        devices = [*spec.get("devices", []), *container_spec.cdi_devices(spec.get("gpus") or "")]
        record = generation_records.path(name, _generation(container), self._records)
        url = generation_records.read(record).get("url")
        return {device for device in devices if device.startswith(_GPU)} | ({url} if url else set())

    def _is_planned(self, generation: str, version: str) -> bool:
        """Whether the version is the one that was planned last, and its generation has the name."""
        versions = self._record(generation).get("versions", {})
        last = max(versions, key=lambda name: versions[name].get("planned_at", 0), default="")
        is_current = self._current()["generation"] == generation
        return version == last and is_current and not versions[last].get("returned")

    def _current(self) -> Result:
        container = self._containers.get(self._name)
        if container is None:
            return {"generation": "", "running": False, "rank": 0}
        return {
            "generation": _generation(container),
            # Between two tries of a restart policy a container counts as running, too.
            "running": container.attrs["State"]["Running"] and not container.attrs["State"]["Restarting"],
            "rank": int(container.labels.get(container_spec.RANK_LABEL, 0)),
        }

    def _set_aside(self, container: Container) -> None:
        generation = _generation(container)
        if not generation:
            container.remove(v=True, force=True)
            return
        aside = "{}.{}".format(self._name, generation)
        if aside in self._containers:
            self._containers[aside].remove(v=True, force=True)
        container.rename(aside)

    def _remove(self, container: Container, stop_timeout: int) -> None:
        if not self._check:
            container_runtime.remove(self._runtime, container, stop_timeout)

    def _remove_image(self, image_id: str) -> None:
        """Remove an image that no container and no second name uses."""
        if self._check or self._client is None:
            return
        try:
            names = self._client.images.get(image_id).tags
            if len(names) < 2:  # Docker refuses otherwise, and Podman reports a fault of its own
                self._client.images.remove(image_id)
        except APIError as error:  # 404: it is gone; 409: a container uses it
            if error.status_code not in (404, 409):
                raise

    def _path(self, generation: str) -> Path:
        return generation_records.path(self._name, generation, self._records)

    def _record(self, generation: str) -> Result:
        return generation_records.read(self._path(generation))

    def _write(self, path: Path, text: str) -> None:
        if self._check:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=str(path.parent), prefix=".", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.is_dir():  # Docker makes a folder where a file that it is to mount is missing
            path.rmdir()
        os.replace(file.name, str(path))  # the temporary file has mode 0600


def _share(one: t.Set[str], other: t.Set[str]) -> bool:
    """Whether two places have something in common."""
    gpus = [{part for part in place if part.startswith(_GPU)} for place in (one, other)]
    return bool(one & other) or (all(gpus) and _GPU + "all" in one | other)


def _files(records: t.Iterable[Path]) -> t.Set[Path]:
    """The files that records name."""
    return {Path(file) for path in records for file in generation_records.read(path).get("files", {})}


def _generation(container: Container) -> str:
    return str(container.labels.get(container_spec.GENERATION_LABEL, ""))


def _with_times(record: Result, version: str, **times: t.Any) -> Result:
    """The versions of a record, with these times of one of them."""
    versions = record.get("versions", {})
    return {**versions, version: {**versions.get(version, {}), **times}}


def _served_last(record: Result, version: str) -> bool:
    """Whether the generation has served in a version since any version was planned or served."""
    versions = record.get("versions", {})
    times = [dates.get(key, 0) for dates in versions.values() for key in ("planned_at", "served_at")]
    return bool(times) and versions.get(version, {}).get("served_at", 0) == max(times)


def _base_name(container: Container) -> str:
    """The name without the generation: containers that do not serve are called NAME.GENERATION."""
    end = "." + _generation(container)
    name = str(container.name)
    return name[: -len(end)] if name.endswith(end) else name


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec=OPTIONS,
        required_if=[
            ("state", "recorded", ("generation", "record")),
            ("state", "planned", ("generation", "version")),
            ("state", "current", ("generation",)),
            ("state", "kept", ("generation", "keep")),
            ("state", "pruned", ("keep",)),
            ("state", "adopted", ("former", "url")),
        ],
        supports_check_mode=True,
    )
    params = module.params
    client = connect(module)
    try:
        runtime = container_runtime.of_engine(module, client)
        of_name = functools.partial(
            Generations, client, runtime, check=module.check_mode, records=generation_records.FOLDER
        )
        module.exit_json(**_apply(of_name, params))
    except DockerException as error:
        module.fail_json(msg="Container {}: {}".format(params["name"], error))


def _apply(of_name: t.Callable[[str], Generations], params: Result) -> Result:
    generations, generation = of_name(params["name"]), params["generation"]
    keep, version = params["keep"], params["version"]
    restarted, start_seconds = params["restarted"], params["start_seconds"]
    by_state: t.Dict[str, t.Callable[[], Result]] = {
        "read": lambda: generations.read(generation),
        "recorded": lambda: generations.record(generation, params["record"], version),
        "planned": lambda: generations.plan_return(generation, version),
        "current": lambda: generations.make_current(generation),
        "kept": lambda: generations.keep(generation, keep, restarted, start_seconds, version),
        "pruned": lambda: generations.prune(keep),
        "adopted": lambda: generations.adopt(of_name(params["former"]), params["url"]),
        "absent": lambda: generations.remove(params["stop_timeout"]),
    }
    return by_state[params["state"]]()


if __name__ == "__main__":
    main()
