"""The Docker Engine, and Podman behind its API: its command line, and the unit that restarts a container."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import yaml
from ansible_collections.headfirst.serving.plugins.module_utils import (
    container_runtime,
    container_spec,
    docker_api,
)
from ansible_collections.headfirst.serving.plugins.modules import container
from clusters import nodes
from docker import APIClient, DockerClient
from docker.errors import APIError
from docker.utils.proxy import ProxyConfig
from headfirst.control.deployment.prepare import prepare
from headfirst.decide.containers.spec import Container, docker_run, gpu_options
from rendering import sample

ROOT = Path(__file__).resolve().parents[2]
PODMAN = {"Components": [{"Name": "Podman Engine"}, {"Name": "Conmon"}]}
UNIT = "headfirst-container@page.service"


class Module:
    """What the runtime uses of AnsibleModule: commands are kept, and enable and disable make the link."""

    def __init__(self, units: Path) -> None:
        self.units, self.ran, self.environ = units, [], {}  # type: ignore[var-annotated]
        self.answer = (0, "", "")

    def run_command(self, argv: list[str], **more: Any) -> tuple[int, str, str]:
        self.ran.append(argv)
        self.environ = more.get("environ_update", {})
        link = self.units / "multi-user.target.wants" / argv[-1]
        if "enable" in argv:
            link.parent.mkdir(exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(self.units / container_runtime.UNIT)
        if "disable" in argv:
            link.unlink()
        return self.answer

    def fail_json(self, msg: str) -> None:
        raise AssertionError(msg)


def test_docker_gives_a_container_no_proxy_of_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    api = APIClient(base_url="unix:///nowhere.sock", version="1.40")
    api._proxy_configs = ProxyConfig.from_dict({"httpProxy": "http://proxy.example:3128"})
    made: dict[str, Any] = {}

    def create(config: dict[str, Any], *_: Any) -> dict[str, str]:
        made.update(config)
        return {"Id": "0123"}

    monkeypatch.setattr(api, "create_container_from_config", create)
    monkeypatch.setattr(api, "inspect_container", lambda name: {"Id": name})
    client = DockerClient.__new__(DockerClient)
    client.api = api
    container_runtime.Docker(client).create("rank", spec(environment={"A": "1"}, ulimits={}), {}, {})
    assert made["Env"] == ["A=1"]


def podman(folder: Path) -> tuple[container_runtime.Podman, Module]:
    module = Module(folder)
    return container_runtime.Podman(module, units=str(folder)), module  # type: ignore[arg-type]


def spec(**changes: Any) -> dict[str, Any]:
    defaults = {name: option.get("default") for name, option in container_spec.SPEC_OPTIONS.items()}
    return {**defaults, "image": "engine:1", "command": ["serve"], **changes}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (PODMAN, True),
        ({"Components": [{"Name": "Engine"}]}, False),
        ({"Components": None}, False),
        ({}, False),
    ],
)
def test_podman_is_known_by_its_components(version: dict[str, Any], expected: bool) -> None:
    assert docker_api.is_podman(version) is expected


def test_a_container_is_restarted_by_a_unit_until_it_is_not(tmp_path: Path) -> None:
    runtime, module = podman(tmp_path)
    page = SimpleNamespace(name="page")
    assert runtime.set_restart_policy(page, "unless-stopped", check=True)
    assert module.ran == [] and not list(tmp_path.iterdir())
    assert runtime.set_restart_policy(page, "unless-stopped", check=False)
    assert module.ran == [["systemctl", "daemon-reload"], ["systemctl", "enable", "--now", UNIT]]
    assert "podman start --attach --sig-proxy=false %i" in (tmp_path / container_runtime.UNIT).read_text()
    assert not runtime.set_restart_policy(page, "unless-stopped", check=False)
    assert runtime.set_restart_policy(page, "no", check=False)
    assert module.ran[-1] == ["systemctl", "disable", "--now", UNIT]
    assert not runtime.set_restart_policy(page, "no", check=False)


def test_a_unit_that_was_stopped_is_started(tmp_path: Path) -> None:
    runtime, module = podman(tmp_path)
    page = SimpleNamespace(name="page")
    runtime.set_restart_policy(page, "always", check=False)
    module.answer = (3, "", "")
    assert runtime.set_restart_policy(page, "always", check=False)
    assert module.ran[-1] == ["systemctl", "enable", "--now", UNIT]


def test_a_unit_of_an_older_release_is_replaced(tmp_path: Path) -> None:
    runtime, module = podman(tmp_path)
    page = SimpleNamespace(name="page")
    runtime.set_restart_policy(page, "always", check=False)
    (tmp_path / container_runtime.UNIT).write_text("older")
    del module.ran[:]
    (tmp_path / "multi-user.target.wants" / UNIT).unlink()
    assert runtime.set_restart_policy(page, "always", check=False)
    assert (tmp_path / container_runtime.UNIT).read_text() == container_runtime.UNIT_TEXT


def test_secrets_are_in_the_environment_of_the_command(tmp_path: Path) -> None:
    runtime, module = podman(tmp_path)
    runtime.create("page", spec(), {"PASSWORD": "correct horse"}, {"a": "b"})
    assert "--env=PASSWORD" in module.ran[0] and module.environ == {"PASSWORD": "correct horse"}
    assert "correct horse" not in " ".join(module.ran[0])


def test_what_podman_refuses_ends_the_module_with_its_words(tmp_path: Path) -> None:
    runtime, module = podman(tmp_path)
    module.answer = (125, "", "Error: the name page is in use\n")
    with pytest.raises(AssertionError, match="Container page: Error: the name page is in use"):
        runtime.create("page", spec(), {}, {})


@pytest.mark.parametrize(
    ("gpus", "devices"),
    [
        ("", []),
        ("all", ["nvidia.com/gpu=all"]),
        ("2", ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]),
        ("device=0,GPU-1", ["nvidia.com/gpu=0", "nvidia.com/gpu=GPU-1"]),
    ],
)
def test_gpus_by_cdi(gpus: str, devices: list[str]) -> None:
    assert container_spec.cdi_devices(gpus) == devices
    line = container_spec.podman_create("c", spec(gpus=gpus), [], {})
    assert [line[at + 1] for at, word in enumerate(line) if word == "--device"] == devices


def test_a_size_of_the_hosts_memory_is_left_out() -> None:
    assert "--shm-size" in container_spec.podman_create("c", spec(shm_size="1g"), [], {})
    assert "--shm-size" not in container_spec.podman_create("c", spec(shm_size="1g", ipc_mode="host"), [], {})
    container = Container(name="c", image="i", shm_size="1g", ipc_mode="host")
    assert "--shm-size" in docker_run(container) and "--shm-size" not in docker_run(container, "podman")


# The module compares and writes env_file and files itself, and sets the policy when a container has served.
OF_MODULE = {"env_file", "files", "restart_policy"}


def created(changes: dict[str, Any]) -> tuple[dict[str, Any], list[str], str]:
    """What the SDK, Podman and the comparison of two specs have of a spec."""
    given: dict[str, Any] = {}
    client: Any = SimpleNamespace(containers=SimpleNamespace(create=lambda **all_: given.update(all_)))
    whole = spec(**changes)
    container_runtime.Docker(client).create("c", whole, {}, whole["labels"])
    podman = container_spec.podman_create("c", whole, ["KEY"], whole["labels"])
    return given, podman, container_spec.fingerprint(container_spec.canonical(whole, "sha256:a", {}))


@pytest.mark.parametrize("field", sorted(container_spec.FIELDS.keys() - OF_MODULE))
def test_no_field_is_dropped_when_a_container_is_made_or_compared(field: str) -> None:
    before, after = created({}), created({field: "all" if field == "gpus" else sample(field)})
    assert [old == new for old, new in zip(before, after, strict=True)] == [False] * 3


def test_the_table_has_the_fields_of_the_plan_and_of_the_documentation() -> None:
    documented = yaml.safe_load(container.DOCUMENTATION)["options"]["spec"]["suboptions"]
    assert container_spec.FIELDS.keys() == documented.keys() == Container.model_fields.keys() - {"name"}


def test_podman_gets_words_that_it_reads() -> None:
    filled = spec(environment={"A": True}, ulimits={"memlock": -1}, gpus="all", volumes=["/a:/b:ro"])
    line = container_spec.podman_create("c", filled, ["KEY"], {"l": "{}"})
    assert line == [
        *["podman", "create", "--pull=never", "--name", "c", "--init", "--network", "bridge"],
        *["--ulimit", "memlock=-1", "--device", "nvidia.com/gpu=all", "--label", "l={}"],
        *["--env", "A=True", "--volume", "/a:/b:ro", "--env=KEY", "engine:1", "serve"],
    ]


def test_a_plan_for_podman() -> None:
    inventory = [ROOT / "inventories" / "a100x4.ini"]
    plan = prepare(inventory, ["container_runtime=podman"], probe=False).plan
    for node in nodes(plan):
        assert node.container.gpus is None and "nvidia.com/gpu=all" in node.container.devices
        assert node.docker_run[0] == "podman"
    docker = prepare(inventory, [], probe=False).plan
    assert "container_runtime" not in docker.model_dump() and docker.container_runtime == "docker"
    assert gpu_options("docker", ["0", "1"]) == {"gpus": "device=0,1"}


def test_a_container_that_is_just_ending_gets_its_policy() -> None:
    """A worker ends when rank 0 does; Docker refuses the change until it has ended."""

    class Ending:
        attrs: ClassVar[dict[str, Any]] = {"HostConfig": {"RestartPolicy": {"Name": "unless-stopped"}}}
        ended = False

        def update(self, restart_policy: dict[str, str]) -> None:
            if not self.ended:
                raise APIError("500", explanation="cannot update a stopped container: unknown")

        def wait(self) -> None:
            self.ended = True

    container = Ending()
    assert container_runtime.Docker(None).set_restart_policy(container, "no", check=False)  # type: ignore[arg-type]
    assert container.ended


def test_files_that_differ_are_written_before_they_are_mounted(tmp_path: Path) -> None:
    module: Any = SimpleNamespace(tmpdir=str(tmp_path), atomic_move=os.replace)
    same, other = tmp_path / "a" / "same.py", tmp_path / "b" / "other.py"
    for file in (same, other):
        file.parent.mkdir()
        file.write_text("text")
        os.utime(file, (0, 0))
    container._write(module, {str(same): "text", str(other): "other", str(tmp_path / "c" / "new.py"): "new"})
    assert same.stat().st_mtime == 0
    assert other.read_text() == "other"
    assert (tmp_path / "c" / "new.py").stat().st_mode & 0o777 == 0o644
