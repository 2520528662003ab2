"""LoRA adapters in an inventory: names and ids are checked, and the plan lists where each lies."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from clusters import catalogued, read
from headfirst.common.errors import InputError, NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.checkpoints.adapter import parse, read_folder, read_hub
from headfirst.control.cli.app import app
from headfirst.control.deployment.hosts import head_folder
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.role_vars.weights import companion_vars, hub_tokens
from headfirst.control.live.ssh_access.ssh import CommandOutput
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.cluster.types import Service
from headfirst.decide.plan.types import Plan, PlannedService
from headfirst.decide.plan.weights.decide import adapters
from pydantic import ValidationError
from run_variables import up_of
from serving import over
from typer.testing import CliRunner

INVENTORY = Path(__file__).resolve().parents[2] / "inventories" / "a100x1-70b.ini"


def test_where_each_adapter_comes_from_and_lies() -> None:
    settings = ServiceSettings.model_validate(
        {
            "model_source": "huggingface",
            "weights_dir": "/data/",
            "adapters": "a=org/lora-a b-2=/srv/lora c=org/lora-c@refs/pr/1 d=/srv/lora@2",
        }
    )
    listed = adapters(Service("m", settings, ()))
    assert [(one.name, one.source, one.id, one.revision, one.directory) for one in listed] == [
        ("a", "huggingface", "org/lora-a", None, "/data/adapters/a"),
        ("b-2", "path", "/srv/lora", None, "/data/adapters/b-2"),
        ("c", "huggingface", "org/lora-c", "refs/pr/1", "/data/adapters/c--refs-pr-1"),
        ("d", "path", "/srv/lora@2", None, "/data/adapters/d"),
    ]


def test_beside_a_folder_an_adapters_hub_is_modelscope() -> None:
    settings = ServiceSettings.model_validate({"model_source": "path", "adapters": "a=org/lora"})
    assert adapters(Service("m", settings, ()))[0].source == "modelscope"


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
        "a=org/lora@",
        "a=org/lora@-v1",
        "a=org/lora@v1@v2",
    ],
)
def test_a_wrong_name_or_id_is_refused(value: str) -> None:
    with pytest.raises(ValidationError):
        ServiceSettings.model_validate({"adapters": value})


@pytest.mark.usefixtures("no_hub")
def test_an_adapter_cannot_have_the_models_name(tmp_path: Path) -> None:
    path = tmp_path / "cluster.ini"
    lines = [*INVENTORY.read_text().splitlines(), "served_model_name=chat", "adapters=chat=org/lora"]
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match="has the name of the model") as error:
        prepare([path], [], probe=False)
    assert error.value.where == f"{path}:{len(lines)}"


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
    groups = {"head": "n1 ansible_host=10.0.0.1", "workers": "n2 ansible_host=10.0.0.2"}
    groups |= {"spares": "n3 ansible_host=10.0.0.3", "all:vars": "gpus=8\ngpu=H100-80G\nweights_fetch=all"}
    lines = [f"[{name}]\n{text}" for name, text in groups.items()]
    monkeypatch.setitem(os.environ, "MODELSCOPE_API_TOKEN", "t0ken")
    cluster = read(tmp_path, "\n".join([*lines, "model=deepseek-ai/DeepSeek-R1", "adapters=a=org/lora\n"]))
    plan = catalogued(cluster)
    (service,) = plan.services
    found = companion_vars(up_of(cluster, plan), service, service.adapters[0])
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
    assert read_folder(adapter(tmp_path / "lora", **config)).largest_rank == expected


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({}, (InputError, UntrustedError)),
        ({"r": "8"}, (InputError, UntrustedError)),
        ({"r": 0}, (InputError, UntrustedError)),
        ({"r": 8, "rank_pattern": {"q": 1 << 40}}, (InputError, UntrustedError)),
        ({"r": 8, "rank_pattern": {"q_proj": -1}}, UntrustedError),
        ({"r": 8, "target_modules": {"q_proj": 1}}, UntrustedError),
        ({"r": 8, "target_modules": ["q_proj\u001b[2J"]}, UntrustedError),
        ({"r": 8, "target_modules": [7]}, UntrustedError),
    ],
)
def test_a_config_of_no_usable_rank_or_of_other_types_is_refused(
    tmp_path: Path, config: dict[str, Any], error: Any
) -> None:
    with pytest.raises(error):
        read_folder(adapter(tmp_path / "lora", **config))
    with pytest.raises(InputError, match=r"adapter_config\.json is missing"):
        read_folder(tmp_path)


def test_a_hub_that_does_not_answer_leaves_the_rank_unknown() -> None:
    with over(httpx.MockTransport(refused)):
        assert read_hub("org/lora", "huggingface", environment={}) is None
    assert read_hub("org/lora", "huggingface", environment={"HF_HUB_OFFLINE": "1"}) is None


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
    config = parse({"r": 32}, "org/lora")
    with over(httpx.MockTransport(answer)):
        assert read_hub("org/lora", "huggingface", environment={}) == config
        assert len(paths) == 2
        assert read_hub("org/lora", "huggingface", environment={}) == config
        assert len(paths) == 3
    assert read_hub("org/lora", "huggingface", environment={"HF_HUB_OFFLINE": "1"}) == config
    with over(httpx.MockTransport(refused)):
        assert read_hub("org/lora", "huggingface", environment={}) == config


def test_the_rank_is_that_of_the_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = "c0ffee" * 6 + "c0ff"

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == f"/org/lora/resolve/{commit}/adapter_config.json"
        return httpx.Response(200, content=json.dumps({"r": 32}))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = parse({"r": 32}, "org/lora")
    pinned = partial(read_hub, "org/lora", "huggingface", revision=commit)
    with over(httpx.MockTransport(answer)):
        assert pinned(environment={}) == config
    assert pinned(environment={"HF_HUB_OFFLINE": "1"}) == config
    assert read_hub("org/lora", "huggingface", environment={"HF_HUB_OFFLINE": "1"}) is None


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
def test_vllm_is_given_the_rank(tmp_path: Path, ranks: list[int | None], extra: str, expected: str) -> None:
    service = with_adapters(tmp_path, ranks, extra)
    chosen = [f"{argument.flag} {argument.value}" for argument in service.chosen_arguments]
    assert [words for words in chosen if "lora" in words] == ([] if expected == "no" else [expected])
    assert any("was not read" in note for note in service.notes) is (None in ranks)


def with_adapters(tmp_path: Path, ranks: list[int | None], extra: str) -> PlannedService:
    """The plan of vLLM with an adapter of each rank; None: its folder is not on this machine."""
    folders = {f"a{at}": tmp_path / f"a{at}" for at in range(len(ranks))}
    for folder, its_rank in zip(folders.values(), ranks, strict=True):
        if its_rank is not None:
            adapter(folder, **LORA | {"r": its_rank})
    return served(tmp_path, folders, f'engine=vllm\nengine_args="{extra}"')


LORA: dict[str, Any] = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"], "peft_type": "LORA"}


def served(
    tmp_path: Path,
    folders: dict[str, Path],
    lines: str,
    *,
    model: str = "Qwen/Qwen3-8B",
    gpus: int = 1,
    probe: bool = False,
) -> PlannedService:
    """The plan of `model` with the adapters in these folders; `lines` of the inventory name the engine."""
    path = tmp_path / "cluster.ini"
    listed = " ".join(f"{name}={folder}" for name, folder in folders.items())
    path.write_text(
        f"[head]\nn1 ansible_host=192.0.2.1 gpus={gpus} gpu=H100-80G\n\n[all:vars]\nmodel={model}\n"
        f'weights_dir=/data\nadapters="{listed}"\n{lines}\nparsers=none\n'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        return prepare([path], [], probe=probe).plan.services[0]


@pytest.mark.parametrize("engine", ["sglang", "vllm", "lmdeploy"])
def test_the_memory_of_adapters_is_in_the_fit(tmp_path: Path, engine: str) -> None:
    small, large = (adapter(tmp_path / f"r{rank}", **LORA | {"r": rank}) for rank in (8, 256))
    fits = [served(tmp_path, {"a": path}, f"engine={engine}").fit for path in (small, large)]
    bytes_of = [fit.terms["adapters"] for fit in fits]
    assert bytes_of[1] == 32 * bytes_of[0] > 0
    lost = (fits[0].kv_pool_bytes or 0) - (fits[1].kv_pool_bytes or 0)
    assert lost == pytest.approx((bytes_of[1] - bytes_of[0]) * (0.8 if engine == "lmdeploy" else 1), rel=0.01)
    assert "adapters" not in fits[0].estimates


def test_adapters_that_leave_no_room_are_refused_as_weights_are(tmp_path: Path) -> None:
    folders = {"a": adapter(tmp_path / "a", **LORA | {"r": 512, "target_modules": "all-linear"})}
    fit = served(tmp_path, folders, "engine=sglang", model="Qwen/Qwen3-32B").fit
    assert fit.fits is False and fit.terms["adapters"] == 73_865_887_744


@pytest.mark.parametrize(
    ("engine", "given", "rank", "advice"),
    [
        ("sglang", "", 768, "--max-loras-per-batch 2"),  # the adapter, and requests without one
        ("sglang", "--page-size 64", 2560, "--page-size 64 --max-loras-per-batch 1"),
        ("vllm", "--max-loras=16 --max-model-len 8192", 512, "--max-model-len 8192 --max-loras 1"),
        ("sglang", "", 8192, ""),  # nothing proposes what does not fit
    ],
)
def test_fewer_slots_for_adapters_are_proposed_where_the_model_then_fits(
    tmp_path: Path, engine: str, given: str, rank: int, advice: str
) -> None:
    folders = {"a": adapter(tmp_path / "a", **LORA | {"r": rank, "target_modules": "all-linear"})}

    def planned(arguments: str) -> PlannedService:
        lines = f'engine={engine}\nengine_args="{arguments}"'
        return served(tmp_path, folders, lines, model="Qwen/Qwen3-32B", gpus=2)

    before = planned(given)
    assert before.fit.fits is False
    sentences = [line for line in before.alternatives if "requests of at most" in line]
    assert len(sentences) == bool(advice)
    for sentence in sentences:
        assert sentence.startswith(f'engine_args="{advice}" fits, with ')
        fit = planned(advice).fit
        assert fit.fits and f"{fit.kv_tokens_of_replica:,} tokens" in sentence


def test_lmdeploy_keeps_each_adapter_in_its_rank_and_experts_are_counted(tmp_path: Path) -> None:
    folders = {f"r{rank}": adapter(tmp_path / f"r{rank}", **LORA | {"r": rank}) for rank in (8, 16, 24)}
    two = {name: folders[name] for name in ("r8", "r24")}
    fit = served(tmp_path, two, "engine=lmdeploy").fit
    # q_proj and v_proj of 36 layers: 4096 inputs, 4096 and 1024 outputs.
    assert fit.terms["adapters"] == 36 * (8 + 24) * (4096 + 4096 + 4096 + 1024) * 2
    one = {"r16": folders["r16"]}
    fit = served(tmp_path, one, "engine=vllm", model="Qwen/Qwen3-30B-A3B").fit
    # Each of 128 experts in 48 layers: gate, up and down between 2048 and 768.
    experts = 128 * 48 * 16 * 3 * (2048 + 768) * 2
    assert experts < fit.terms["adapters"] < 1.06 * experts


@pytest.mark.parametrize(
    ("engine", "model"),
    [
        ("sglang", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"),
        ("vllm", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"),
        ("lmdeploy", "Qwen/Qwen3-30B-A3B"),
    ],
)
def test_what_no_record_covers_is_an_estimate(tmp_path: Path, engine: str, model: str) -> None:
    folders = {"a": adapter(tmp_path / "a", **LORA)}
    fit = served(tmp_path, folders, f"engine={engine}", model=model, gpus=8).fit
    assert fit.terms["adapters"] > 0 and "adapters" in fit.estimates


def test_buffers_of_an_adapter_that_was_not_read(tmp_path: Path) -> None:
    folders = {"a": adapter(tmp_path / "a", **LORA), "b": Path("/srv/lora")}
    service = served(tmp_path, folders, "engine=sglang")
    assert "adapters" in service.fit.estimates
    assert any("deploy plan --probe" in note for note in service.notes)
    assert any("not in the memory of the plan" in note for note in service.notes)


EXPERTS = "engine=vllm\nengine_args=--enable-expert-parallel --data-parallel-size"


@pytest.mark.parametrize(
    ("lines", "model", "what"),
    [
        (
            "engine=sglang\nengine_args=--enable-dp-attention --attn-dp-size 8",
            "Qwen/Qwen3-8B",
            "loads no adapter",
        ),
        ("engine=vllm", "stepfun-ai/Step-3.5-Flash", "has no LoRA for"),
        (f"{EXPERTS} 2", "Qwen/Qwen3-30B-A3B", "several data-parallel groups"),
        (
            f"{EXPERTS} 8 --all2all-backend deepep_low_latency",
            "Qwen/Qwen3-30B-A3B",
            "allgather_reducescatter",
        ),
    ],
)
def test_layouts_and_architectures_without_adapters_are_refused(
    tmp_path: Path, lines: str, model: str, what: str
) -> None:
    folders = {"a": adapter(tmp_path / "a", **LORA)}
    with pytest.raises(InputError, match=what):
        served(tmp_path, folders, lines, model=model, gpus=8)


def sent(config: str) -> str:
    """What the head prints of a folder with this adapter_config.json."""
    return json.dumps({"adapter_config.json": [len(config), base64.b64encode(config.encode()).decode()]})


def test_a_folder_on_the_head_is_read_by_a_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = on_the_head(monkeypatch, CommandOutput(0, sent(json.dumps(LORA | {"r": 64})), ""))
    service = served(tmp_path, {"a": Path("/srv/lora")}, "engine=vllm", probe=True)
    assert ("--max-lora-rank", "64") in [(each.flag, each.value) for each in service.chosen_arguments]
    assert service.adapters[0].rank == 64 and asked == ["/srv/lora"]
    assert not any("was not read" in note for note in service.notes)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (CommandOutput(0, "{}", ""), InputError),
        (CommandOutput(0, sent("[]"), ""), InputError),
        (CommandOutput(1, "", "Permission denied"), NotReadyError),
        (CommandOutput(0, "[]", ""), UntrustedError),
        (CommandOutput(0, "{", ""), UntrustedError),
        (CommandOutput(0, sent('{"r": "8; rm"}'), ""), UntrustedError),
    ],
)
def test_what_the_head_sends_is_validated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: CommandOutput, kind: type[Exception]
) -> None:
    on_the_head(monkeypatch, answer)
    with pytest.raises(kind) as error:
        served(tmp_path, {"a": Path("/srv/lora")}, "engine=vllm", probe=True)
    assert str(getattr(error.value, "where", "")).startswith("n1")


def on_the_head(monkeypatch: pytest.MonkeyPatch, answer: CommandOutput) -> list[str]:
    """The head answers so; the list has the folders that it is asked for."""
    folders: list[str] = []

    @contextlib.contextmanager
    def ssh(_access: object) -> Iterator[None]:
        yield None

    def run(_access: object, _connection: object, *words: str, **_limits: object) -> CommandOutput:
        folders.append(words[3])  # behind python3, -c and the script
        return answer

    monkeypatch.setattr(head_folder, "ssh", ssh)
    monkeypatch.setattr(head_folder, "run_privileged", run)
    monkeypatch.setattr("headfirst.control.deployment.checkpoints.host_access", lambda _: {"n1": _Head()})
    monkeypatch.setattr("headfirst.control.deployment.hosts.probe.lacks_facts", lambda _: False)
    return folders


class _Head:
    host = "n1"
