"""The check of keys before an engine's paths: whom it lets pass, and which ranks of a plan have it.

`tests/engines/test_strangers.py` asks the engines themselves.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from clusters import catalogued, read
from headfirst.common.errors import InputError
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.role_vars.engine import engine_vars
from headfirst.decide import engines
from headfirst.decide.containers.spec import with_text
from headfirst.decide.diagnose.subject import values
from headfirst.decide.engines import access, key_check
from headfirst.decide.engines.base import Launch
from headfirst.decide.plan.types import PlannedService
from together import together

TWO_HOSTS = (
    "[head]\nn1 ansible_host=192.0.2.1\n[workers]\nn2 ansible_host=192.0.2.2\n"
    "[all:vars]\ngpus=8\ngpu=H100-80G\nnic=eth0\nhca=none\n"
)
DENSE, EXPERTS = "Qwen/Qwen3-32B", "Qwen/Qwen3-30B-A3B"
USER, ADMIN = "sk-user-of-the-service", "administrator-of-engines"


@together(
    ("path", "whose"),
    [
        *((path, "nobody") for path in ("/health", "/health/", "/health_generate", "/metrics")),
        *((path, "user") for path in ("/v1/models", "/v1/responses/1/cancel", "/tokenize", "/invocations")),
        *((path, "admin") for path in ("/nodes/add", "/distserve/gc", "/scale_elastic_ep", "/pause", "/")),
        *((path, "admin") for path in ("/v1/load_lora_adapter", "/v1/load_lora_adapter/", "/docs", "")),
        # Nothing that only resembles a path is one.
        *((path, "admin") for path in ("//v1/models", "/v1models", "/V1/models", "/healthy", "/metrics/x")),
    ],
)
def test_whose_key_a_path_needs(path: str, whose: str) -> None:
    assert key_check.needed(path) == whose


def basic(text: str) -> bytes:
    return b"Basic " + base64.b64encode(text.encode())


@pytest.mark.parametrize(
    ("header", "holder"),
    [
        (b"", "nobody"),
        (f"Bearer {USER}".encode(), "user"),
        (f"bearer {ADMIN}".encode(), "admin"),
        (f"Bearer {USER} ".encode(), "nobody"),
        (b"Bearer ", "nobody"),
        (b"Bearer None", "nobody"),
        (basic(f"admin:{ADMIN}"), "admin"),
        (basic(ADMIN), "nobody"),
        (b"Basic \xff!", "nobody"),
    ],
)
def test_whose_key_a_header_has(header: bytes, holder: str) -> None:
    assert key_check.holder(header, USER, ADMIN) == holder
    if holder == "admin":
        assert key_check.holder(header, USER, None) == "nobody"


class Application:
    """What the check needs of FastAPI; it keeps what reaches it."""

    root_path = ""
    # SGLang marks a route whose key is the admin key.
    routes = (
        SimpleNamespace(path="/flush_cache", methods={"GET"}, endpoint=SimpleNamespace(_auth_level="admin")),
        SimpleNamespace(path="/docs", methods={"GET"}, endpoint=None),
        SimpleNamespace(path="/metrics"),
    )

    def __init__(self) -> None:
        self.reached: list[dict[str, Any]] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.reached.append(scope)


def ask(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    scope: dict[str, Any],
    root: str = "",
    engine: str = "sglang",
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What a guarded application gets of a request, and what the client gets."""
    file = tmp_path / "engine.yaml"
    file.write_text(yaml.safe_dump(engines.get(engine).config_file(api_key=USER, admin_key=ADMIN)))
    monkeypatch.setenv("HEADFIRST_KEYS", str(file))
    kind = type("FastAPI", (Application,), {"root_path": root})
    key_check.guard(SimpleNamespace(FastAPI=kind))
    application, sent = kind(), list[dict[str, Any]]()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(application({"headers": [], **scope}, None, send))
    return application.reached, sent


def bearer(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"Bearer {key}".encode())]


@pytest.mark.parametrize("engine", ["sglang", "vllm", "lmdeploy"])
def test_what_reaches_an_application(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: str) -> None:
    def passes(path: str, key: str = "", root: str = "", **more: Any) -> list[dict[str, Any]]:
        scope = {"type": "http", "method": "GET", "path": path, "headers": bearer(key), **more}
        return ask(monkeypatch, tmp_path, scope, root, engine)[0]

    assert passes("/health") and passes("/v1/models", USER) and passes("/nodes/add", ADMIN)
    assert passes("/nodes/add", method="OPTIONS") and passes("/", type="lifespan")
    for path, key in (("/v1/models", ""), ("/nodes/add", USER), ("/v1/load_lora_adapter", USER)):
        assert not passes(path, key)
    # Routes are below the root path, which a server may also find in the scope.
    assert passes("/llm/v1/models", USER, "/llm") and passes("/llm/v1/models", USER, root_path="/llm")
    assert not passes("/health/flush_cache", "", "/health") and not passes("/llmx/health", "", "/llm")
    # An engine's own check takes the API key, but for the routes that it marks.
    for path in ("/v1/models", "/docs", "/of-a-newer-version"):
        (scope,) = passes(path, ADMIN)
        assert scope["headers"] == bearer(USER)
    (scope,) = passes("/flush_cache", ADMIN)
    assert scope["headers"] == bearer(ADMIN)
    # The first of two headers counts, as for the engines.
    assert not passes("/v1/models", headers=[*bearer("x"), *bearer(USER)])


def test_what_the_client_gets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for key, status in (("", 401), (USER, 403)):
        scope = {"type": "http", "method": "POST", "path": "/nodes/add", "headers": bearer(key)}
        start, body = ask(monkeypatch, tmp_path, scope)[1]
        assert start["status"] == status and json.loads(body["body"])
    reached, sent = ask(monkeypatch, tmp_path, {"type": "websocket", "path": "/v1/realtime"})
    assert not reached and sent == [{"type": "websocket.close", "code": 1008}]


def test_every_python_of_the_container_has_the_check(tmp_path: Path) -> None:
    """Also children that are spawned, and whatever sets PYTHONPATH before."""
    (tmp_path / "fastapi").mkdir()
    (tmp_path / "fastapi" / "__init__.py").write_text("")
    (tmp_path / "fastapi" / "applications.py").write_text(
        "class FastAPI:\n    async def __call__(self): ...\n"
    )
    (tmp_path / "program.py").write_text(
        "import multiprocessing\n"
        "def name():\n"
        "    from fastapi.applications import FastAPI\n"
        "    print(FastAPI.__call__.__name__, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    name()\n"
        "    child = multiprocessing.get_context('spawn').Process(target=name)\n"
        "    child.start()\n"
        "    child.join()\n"
    )
    keys = tmp_path / "engine.yaml"
    keys.write_text("api-key: k\n")
    launch = Launch([sys.executable, str(tmp_path / "program.py"), str(keys)], {})
    check = tmp_path / "key_check.py"
    check.write_text(access.CHECK)
    behind = access.checked(launch, str(keys), {})
    mounted = [str(check) if word == access.FILE else word for word in behind.command]
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path)}
    whole = with_text(behind.command, behind.files)
    wrapped = [sys.executable, "-B", "-X", "utf8", *whole[1:]]  # by a python3 of the image that adds options
    commands = launch.command, mounted, whole, wrapped
    run = [subprocess.run(command, env=environment, capture_output=True, text=True) for command in commands]
    said = [done.stdout.split() for done in run]
    errors = "".join(done.stderr for done in run)
    assert said == [["__call__"] * 2, *([["checked"] * 2] * 3)], errors
    keys.unlink()  # without its keys nothing serves
    assert subprocess.run(mounted, env=environment, capture_output=True).returncode


def planned(folder: Path, model: str, *settings: str) -> PlannedService:
    return catalogued(read(folder, "\n".join((TWO_HOSTS, f"model={model}", *settings)))).services[0]


@pytest.mark.parametrize(
    ("model", "settings", "ranks"),
    [
        (DENSE, ["engine=sglang"], [0]),
        (DENSE, ["engine=vllm"], [0]),
        (DENSE, ["engine=vllm", "engine_runtime=ray", "engine_image=mine/vllm:1"], [0]),
        (DENSE, ["engine=lmdeploy"], [0]),
        (EXPERTS, ["engine=lmdeploy", "engine_args=--dp 16 --ep 16"], [0, 1]),
    ],
)
def test_each_server_that_others_reach_has_the_check(
    tmp_path: Path, model: str, settings: list[str], ranks: list[int]
) -> None:
    service = planned(tmp_path, model, *settings)
    nodes = service.replicas[0].nodes
    assert [node.rank for node in nodes if access.FILE in node.container.command] == ranks
    scheduled = service.scheduled[0].ranks
    assert [number for number, rank in enumerate(scheduled) if access.CHECK in rank.command] == ranks
    secrets = Secrets()
    config = engine_vars(service, service.replicas[0], nodes[0], secrets)["engine_config"]
    keys = [secrets.engine_api_key, secrets.engine_admin_key]
    assert config == (
        dict(zip(("api-key", "admin-api-key"), keys, strict=True))
        if service.engine == "sglang"
        else {"api-key": keys}
    )
    assert not [key for key in keys if key in service.model_dump_json()]


def test_diagnose_compares_ranks_without_the_check(tmp_path: Path) -> None:
    head, worker = (
        ((node.container.entrypoint,) if node.container.entrypoint else ()) + tuple(node.container.command)
        for node in planned(tmp_path, DENSE, "engine=vllm").replicas[0].nodes
    )
    first, second = values(head), values(worker)
    assert first["command"] == second["command"] and first.keys() - second.keys() == {
        "--host",
        "--port",
        "--config",
    }


@pytest.mark.parametrize(
    ("engine", "variable"), [("sglang", "SGLANG_RUST_SERVER"), ("vllm", "VLLM_USE_RUST_FRONTEND")]
)
def test_servers_without_the_check_are_refused(tmp_path: Path, engine: str, variable: str) -> None:
    with pytest.raises(InputError, match=variable):
        planned(tmp_path, DENSE, f"engine={engine}", f"engine_env={variable}=1")
    assert planned(tmp_path, DENSE, f"engine={engine}", f"engine_env={variable}=0")


def test_no_member_and_no_user_can_make_the_admin_key() -> None:
    secrets = Secrets()
    others = secrets.model_copy(update={"supervisor_secret": "of-another-cluster"})
    # What members have, and what users have, is equal.
    assert (others.weights_token, others.engine_api_key) == (secrets.weights_token, secrets.engine_api_key)
    assert others.engine_admin_key != secrets.engine_admin_key
    assert secrets.engine_admin_key in secrets.values()
    assert secrets.rotated().engine_admin_key != secrets.engine_admin_key
