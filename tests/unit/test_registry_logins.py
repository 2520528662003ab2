"""Logins of registries: read from what `docker login` writes, given to the pull of their images only."""

from __future__ import annotations

import base64
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.headfirst.serving.plugins.filter.images import registry_login
from ansible_collections.headfirst.serving.plugins.plugin_utils.registry_logins import (
    logins,
    of_image,
    registry,
)
from headfirst.common.errors import InputError
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.artifacts import Artifacts
from run_variables import up_variables

AUTH = base64.b64encode(b"robot:pass:word").decode()
CONFIG = {
    "auths": {
        "registry.example.org:5000": {"auth": AUTH},
        "https://index.docker.io/v1/": {"username": "me", "password": "hub"},
        "ghcr.io": {"auth": base64.b64encode(b"me:").decode(), "identitytoken": "token"},
        "in.the.store": {},
    }
}
ROBOT = {"username": "robot", "password": "pass:word"}
ROLE = Path(__file__).parents[2] / "roles" / "engine_image"


@pytest.mark.parametrize(
    ("image", "login"),
    [
        ("registry.example.org:5000/team/engine:v1", ROBOT),
        ("registry.example.org/team/engine:v1", {}),
        ("lmsysorg/sglang:v0.5.23", {"username": "me", "password": "hub"}),
        ("docker.io/library/haproxy:2.6", {"username": "me", "password": "hub"}),
        ("haproxy:2.6", {"username": "me", "password": "hub"}),
        ("ghcr.io/open-webui/open-webui:v1", {"identitytoken": "token"}),
        ("in.the.store/engine:v1", {}),
        ("localhost/engine:v1", {}),
    ],
)
def test_an_image_gets_the_login_of_its_registry(image: str, login: dict[str, str]) -> None:
    assert of_image(logins(json.dumps(CONFIG)), image) == login


def test_the_registry_of_an_image() -> None:
    assert registry("localhost:5000/a:b") == "localhost:5000"
    assert registry("a/b@sha256:0") == "docker.io"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("secret-that-is-no-json", "as `docker login` writes it"),
        ('["secret"]', "as `docker login` writes it"),
        ('{"auths": {"a.b": {"auth": "secret!"}}}', "as `docker login` writes it"),
        ('{"auths": {"a.b": {"username": "secret"}}}', "as `docker login` writes it"),
        ('{"auths": {}}', "it has no login"),
        ('{"auths": {"a.b": {}}, "credsStore": "pass"}', "DOCKER_CONFIG=FOLDER docker login"),
    ],
)
def test_a_file_without_logins_is_refused_without_its_content(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        logins(text)
    assert "secret" not in str(refused.value)


def written(folder: Path, text: str = json.dumps(CONFIG)) -> Path:
    path = folder / "config.json"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_filter_gives_the_job_one_login(tmp_path: Path) -> None:
    path = str(written(tmp_path))
    given = registry_login(path, "registry.example.org:5000/engine:v1")
    assert {name: json.loads(value) for name, value in given.items()} == {"HEADFIRST_REGISTRY_LOGIN": ROBOT}
    assert registry_login(path, "quay.io/engine:v1") == {}
    assert registry_login("", "registry.example.org:5000/engine:v1") == {}
    with pytest.raises(AnsibleFilterError, match="cannot be read"):
        registry_login(str(tmp_path / "missing"), "a:b")


def job() -> ModuleType:
    spec = importlib.util.spec_from_file_location("image_job", ROLE / "files" / "image_job.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Api:
    """Stands for the Docker API of a host."""

    def __init__(self) -> None:
        self.pulled: list[dict[str, Any]] = []
        self.api = self.images = self

    def pull(self, repository: str, **options: Any) -> list[Any]:
        self.pulled.append({"repository": repository, **options})
        return []

    def get(self, name: str) -> None:
        return None


@pytest.mark.parametrize("login", [None, ROBOT])
def test_the_job_pulls_with_the_login(monkeypatch: pytest.MonkeyPatch, login: dict[str, str] | None) -> None:
    monkeypatch.delenv("HEADFIRST_REGISTRY_LOGIN", raising=False)
    if login:
        monkeypatch.setenv("HEADFIRST_REGISTRY_LOGIN", json.dumps(login))
    host = Api()
    job().pull(host, lambda *_: None, "registry.example.org:5000/engine:v1")
    assert host.pulled == [
        {
            "repository": "registry.example.org:5000/engine",
            "tag": "v1",
            "stream": True,
            "decode": True,
            "auth_config": login,
        }
    ]


@pytest.mark.parametrize(
    ("error", "hinted"),
    [
        ("pull access denied for team/engine, repository does not exist or may require 'docker login'", True),
        ("unauthorized: authentication required", True),
        ("manifest for team/engine:v9 not found", False),
    ],
)
def test_a_refused_pull_names_the_setting(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: str, hinted: bool
) -> None:
    class Refusing(Api):
        def pull(self, repository: str, **options: Any) -> list[Any]:
            return [{"error": error}]

    module = job()
    monkeypatch.setenv("HEADFIRST_PROGRESS_FILE", str(tmp_path / "progress"))
    monkeypatch.setenv("HEADFIRST_RESULT_FILE", str(tmp_path / "result"))
    monkeypatch.setattr(module.docker, "from_env", lambda **_: Refusing())
    monkeypatch.setattr(module.sys, "argv", ["image_job.py", "pull", "registry.example.org/team/engine:v9"])
    assert module.main() == 1
    message = json.loads((tmp_path / "result").read_text())["msg"]
    assert error in message
    assert ("registry_logins" in message) == hinted


INVENTORY = """\
[head]
n1 ansible_host=192.0.2.7 cpu_cores=0-3
[all:vars]
engine_device=cpu
model_source=demo
"""


def variables(folder: Path, line: str) -> dict[str, dict[str, Any]]:
    path = folder / "cluster.ini"
    path.write_text(f"{INVENTORY}{line}\n", encoding="utf-8")
    prepared = prepare([path], [], probe=False)
    files = Artifacts(Path("wheel"))
    return up_variables(prepared.cluster, prepared.plan, Secrets(), files)


def test_hosts_get_the_name_of_the_file_and_nothing_of_it(tmp_path: Path) -> None:
    file = written(tmp_path)
    given = variables(tmp_path, f"registry_logins={file}")
    assert given["n1"]["engine_image_registry_logins"] == str(file)
    assert "pass:word" not in json.dumps(given)
    assert AUTH not in json.dumps(given)
    assert "engine_image_registry_logins" not in variables(tmp_path, "")["n1"]


@pytest.mark.parametrize("name", ["missing.json", "empty.json"])
def test_a_file_that_is_none_ends_the_run_before_it_begins(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(InputError, match="registry_logins") as refused:
        variables(tmp_path, f"registry_logins={tmp_path / name}")
    assert str(refused.value.where).endswith("cluster.ini:6")
