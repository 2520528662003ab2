"""LoRA adapters in an inventory: names and ids are checked, and the plan lists where each lies."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from clusters import planned
from headfirst.common.errors import InputError
from headfirst.control.cli.app import app
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.role_vars.weights import adapter_vars, hub_tokens
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.model import catalogue
from headfirst.decide.plan.types import Plan
from headfirst.decide.plan.weights.decide import adapters
from pydantic import ValidationError
from typer.testing import CliRunner

INVENTORY = Path(__file__).resolve().parents[2] / "inventories" / "a100x1-70b.ini"


def test_where_each_adapter_comes_from_and_lies() -> None:
    settings = ServiceSettings.model_validate(
        {"model_source": "huggingface", "weights_dir": "/data/", "adapters": "a=org/lora-a b-2=/srv/lora"}
    )
    listed = adapters(settings, served_name="model", where=None)
    assert [(one.name, one.source, one.id, one.directory) for one in listed] == [
        ("a", "huggingface", "org/lora-a", "/data/adapters/a"),
        ("b-2", "path", "/srv/lora", "/data/adapters/b-2"),
    ]


def test_beside_a_folder_an_adapters_hub_is_modelscope() -> None:
    settings = ServiceSettings.model_validate({"model_source": "path", "adapters": "a=org/lora"})
    assert adapters(settings, served_name="model", where=None)[0].source == "modelscope"


@pytest.mark.parametrize(
    "value",
    [
        "a",
        "a=lora",
        "a=../lora/x",
        "a:b=org/lora",
        "../a=org/lora",
        "a=/srv/../etc",
        "a=/etc/lora",
        "a=org/x/y",
    ],
)
def test_a_wrong_name_or_id_is_refused(value: str) -> None:
    with pytest.raises(ValidationError):
        ServiceSettings.model_validate({"adapters": value})


def test_an_adapter_cannot_have_the_models_name() -> None:
    settings = ServiceSettings.model_validate({"adapters": "chat=org/lora"})
    with pytest.raises(InputError, match="has the name of the model"):
        adapters(settings, served_name="chat", where=None)


def test_the_plan_lists_them_and_mounts_their_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    given = ["-e", "adapters=support=acme/support-lora"]
    result = CliRunner().invoke(app, ["plan", str(INVENTORY), "--json", *given])
    assert result.exit_code == 0, result.output
    plan = Plan.model_validate(json.loads(result.stdout))
    service = plan.services[0]
    folder = service.adapters[0].directory
    assert f"{folder}:{folder}:ro" in service.replicas[0].nodes[0].container.volumes
    shown = CliRunner().invoke(app, ["plan", str(INVENTORY), *given])
    assert f"Adapter support: acme/support-lora (modelscope), to {folder}" in shown.output


def test_whoever_fetches_an_adapter_has_the_token_of_its_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "two.ini"
    groups = {"head": "n1 ansible_host=10.0.0.1", "workers": "n2 ansible_host=10.0.0.2"}
    groups |= {"spares": "n3 ansible_host=10.0.0.3", "all:vars": "gpus=8\ngpu=H100-80G\nweights_fetch=all"}
    lines = [f"[{name}]\n{text}" for name, text in groups.items()]
    path.write_text("\n".join([*lines, "model=deepseek-ai/DeepSeek-R1", "adapters=a=org/lora\n"]))
    monkeypatch.setitem(os.environ, "MODELSCOPE_API_TOKEN", "t0ken")
    cluster = load([path])
    checkpoint = catalogue.lookup("deepseek-ai/DeepSeek-R1")
    assert checkpoint is not None
    plan = planned(cluster, checkpoint)
    (service,) = plan.services
    found = adapter_vars(cluster, service, service.adapters[0], Secrets())
    assert {host: own["weights_hub_token"] for host, own in found.items()} == dict.fromkeys(
        ("n1", "n2", "n3"), "t0ken"
    )
    # Beside a model that comes from no hub.
    folder = service.model_copy(update={"weights": service.weights.model_copy(update={"source": "path"})})
    assert hub_tokens(plan.model_copy(update={"services": [folder]})) == ["t0ken"]
