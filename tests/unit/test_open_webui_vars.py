"""The chat page's environment, as the plan makes it and as role open_webui completes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.settings import ClusterSettings
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.front import webui

ROLE = Path(__file__).resolve().parents[2] / "roles" / "open_webui"
ENGINE = "http://192.0.2.7:30000"
PORT = ClusterSettings().webui_port
OWN = [f"http://{host}:{PORT}" for host in ("192.0.2.7", "localhost", "127.0.0.1")]


def cluster(folder: Path, *settings: str) -> Cluster:
    path = folder / "mine.ini"
    lines = ["[head]", "node1 ansible_host=192.0.2.7 gpus=8", "[all:vars]", "model=a/b", *settings]
    path.write_text("\n".join(lines) + "\n")
    return load([path])


def role_spec(container: dict[str, Any]) -> dict[str, Any]:
    """The container that the role creates, by Ansible."""
    loader = DataLoader()
    own = loader.load_from_file(str(ROLE / "vars" / "main.yml"), trusted_as_template=True)
    given = {"open_webui_container": container, "open_webui_url": "http://192.0.2.7:8080"}
    found: dict[str, Any] = Templar(loader, variables={**own, **given}).template(
        trust_as_template("{{ __open_webui_spec }}")
    )
    return found


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([], OWN),
        (["webui_origins=https://chat.example.org"], [*OWN, "https://chat.example.org"]),
        (["webui_port=80"], ["http://192.0.2.7", "http://localhost", "http://127.0.0.1"]),
    ],
)
def test_only_the_pages_own_addresses_are_allowed(
    tmp_path: Path, settings: list[str], expected: list[str]
) -> None:
    planned = webui.plan(cluster(tmp_path, *settings), [ENGINE], ["key"]).container
    assert planned.environment["CORS_ALLOW_ORIGIN"].split(";") == expected


def test_the_description_of_its_api_is_not_public(tmp_path: Path) -> None:
    # The program serves /docs and /openapi.json without a session, unless ENV is prod.
    assert webui.plan(cluster(tmp_path), [ENGINE], ["key"]).container.environment["ENV"] == "prod"


def test_the_role_creates_what_the_plan_shows(tmp_path: Path) -> None:
    more = ["webui_env='AUDIO_STT_ENGINE=openai'", "webui_data_dir=/data/webui"]
    planned = webui.plan(cluster(tmp_path, *more), [ENGINE], ["key"]).container
    assert planned.environment["AUDIO_STT_ENGINE"] == "openai"
    assert planned.volumes == ["/data/webui:/app/backend/data"]
    assert role_spec(planned.module_spec()) == planned.module_spec()


def test_the_role_alone_is_closed_to_strangers() -> None:
    found = role_spec({"image": "x", "environment": {"PORT": "8080"}})
    assert found["environment"]["ENABLE_SIGNUP"] == "False"
    assert found["environment"]["FORWARDED_ALLOW_IPS"] == "127.0.0.1"
    assert found["environment"]["CORS_ALLOW_ORIGIN"] == "http://192.0.2.7:8080"
    assert found["cap_drop"] == ["ALL"]
    # A header that signs its sender in is off unless it is named.
    assert not [name for name in found["environment"] if "TRUSTED" in name]


@pytest.mark.parametrize(
    ("before", "other"),
    [({}, False), ({"image_id": "sha256:new"}, False), ({"image_id": "sha256:old"}, True)],
)
def test_data_are_backed_up_before_another_image_opens_them(before: dict[str, str], other: bool) -> None:
    loader = DataLoader()
    own = loader.load_from_file(str(ROLE / "vars" / "main.yml"), trusted_as_template=True)
    compared = {"diff": {"before": before, "after": {"image_id": "sha256:new"}}}
    templar = Templar(loader, variables={**own, "__open_webui_compared": compared})
    assert templar.template(trust_as_template("{{ __open_webui_other_image }}")) is other
