"""A model that drafts for the service's: where it lies, its arguments, what it takes, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from draft_folders import EAGLE3, EAGLE3_TENSORS, SPECULATORS, draft_folder
from headfirst.common.errors import InputError
from headfirst.control.checkpoints.describe import describe
from headfirst.control.cli.app import app
from headfirst.control.deployment.hosts import head_folder
from headfirst.control.deployment.prepare import Prepared, prepare
from headfirst.control.deployment.running.role_vars.weights import companion_vars
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.types import PlannedService
from headfirst.decide.plan.weights.decide import draft_model
from pydantic import ValidationError
from run_variables import up_of
from typer.testing import CliRunner

pytestmark = pytest.mark.usefixtures("no_hub")

BYTES = 2 * sum(math.prod(shape) for shape in EAGLE3_TENSORS.values())
FC_BYTES = 2 * 4096 * 12288
TOKEN = 8 * 2 * 128 * 2  # of one layer with 8 heads of 128 elements, keys and values


def written(
    tmp_path: Path, lines: str, *, gpus: int = 1, model: str = "Qwen/Qwen3-8B", nodes: int = 1
) -> Path:
    path = tmp_path / "cluster.ini"
    hosts = [f"n{at} ansible_host=192.0.2.{at} gpus={gpus} gpu=H100-80G" for at in range(1, nodes + 1)]
    workers = "\n".join(["[workers]", *hosts[1:]]) if nodes > 1 else ""
    settings = f"model={model}\nweights_dir=/data\n{lines}\nparsers=none\n"
    path.write_text(f"[head]\n{hosts[0]}\n{workers}\n[all:vars]\n{settings}")
    return path


def prepared(tmp_path: Path, lines: str, **where: Any) -> Prepared:
    return prepare([written(tmp_path, lines, **where)], [], probe=False)


def service(tmp_path: Path, lines: str, **where: Any) -> PlannedService:
    return prepared(tmp_path, lines, **where).plan.services[0]


def chosen(planned: PlannedService) -> dict[str, str]:
    return {argument.flag: argument.value for argument in planned.chosen_arguments}


@pytest.mark.parametrize(
    ("settings", "source", "directory"),
    [
        ({"draft_model": "org/d"}, "modelscope", "/data/drafts/org/d"),
        ({"draft_model": "org/d", "model_source": "huggingface"}, "huggingface", "/data/drafts/org/d"),
        (
            {"draft_model": "org/d", "draft_model_revision": "a/../b"},
            "modelscope",
            "/data/drafts/org/d--a-..-b",
        ),
        ({"draft_model": "/srv/d/", "draft_model_revision": "v1"}, "path", "/data/drafts/d"),
    ],
)
def test_where_a_draft_comes_from_and_lies(settings: dict[str, str], source: str, directory: str) -> None:
    draft = draft_model(ServiceSettings.model_validate({"weights_dir": "/data/", **settings}), None)
    assert draft is not None
    assert (draft.source, draft.directory, draft.name) == (source, directory, "d")


@pytest.mark.parametrize("value", ["d", "../d/x", "org/x/y", "/srv/../etc", "/etc/d", "-a/b"])
def test_a_wrong_id_is_refused(value: str) -> None:
    with pytest.raises(ValidationError):
        ServiceSettings.model_validate({"draft_model": value})


@pytest.mark.parametrize(
    ("engine", "arguments"),
    [
        ("sglang", {"--speculative-algorithm": "EAGLE3", "--speculative-draft-model-path": "DIR"}),
        ("vllm", {"--spec-model": "DIR", "--spec-method": "eagle3", "--spec-tokens": "3"}),
    ],
)
def test_the_engine_gets_the_folder_that_is_brought_and_mounted(
    tmp_path: Path, engine: str, arguments: dict[str, str]
) -> None:
    folder = draft_folder(tmp_path / "srv" / "draft")
    planned = service(tmp_path, f"engine={engine}\ndraft_model={folder}")
    assert chosen(planned) == {
        flag: value.replace("DIR", "/data/drafts/draft") for flag, value in arguments.items()
    }
    container = planned.replicas[0].nodes[0].container
    assert "/data/drafts/draft:/data/drafts/draft:ro" in container.volumes
    words = [word for pair in chosen(planned).items() for word in pair]
    assert container.command[-len(words) :] == words
    assert planned.draft_model is not None
    assert (planned.draft_model.kind, planned.draft_model.source_bytes) == ("eagle3", shard_bytes(folder))


def shard_bytes(folder: Path) -> int:
    return (folder / "model.safetensors").stat().st_size


def test_a_draft_of_llama_takes_lmdeploys_pytorch_engine(tmp_path: Path) -> None:
    config = EAGLE3 | {"architectures": ["LlamaForCausalLM"], "vocab_size": 128256}
    folder = draft_folder(tmp_path / "srv" / "draft", config)
    lines = f"engine=lmdeploy\ndraft_model={folder}\ntrust_remote_code=true"
    planned = service(tmp_path, lines, model="meta-llama/Llama-3.1-8B-Instruct")
    command = planned.replicas[0].nodes[0].container.command
    assert command[command.index("--backend") + 1] == "pytorch"
    assert command[command.index("--speculative-algorithm") + 1] == "eagle3"
    assert command[command.index("--speculative-draft-model") + 1] == "/data/drafts/draft"


@pytest.mark.parametrize(
    ("engine", "given", "expected"),
    [
        (
            "sglang",
            "--speculative-algorithm EAGLE3 --speculative-num-steps 4",
            ["--speculative-draft-model-path"],
        ),
        ("vllm", "--spec-tokens 2 --spec-method eagle3", ["--spec-model"]),
        (
            "vllm",
            "--speculative-config '{\\\"num_speculative_tokens\\\": 2}'",
            ["--spec-model", "--spec-method"],
        ),
        ("vllm", "--speculative-config.method eagle3", ["--spec-model", "--spec-tokens"]),
    ],
)
def test_what_the_user_sets_is_left_alone(
    tmp_path: Path, engine: str, given: str, expected: list[str]
) -> None:
    folder = draft_folder(tmp_path / "srv" / "draft")
    lines = f'engine={engine}\ndraft_model={folder}\nengine_args="{given}"'
    assert list(chosen(service(tmp_path, lines))) == expected


def test_the_format_of_speculators_states_the_tokens(tmp_path: Path) -> None:
    folder = draft_folder(tmp_path / "srv" / "draft", SPECULATORS)
    planned = service(tmp_path, f"engine=vllm\ndraft_model={folder}")
    assert chosen(planned)["--spec-tokens"] == "5" and chosen(planned)["--spec-method"] == "eagle3"


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("gpus", [1, 4])
def test_its_weights_and_its_cache_are_in_the_fit(tmp_path: Path, engine: str, gpus: int) -> None:
    folder = draft_folder(tmp_path / "srv" / "draft")
    lines = f"engine={engine}"
    without = service(tmp_path, lines, gpus=gpus)
    drafting = service(tmp_path, f"{lines}\ndraft_model={folder}", gpus=gpus)
    assert drafting.tensor_parallel == without.tensor_parallel == gpus
    fit, plain = drafting.fit, without.fit
    assert fit.draft_bytes_per_rank == pytest.approx((BYTES - FC_BYTES) / gpus + FC_BYTES, rel=1e-6)
    assert fit.weight_bytes_per_rank - plain.weight_bytes_per_rank == fit.draft_bytes_per_rank
    assert fit.kv_bytes_per_token - plain.kv_bytes_per_token == TOKEN // gpus
    assert (fit.kv_tokens or 0) < (plain.kv_tokens or 0)


def test_a_draft_may_be_whole_on_each_rank(tmp_path: Path) -> None:
    folder = draft_folder(tmp_path / "srv" / "draft")
    lines = (
        f'engine=vllm\ndraft_model={folder}\nengine_args="--speculative-config.draft_tensor_parallel_size 1"'
    )
    fit = service(tmp_path, lines, gpus=4).fit
    assert fit.draft_bytes_per_rank == pytest.approx(BYTES, rel=1e-6)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_ranks_divide_the_heads_of_the_draft_too(tmp_path: Path, engine: str) -> None:
    folder = draft_folder(
        tmp_path / "srv" / "draft", EAGLE3 | {"num_attention_heads": 20, "num_key_value_heads": 4}
    )
    lines = f"engine={engine}\ndraft_model={folder}\n"
    with pytest.raises(InputError, match="of the draft model 20 attention heads are not divisible by 8"):
        service(tmp_path, f"{lines}tensor_parallel=8", gpus=8)
    if engine == "vllm":
        whole = 'engine_args="--speculative-config.draft_tensor_parallel_size 1"'
        assert service(tmp_path, f"{lines}tensor_parallel=8\n{whole}", gpus=8).draft_model


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ("draft_model=a/b-eagle3\ntask=embedding", "task=embedding generates no text"),
        ("draft_model_revision=main", "without draft_model"),
        (
            "draft_model=Qwen/Qwen3-0.6B\nengine_args=--enable-dp-attention --attn-dp-size 2",
            "excludes a draft that is a model of its own",
        ),
    ],
)
def test_what_cannot_draft_is_refused(tmp_path: Path, lines: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        service(tmp_path, lines, gpus=2)


def test_disk_and_time_count_the_draft(tmp_path: Path) -> None:
    folder = draft_folder(tmp_path / "srv" / "draft")
    plain, drafting = (prepared(tmp_path, lines) for lines in ("", f"draft_model={folder}"))
    sizes = [each.plan.disks[0].bytes for each in (plain, drafting)]
    assert sizes[1] - sizes[0] == pytest.approx(shard_bytes(folder) * 1.1, abs=2)
    draft = drafting.plan.services[0].draft_model
    assert draft is not None and draft.seconds is not None and draft.seconds > 0


def test_a_draft_that_is_not_read_is_a_note(tmp_path: Path) -> None:
    planned = service(tmp_path, "draft_model=acme/qwen3-8b-eagle3")
    assert chosen(planned)["--speculative-algorithm"] == "EAGLE3"
    assert planned.draft_model is not None and planned.draft_model.seconds is None
    assert any("acme/qwen3-8b-eagle3 was not read" in note for note in planned.notes)
    with pytest.raises(InputError, match="its kind is not known: set engine_args=--speculative-algorithm"):
        service(tmp_path, "draft_model=acme/small")


def test_a_folder_on_the_head_is_read_by_a_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = describe("/srv/draft", "path", folder=draft_folder(tmp_path / "srv" / "draft"))
    read = []

    def describe_on_head(head: object, folder: str) -> Checkpoint:
        read.append((head, folder))
        return draft

    monkeypatch.setattr(head_folder, "describe_on_head", describe_on_head)
    monkeypatch.setattr("headfirst.control.deployment.checkpoints.host_access", lambda _: {"n1": "n1"})
    monkeypatch.setattr("headfirst.control.deployment.hosts.probe.lacks_facts", lambda _: False)
    path = written(tmp_path, "draft_model=/srv/draft")
    with pytest.raises(InputError, match="its kind is not known") as error:
        prepare([path], [], probe=False)
    assert "--probe" in str(error.value.hint)
    (planned,) = prepare([path], [], probe=True).plan.services
    assert read == [("n1", "/srv/draft")]
    assert planned.draft_model is not None and planned.draft_model.kind == "eagle3"
    assert planned.fit.draft_bytes_per_rank


def test_a_model_of_the_catalogue_drafts_on_its_own(tmp_path: Path) -> None:
    planned = service(tmp_path, "draft_model=Qwen/Qwen3-0.6B", model="Qwen/Qwen3-32B", gpus=2)
    assert chosen(planned)["--speculative-algorithm"] == "STANDALONE"
    assert planned.draft_model is not None and planned.draft_model.described_by.startswith("catalogue")
    # 28 layers, counted by SGLang as those of the target.
    assert planned.fit.kv_bytes_per_token == (64 + 28) * TOKEN // 2
    planned = service(tmp_path, "engine=vllm\ndraft_model=Qwen/Qwen3-0.6B", model="Qwen/Qwen3-32B", gpus=2)
    assert chosen(planned)["--spec-method"] == "draft_model"


def test_a_draft_that_shares_the_cache_of_its_target_has_none(tmp_path: Path) -> None:
    config = EAGLE3 | {
        "architectures": ["Gemma4AssistantForCausalLM"],
        "hidden_size": 1024,
        "vocab_size": 262144,
        "max_position_embeddings": 262144,
    }
    for engine, kept in (("sglang", "EAGLE"), ("vllm", "mtp")):
        where = {"model": "google/gemma-4-31B-it", "gpus": 4}
        lines = f"engine={engine}\n"
        folder = draft_folder(tmp_path / engine / "draft", config | {"backbone_hidden_size": 5376})
        drafting = service(tmp_path, f"{lines}draft_model={folder}", **where)
        assert kept in chosen(drafting).values()
        plain = service(tmp_path, lines, **where)
        assert drafting.fit.kv_bytes_per_token == plain.fit.kv_bytes_per_token


@pytest.mark.parametrize(
    ("engine", "given"),
    [
        ("sglang", "--speculative-algorithm EAGLE3 --speculative-draft-model-path org/draft"),
        ("vllm", "--speculative-config.method eagle3 --speculative-config.model org/draft"),
        ("vllm", "--spec-model org/draft --spec-tokens 3"),
        ("lmdeploy", "--speculative-algorithm eagle3 --speculative-draft-model org/draft"),
    ],
)
def test_a_draft_on_a_hub_in_the_engines_own_argument_is_refused(
    tmp_path: Path, engine: str, given: str
) -> None:
    with pytest.raises(InputError, match="every rank would fetch") as error:
        service(tmp_path, f'engine={engine}\nengine_args="{given}"')
    assert "draft_model=org/draft" in str(error.value.hint)
    assert str(error.value.where).endswith("cluster.ini:8")


def test_a_folder_in_the_engines_own_argument_is_a_note(tmp_path: Path) -> None:
    given = "--speculative-algorithm EAGLE3 --speculative-draft-model-path /drafts/a"
    planned = service(tmp_path, f'engine_args="{given}"')
    assert any("For both, set draft_model in the inventory" in note for note in planned.notes)
    with pytest.raises(InputError, match="both name a draft model"):
        service(tmp_path, f'draft_model=org/eagle3\nengine_args="{given}"')


def test_a_shorter_context_of_the_draft_ends_sglang_and_not_vllm(tmp_path: Path) -> None:
    folder = draft_folder(tmp_path / "srv" / "draft", EAGLE3 | {"max_position_embeddings": 2048})
    with pytest.raises(InputError, match="made for 2048 tokens and the service for 40960"):
        service(tmp_path, f"draft_model={folder}")
    for lines in (
        "engine=vllm",
        "engine_args=--context-length=2048",
        "engine_env=SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1",
    ):
        assert service(tmp_path, f"draft_model={folder}\n{lines}").draft_model


def test_the_code_of_a_draft_is_not_vouched_for_by_the_models_commit(tmp_path: Path) -> None:
    config = EAGLE3 | {"hidden_size": 7168, "vocab_size": 129280, "max_position_embeddings": 163840}
    code = draft_folder(tmp_path / "srv" / "code", config | {"auto_map": {"AutoModel": "a.b"}})
    plain = draft_folder(tmp_path / "srv" / "plain", config)

    def planned(draft: object, more: str = "") -> PlannedService:
        lines = f"model_source=huggingface\ndraft_model={draft}\n{more}"
        return service(tmp_path, lines, model="deepseek-ai/DeepSeek-R1", gpus=8, nodes=2)

    assert planned(plain).trust_remote_code
    for draft, what in ((code, "contains Python code"), ("a/b-eagle3", "may contain Python code")):
        with pytest.raises(InputError, match=what):
            planned(draft)
        assert planned(draft, "trust_remote_code=true").draft_model


def test_vllm_lowers_the_longest_request_to_that_of_a_model_of_its_own(tmp_path: Path) -> None:
    lines = "engine=vllm\ndraft_model=Qwen/Qwen3-0.6B\n"
    model = "Qwen/Qwen3-30B-A3B-Instruct-2507"
    notes = service(tmp_path, lines, model=model, gpus=2).notes
    assert any("lowers the longest request to the 40,960 tokens" in note for note in notes)
    short = f'{lines}engine_args="--max-model-len 8192"'
    assert not any("lowers" in note for note in service(tmp_path, short, model=model, gpus=2).notes)


def test_a_model_that_fits_without_its_draft_is_an_alternative(tmp_path: Path) -> None:
    lines = "draft_model=Qwen/Qwen3-8B"
    planned = service(tmp_path, lines, model="Qwen/Qwen3-32B", gpus=1)
    assert planned.fit.fits is False
    (sentence,) = [line for line in planned.alternatives if "without draft_model" in line]
    alone = service(tmp_path, "", model="Qwen/Qwen3-32B", gpus=1).fit
    assert alone.fits and f"{alone.kv_tokens:,} tokens" in sentence


def test_every_host_gets_the_whole_draft_at_its_revision(tmp_path: Path) -> None:
    lines = "draft_model=a/b-eagle3\ndraft_model_revision=v1\npipeline_parallel=2\nengine=vllm"
    each = prepared(tmp_path, lines, nodes=2, gpus=8, model="Qwen/Qwen3-32B")
    planned = each.plan.services[0]
    assert planned.weights.shares and planned.draft_model
    variables = companion_vars(up_of(each.cluster, each.plan), planned, planned.draft_model)
    assert set(variables) == {"n1", "n2"}
    for of_host in variables.values():
        assert (of_host["weights_dir"], of_host["weights_name"]) == ("/data/drafts/a", "b-eagle3--v1")
        assert (of_host["weights_model"], of_host["weights_revision"]) == ("a/b-eagle3", "v1")
        assert of_host["weights_layers"] == {} and of_host["weights_hidden_layers"] == 0


def test_the_plan_prints_it(tmp_path: Path) -> None:
    folder = draft_folder(tmp_path / "srv" / "draft")
    path = written(tmp_path, f"draft_model={folder}")
    shown = CliRunner().invoke(app, ["plan", str(path)])
    assert "(path, eagle3, 0.8 GB), to /data/drafts/draft" in " ".join(shown.output.split())
    assert "weights of the draft model" in shown.output
    plan = json.loads(CliRunner().invoke(app, ["plan", str(path), "--json"]).stdout)
    assert plan["services"][0]["draft_model"]["kind"] == "eagle3"
    assert (
        "draft_model"
        not in json.loads(CliRunner().invoke(app, ["plan", str(written(tmp_path, "")), "--json"]).stdout)[
            "services"
        ][0]
    )
