"""LoRA adapters in an inventory: names and ids are checked, and the plan lists where each lies."""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx
import pytest
from clusters import planned
from headfirst.common.errors import InputError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.checkpoints.adapter import rank
from headfirst.control.cli.app import app
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.role_vars.weights import adapter_vars, hub_tokens
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.engines.layout import Layout
from headfirst.decide.engines.lora import adapter_bytes
from headfirst.decide.model import catalogue
from headfirst.decide.plan.types import Plan, PlannedService
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


def adapter(folder: Path, **config: object) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("config", "expected"),
    [({"r": 8}, 8), ({"r": 8, "rank_pattern": {"q_proj": 64}}, 64), ({"r": 4, "rank_pattern": None}, 4)],
)
def test_the_rank_is_the_largest_of_its_matrices(
    tmp_path: Path, config: dict[str, object], expected: int
) -> None:
    assert rank(str(adapter(tmp_path / "lora", **config)), "path") == expected


@pytest.mark.parametrize("config", [{}, {"r": "8"}, {"r": 0}, {"r": 8, "rank_pattern": {"q": 1 << 40}}])
def test_a_config_without_a_usable_rank_is_refused(tmp_path: Path, config: dict[str, object]) -> None:
    with pytest.raises((InputError, UntrustedError)):
        rank(str(adapter(tmp_path / "lora", **config)), "path")


def test_the_rank_of_a_folder_that_is_elsewhere_is_not_known(tmp_path: Path) -> None:
    assert rank(str(tmp_path / "lora"), "path") is None


def test_a_folder_that_is_no_adapter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"adapter_config\.json is missing"):
        rank(str(tmp_path), "path")


def test_a_hub_that_does_not_answer_leaves_the_rank_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = httpx.MockTransport(refused)
    assert rank("org/lora", "huggingface", environment={}, transport=nowhere) is None
    assert rank("org/lora", "huggingface", environment={"HF_HUB_OFFLINE": "1"}) is None


def refused(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("connection refused")


def test_the_rank_comes_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = []

    def answer(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.path)
        if request.url.path == "/api/models/org/lora/revision/main":
            return httpx.Response(200, json={"sha": "c0ffee" * 6 + "c0ff", "siblings": []})
        assert request.url.path == f"/org/lora/resolve/{'c0ffee' * 6 + 'c0ff'}/adapter_config.json"
        return httpx.Response(200, content=json.dumps({"r": 32}))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    transport = httpx.MockTransport(answer)
    assert rank("org/lora", "huggingface", environment={}, transport=transport) == 32
    assert len(paths) == 2
    assert rank("org/lora", "huggingface", environment={}, transport=transport) == 32
    assert len(paths) == 3
    assert rank("org/lora", "huggingface", environment={"HF_HUB_OFFLINE": "1"}) == 32
    assert rank("org/lora", "huggingface", environment={}, transport=httpx.MockTransport(refused)) == 32


@pytest.mark.parametrize(
    ("ranks", "extra", "expected"),
    [
        ([32], "", "--max-lora-rank 32"),
        ([48], "", "--max-lora-rank 64"),
        ([8, 24], "", "--max-lora-rank 32"),
        ([8], "", "--max-lora-rank 8"),
        ([16], "", "no"),
        ([None], "", "no"),
        ([8, None], "", "no"),
        ([64, None], "", "--max-lora-rank 64"),
        ([32], "--max-lora-rank 64", "no"),
    ],
)
def test_vllm_is_given_the_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: list[int | None], extra: str, expected: str
) -> None:
    service = with_adapters(tmp_path, monkeypatch, ranks, extra)
    chosen = [f"{argument.flag} {argument.value}" for argument in service.chosen_arguments]
    assert [words for words in chosen if "lora" in words] == ([] if expected == "no" else [expected])
    assert any("is not known before the download" in note for note in service.notes) is (None in ranks)


@pytest.mark.parametrize(
    ("ranks", "extra", "what"),
    [([600], "", "vLLM has ranks up to 512"), ([32], "--max-lora-rank 16", "accepts ranks up to 16")],
)
def test_a_rank_that_vllm_refuses_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: list[int | None], extra: str, what: str
) -> None:
    with pytest.raises(InputError, match=what) as error:
        with_adapters(tmp_path, monkeypatch, ranks, extra)
    assert str(error.value.where).endswith("cluster.ini:7")


def with_adapters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: list[int | None], extra: str
) -> PlannedService:
    """The plan of vLLM with an adapter of each rank; None: its folder is not on this machine."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folders = {f"a{at}": tmp_path / f"a{at}" for at in range(len(ranks))}
    for folder, its_rank in zip(folders.values(), ranks, strict=True):
        if its_rank is not None:
            adapter(folder, r=its_rank)
    path = tmp_path / "cluster.ini"
    listed = " ".join(f"{name}={folder}" for name, folder in folders.items())
    path.write_text(
        "[head]\nn1 ansible_host=192.0.2.1 gpus=1 gpu=H100-80G\n\n[all:vars]\nmodel=Qwen/Qwen3-8B\n"
        f'engine=vllm\nadapters="{listed}"\nengine_args="{extra}"\n'
    )
    return prepare([path], [], probe=False).plan.services[0]


def test_the_memory_of_adapters() -> None:
    checkpoint = catalogue.lookup("Qwen/Qwen3-8B")
    assert checkpoint is not None
    hidden, width, layers = 4096, 12288, 36
    # q, k, v (32 and 8 heads of 128), o, gate, up and down: inputs and outputs of each.
    each = 3 * hidden + (4096 + 2 * 1024) + 4096 + hidden + 3 * (hidden + width)
    assert adapter_bytes(checkpoint, Layout(1), rank=16, slots=2) == 2 * 16 * layers * each * 2
    half = 3 * hidden + (4096 + 2 * 1024) // 2 + 4096 // 2 + hidden + 3 * (hidden + width // 2)
    assert adapter_bytes(checkpoint, Layout(2), rank=16, slots=1) == 16 * layers * half * 2
    assert adapter_bytes(checkpoint, Layout(1, 2), rank=16, slots=1) == 16 * layers * each
