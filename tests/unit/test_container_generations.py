"""Generations of a container on one node: names, records and files, after a stop at any step."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.headfirst.serving.plugins.module_utils import container_spec
from ansible_collections.headfirst.serving.plugins.module_utils.container_runtime import Docker
from ansible_collections.headfirst.serving.plugins.modules import container_generations
from ansible_collections.headfirst.serving.plugins.modules.container_generations import Generations
from docker.errors import APIError

NAME = "headfirst-engine"
STANDBY = Path(__file__).parents[2] / "roles" / "engine" / "tasks" / "standby.yml"
DEFAULTS = {name: option.get("default") for name, option in container_generations.OPTIONS.items()}


class StandInContainer:
    """What the module uses of docker's Container."""

    def __init__(self, docker: StandInDocker, name: str, generation: str, **spec_of: Any) -> None:
        self.docker, self.name = docker, name
        own = {"headfirst.generation": generation, "headfirst.rank": "0", "headfirst.ranks": "1"}
        spec = json.dumps({"restart_policy": "unless-stopped", **spec_of})
        self.labels = {**own, container_spec.SPEC_JSON_LABEL: spec} if generation else {}
        self.policy = "no"
        self.image = f"sha256:{generation}"

    @property
    def attrs(self) -> dict[str, Any]:
        return {
            "Image": self.image,
            "State": {"Running": True, "Restarting": False},
            "HostConfig": {"RestartPolicy": {"Name": self.policy}},
        }

    def rename(self, name: str) -> None:
        assert name not in [one.name for one in self.docker.found], "Docker refuses a name that is taken"
        self.docker.step()
        self.name = name

    def remove(self, **_: Any) -> None:
        self.docker.step()
        self.docker.found.remove(self)

    def stop(self, **_: Any) -> None:
        pass

    def update(self, restart_policy: dict[str, str]) -> None:
        self.docker.step()
        self.policy = restart_policy["Name"]


def refusal(status: int) -> APIError:
    response = requests.Response()
    response.status_code = status
    return APIError("Docker refuses", response=response)


class StandInImages:
    """A client's images: Docker refuses to remove one that a container uses."""

    def __init__(self, docker: StandInDocker) -> None:
        self.docker = docker
        self.found = {str(one.attrs["Image"]): ["engine:1"] for one in docker.found}

    def get(self, image: str) -> SimpleNamespace:
        if image not in self.found:
            raise refusal(404)
        return SimpleNamespace(tags=self.found[image])

    def remove(self, image: str) -> None:
        assert len(self.found[image]) < 2, "Podman answers 500"
        if image in [one.attrs["Image"] for one in self.docker.found]:
            raise refusal(409)
        del self.found[image]


class StandInDocker:
    """A client whose calls end the run after `steps`, as a kill does."""

    def __init__(self, **containers: str) -> None:
        self.found = [StandInContainer(self, name, generation) for name, generation in containers.items()]
        self.containers = self
        self.images = StandInImages(self)
        self.steps = 1000

    def list(self, **_: Any) -> list[StandInContainer]:
        return list(self.found)

    def step(self) -> None:
        if not self.steps:
            raise KeyboardInterrupt
        self.steps -= 1


def generations(docker: StandInDocker, folder: Path, name: str = NAME) -> Generations:
    return Generations(docker, Docker(docker), name, check=False, records=str(folder))


def record(folder: Path, text: str) -> dict[str, Any]:
    files = {str(folder / "engine.yaml"): text}
    return {"url": "http://h", "model": "m", "api_key": text, "files": files}


def two(folder: Path) -> StandInDocker:
    """The old generation is current and has served; the new one is created."""
    docker = StandInDocker(**{NAME: "old", f"{NAME}.new": "new"})
    generations(docker, folder).record("old", record(folder, "key: old"))
    generations(docker, folder).keep("old", ["old", "new"], restarted=True)
    generations(docker, folder).record("new", record(folder, "key: new"))
    return docker


def test_the_configuration_of_what_serves_stays_until_the_switch(tmp_path: Path) -> None:
    docker = two(tmp_path)
    assert (tmp_path / "engine.yaml").read_text() == "key: old"
    generations(docker, tmp_path).make_current("new")
    assert (tmp_path / "engine.yaml").read_text() == "key: new"
    assert (tmp_path / "engine.yaml").stat().st_mode & 0o777 == 0o600
    generations(docker, tmp_path).make_current("old")
    assert (tmp_path / "engine.yaml").read_text() == "key: old"
    assert {one.name for one in docker.found} == {NAME, f"{NAME}.new"}


@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("then", ["new", "old"])
def test_a_switch_that_was_killed_goes_on_or_back(tmp_path: Path, steps: int, then: str) -> None:
    docker = two(tmp_path)
    docker.steps = steps
    with pytest.raises(KeyboardInterrupt):
        generations(docker, tmp_path).make_current("new")
    docker.steps = 1000
    found = generations(docker, tmp_path).read()
    assert found["generations"]["old"]["worked_at"] > 0
    assert found["generations"]["new"]["worked_at"] == 0
    generations(docker, tmp_path).make_current(then)
    assert generations(docker, tmp_path).read()["current"]["generation"] == then
    assert (tmp_path / "engine.yaml").read_text() == f"key: {then}"


def test_a_container_without_a_generation_is_replaced(tmp_path: Path) -> None:
    docker = StandInDocker(**{NAME: "", f"{NAME}.new": "new", f"{NAME}-1": "another replica's"})
    generations(docker, tmp_path).record("new", record(tmp_path, "key: new"))
    assert set(generations(docker, tmp_path).read()["generations"]) == {"new"}
    generations(docker, tmp_path).make_current("new")
    assert [one.name for one in docker.found] == [NAME, f"{NAME}-1"]
    (tmp_path / NAME / "new.json").write_text('{"url": ')  # cut short by power loss
    assert generations(docker, tmp_path).read()["generations"]["new"]["worked_at"] == 0


def test_the_restart_policy_comes_when_it_has_served(tmp_path: Path) -> None:
    docker = two(tmp_path)
    generations(docker, tmp_path).make_current("new")
    new = next(one for one in docker.found if one.name == NAME)
    assert new.policy == "no"
    assert generations(docker, tmp_path).keep("new", ["new", "old"], restarted=True)["changed"]
    assert new.policy == "unless-stopped"
    assert not generations(docker, tmp_path).keep("new", ["new", "old"], restarted=False)["changed"]
    generations(docker, tmp_path).keep("new", ["new"], restarted=False)
    assert [one.name for one in docker.found] == [NAME]
    assert [path.stem for path in (tmp_path / NAME).iterdir()] == ["new"]


@pytest.mark.parametrize(
    ("use", "stays"), [("", False), ("a container", True), ("a second name", True), ("it is gone", False)]
)
def test_the_image_of_a_removed_generation_goes_unless_it_has_another_use(
    tmp_path: Path, use: str, stays: bool
) -> None:
    docker = two(tmp_path)
    if use == "a container":
        docker.found.append(StandInContainer(docker, "someone-elses", "old"))
    if use == "a second name":
        docker.images.found["sha256:old"].append("kept:1")
    generations(docker, tmp_path).make_current("new")
    generations(docker, tmp_path).keep("new", ["new", "old"], restarted=True)
    assert set(docker.images.found) == {"sha256:old", "sha256:new"}
    if use == "it is gone":
        del docker.images.found["sha256:old"]
    assert generations(docker, tmp_path).prune(["new"])["changed"]
    assert set(docker.images.found) == ({"sha256:old", "sha256:new"} if stays else {"sha256:new"})


NEW_NAME = f"{NAME}-chat"


def renamed(folder: Path) -> StandInDocker:
    """As `two`; the service has got another name, under which it serves in place of the old one."""
    docker = two(folder)
    docker.found.append(StandInContainer(docker, NEW_NAME, "named"))
    generations(docker, folder, NEW_NAME).record("named", record(folder, "key: named"))
    generations(docker, folder, NEW_NAME).keep("named", ["named"], restarted=True)
    return docker


@pytest.mark.parametrize("steps", range(3))
def test_a_service_with_another_name_keeps_what_served(tmp_path: Path, steps: int) -> None:
    docker = renamed(tmp_path)
    docker.found.append(StandInContainer(docker, f"{NAME}.older", "older"))
    (tmp_path / NAME / "older.json").write_text(json.dumps({"worked_at": 1, "url": "http://h"}))
    before = generations(docker, tmp_path).read()["generations"]["old"]["worked_at"]
    docker.steps = steps
    while True:
        named, former = generations(docker, tmp_path, NEW_NAME), generations(docker, tmp_path)
        try:
            assert not named.adopt(former, "http://elsewhere")["changed"]
            named.adopt(former, "http://h")
            break
        except KeyboardInterrupt:
            docker.steps = 1000
    docker.steps = 1000
    found = generations(docker, tmp_path, NEW_NAME).read()
    assert found["current"]["generation"] == "named"
    assert {name: entry["worked_at"] > 0 for name, entry in found["generations"].items()} == {
        "named": True,
        "old": True,
        "older": True,
    }
    assert found["generations"]["old"]["worked_at"] == before
    generations(docker, tmp_path).remove(0)  # what never served
    generations(docker, tmp_path, NEW_NAME).make_current("old")
    assert {one.name for one in docker.found} == {
        *(NEW_NAME, f"{NEW_NAME}.named", f"{NEW_NAME}.older"),
    }
    assert (tmp_path / "engine.yaml").read_text() == "key: old"


def test_a_removed_name_leaves_the_files_that_another_name_mounts(tmp_path: Path) -> None:
    docker = renamed(tmp_path)
    generations(docker, tmp_path, NEW_NAME).remove(0)
    assert (tmp_path / "engine.yaml").read_text() == "key: old"
    generations(docker, tmp_path).remove(0)
    assert not list(tmp_path.iterdir())


def test_the_files_of_a_pruned_generation_go_with_it(tmp_path: Path) -> None:
    """A generation that was adopted has files of the former name."""
    docker = two(tmp_path)
    former = str(tmp_path / "former.yaml")
    files = {**record(tmp_path, "key: new")["files"], former: "key: new"}
    generations(docker, tmp_path).record("new", {**record(tmp_path, "key: new"), "files": files})
    generations(docker, tmp_path).prune([])
    assert {path.name for path in tmp_path.iterdir()} == {NAME, "engine.yaml"}


def test_a_folder_that_docker_made_in_place_of_a_file_is_replaced(tmp_path: Path) -> None:
    docker = two(tmp_path)
    file = tmp_path / "engine.yaml"
    for write in (
        lambda: generations(docker, tmp_path).record("new", record(tmp_path, "key: new")),
        lambda: generations(docker, tmp_path).make_current("new"),
    ):
        file.unlink()
        file.mkdir()
        assert write()["changed"]
        assert file.read_text() == "key: new"


def test_a_container_that_runs_keeps_running_under_another_name(tmp_path: Path) -> None:
    docker = two(tmp_path)
    generations(docker, tmp_path, NEW_NAME).adopt(generations(docker, tmp_path), "http://h")
    assert generations(docker, tmp_path, NEW_NAME).read()["current"]["generation"] == "old"
    assert {one.name for one in docker.found} == {NEW_NAME, f"{NAME}.new"}


def test_a_service_that_has_served_adopts_nothing(tmp_path: Path) -> None:
    docker = renamed(tmp_path)
    docker.found.append(StandInContainer(docker, f"{NEW_NAME}.earlier", "earlier"))
    generations(docker, tmp_path, NEW_NAME).record("earlier", record(tmp_path, "key"))
    (tmp_path / NEW_NAME / "earlier.json").write_text('{"worked_at": 1}')
    named = generations(docker, tmp_path, NEW_NAME)
    assert not named.adopt(generations(docker, tmp_path), "http://h")["changed"]


@pytest.mark.parametrize(
    ("wanted", "other", "url", "share"),
    [
        ({"gpus": "device=0,1"}, {"gpus": "device=1,2"}, "http://other", True),
        ({"gpus": "device=0,1"}, {"gpus": "device=2,3"}, "http://other", False),
        ({"gpus": "device=0"}, {"gpus": "all"}, "http://other", True),
        ({"devices": ["nvidia.com/gpu=0"]}, {"devices": ["nvidia.com/gpu=all"]}, "http://other", True),
        ({"devices": ["/dev/infiniband"]}, {"devices": ["/dev/infiniband"]}, "http://other", False),
        ({}, {"gpus": "all"}, "http://other", False),
        ({}, {}, "http://h", True),
    ],
)
def test_what_has_a_gpu_or_the_address_of_a_generation_is_in_its_place(
    tmp_path: Path, wanted: dict[str, Any], other: dict[str, Any], url: str, share: bool
) -> None:
    docker = two(tmp_path)
    docker.found[1] = StandInContainer(docker, f"{NAME}.new", "new", **wanted)
    docker.found.append(StandInContainer(docker, NEW_NAME, "named", **other))
    docker.found.append(StandInContainer(docker, f"{NEW_NAME}.aside", "aside", gpus="all"))
    named = {**record(tmp_path, "key"), "url": url}
    generations(docker, tmp_path, NEW_NAME).record("named", named)
    assert generations(docker, tmp_path).beside("new") == ([NEW_NAME] if share else [])


def test_nothing_is_left_at_the_end(tmp_path: Path) -> None:
    docker = two(tmp_path)
    assert generations(docker, tmp_path).remove(1)["changed"]
    assert docker.found == []
    assert list(tmp_path.iterdir()) == []
    assert not generations(docker, tmp_path).remove(1)["changed"]


def versions_of(docker: StandInDocker, folder: Path, generation: str) -> dict[str, list[str]]:
    found = generations(docker, folder).read()["generations"][generation]["versions"]
    return {version: sorted(times) for version, times in found.items()}


def test_a_generation_has_the_versions_that_it_served_in(tmp_path: Path) -> None:
    docker = two(tmp_path)
    old = record(tmp_path, "key: old")
    assert generations(docker, tmp_path).record("old", old, "v1")["changed"]
    assert versions_of(docker, tmp_path, "old") == {"v1": ["planned_at", "returned"]}
    generations(docker, tmp_path).keep("old", ["old", "new"], restarted=False, version="v1")
    # Another replica changed; this one did not.
    generations(docker, tmp_path).record("old", old, "v2")
    assert generations(docker, tmp_path).keep("old", ["old", "new"], restarted=False, version="v2")["changed"]
    served = ["planned_at", "returned", "served_at"]
    assert versions_of(docker, tmp_path, "old") == {"v1": served, "v2": served}
    assert not generations(docker, tmp_path).record("old", old, "v2")["changed"]
    assert not generations(docker, tmp_path).keep("old", ["old", "new"], restarted=False, version="v2")[
        "changed"
    ]
    before = generations(docker, tmp_path).read()["generations"]["old"]["versions"]
    assert generations(docker, tmp_path).record("old", old, "v1")["changed"]  # planned again
    after = generations(docker, tmp_path).read()["generations"]["old"]["versions"]
    assert after["v1"]["planned_at"] > before["v2"]["planned_at"]
    assert after["v1"]["served_at"] == before["v1"]["served_at"]
    assert generations(docker, tmp_path).keep("old", ["old", "new"], restarted=False, version="v1")["changed"]
    again = generations(docker, tmp_path).read()["generations"]["old"]["versions"]
    assert again["v1"]["served_at"] > after["v1"]["planned_at"]


def test_a_rollback_notes_its_version_before_it_changes_anything(tmp_path: Path) -> None:
    docker = two(tmp_path)
    generations(docker, tmp_path).plan_return("old", "v1")
    found = generations(docker, tmp_path).read()["generations"]["old"]
    assert found["versions"]["v1"]["returned"]
    assert found["worked_at"]
    assert generations(docker, tmp_path).record("old", record(tmp_path, "key: old"), "v1")["changed"]
    assert not generations(docker, tmp_path).read()["generations"]["old"]["versions"]["v1"]["returned"]


def test_pruned_leaves_the_current_one_and_those_to_keep(tmp_path: Path) -> None:
    docker = two(tmp_path)
    (tmp_path / NAME / "gone.json").write_text("{}")  # the record of a container that is gone
    assert generations(docker, tmp_path).prune(["new"])["changed"]
    assert {path.stem for path in (tmp_path / NAME).iterdir()} == {"old", "new"}
    assert generations(docker, tmp_path).prune([])["changed"]
    assert [one.name for one in docker.found] == [NAME]
    assert not generations(docker, tmp_path).prune([])["changed"]


def prepare_spare(docker: StandInDocker, folder: Path, *waiting: str) -> None:
    """The tasks of role engine on a spare for which these generations wait, all with the image `spares`."""
    planned = [
        {"generation": one, "rank": 0, "ranks": 1, "record": record(folder, one), "container": {}}
        for one in waiting
    ]
    loader = DataLoader()
    known: dict[str, Any] = {}
    for part in ("defaults", "vars"):
        path = STANDBY.parents[1] / part / "main.yml"
        known |= loader.load_from_file(str(path), trusted_as_template=True)
    known |= {"engine_name": NAME, "engine_is_spare": True, "engine_standbys": planned}
    for task in loader.load_from_file(str(STANDBY), trusted_as_template=True):
        if "ansible.builtin.import_tasks" in task:  # of a file, which no generation here has
            continue
        (module,) = [key for key in task if key.startswith("headfirst.serving.")]
        for item in Templar(loader, variables=known).template(task.get("loop", [None])):
            role = Templar(loader, variables={**known, "item": item})
            if not role.evaluate_conditional(task.get("when", True)):
                continue
            asked = {**DEFAULTS, **role.template(task[module])}
            if module.endswith(".container_generations"):
                known[task.get("register", "")] = container_generations._apply(
                    partial(generations, docker, folder), asked
                )
            elif asked["state"] == "absent":
                docker.found = [one for one in docker.found if one.name != asked["name"]]
            else:
                assert "spares" in docker.images.found, "the module fails without the image"
                docker.found.append(StandInContainer(docker, asked["name"], item["generation"]))
                docker.found[-1].image = "spares"


def test_a_spare_has_the_records_of_what_waits_alone(tmp_path: Path) -> None:
    docker = StandInDocker()
    docker.images.found["spares"] = ["engine:1"]
    for waiting in (["standby-a", "standby-b"], ["standby-b"], ["standby-c"]):
        prepare_spare(docker, tmp_path, *waiting)
        assert sorted(path.stem for path in (tmp_path / NAME).iterdir()) == waiting
        assert sorted(one.name for one in docker.found) == [f"{NAME}.{one}" for one in waiting]
    prepare_spare(docker, tmp_path)
    assert docker.found == [] == list((tmp_path / NAME).iterdir())


def test_what_took_over_waits_again_when_it_is_planned_again(tmp_path: Path) -> None:
    """Its record had the time since when it served: no spare took the place of the same host twice."""
    docker = two(tmp_path)
    for supervision, worked_at in (({}, 7.0), ({"standby": {"spare": "10.0.0.9"}}, 0)):
        path = tmp_path / NAME / "new.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "worked_at": 7.0}))
        planned = {**record(tmp_path, "key: new"), "supervision": supervision}
        generations(docker, tmp_path).record("new", planned)
        assert generations(docker, tmp_path).read()["generations"]["new"]["worked_at"] == worked_at
