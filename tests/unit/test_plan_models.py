"""What a fleet can serve, and what would work where a model does not fit."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import offers
import pytest
from command import plan_of, refused, succeeds
from headfirst.common.errors import InputError
from headfirst.control.cli.app import app
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.verbs.models import models as listed
from headfirst.decide import engines
from headfirst.decide.engines.base import Engine
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.hardware import gpus
from headfirst.decide.model import catalogue
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.sizing.alternatives import (
    Attempt,
    alternatives,
    base_name,
    smaller_reserve,
    unfit_hint,
)
from headfirst.decide.plan.sizing.fit import fit
from headfirst.decide.plan.sizing.models import Models, Offer, group_of
from headfirst.decide.plan.sizing.parallel import ENOUGH_TOKENS
from headfirst.decide.plan.sizing.sizes import Copies, Fleet
from headfirst.decide.plan.trial import ServiceTrial
from headfirst.decide.plan.types import Fit
from headfirst.decide.plan.weights import precision
from known_models import model
from trials import offered, trial_on
from typer.testing import CliRunner, Result

pytestmark = pytest.mark.usefixtures("no_hub")

INVENTORIES = Path(__file__).resolve().parents[2] / "inventories"
SGLANG = engines.get("sglang")


def deploy(*words: str | Path, **env: str) -> Result:
    return CliRunner().invoke(app, list(map(str, words)), env=env)


def refusal(result: Result) -> str:
    assert isinstance(result.exception, InputError)
    return result.exception.what


def catalogued() -> list[Checkpoint]:
    return [model(id) for id in catalogue.ids()]


def fleet(gpu: str, nodes: int, gpus_per_node: int = 8) -> Fleet:
    return Fleet(gpus.find(gpu), nodes, gpus_per_node)


def surveyed(its: Fleet, *ids: str) -> Models:
    return offered([model(id) for id in ids], its)


def offer(found: Models, id: str) -> Offer:
    return next(one for one in found.offers if one.model == id)


def offer_of(id: str, its: Fleet) -> Offer:
    return offer(surveyed(its, id), id)


def test_a_small_model_has_a_copy_on_every_gpu() -> None:
    small = offer_of("Qwen/Qwen2-7B", fleet("A100-80G", 2))
    assert (small.tensor_parallel, small.nodes_per_replica, small.replicas) == (1, 1, 16)
    assert small.kv_tokens >= ENOUGH_TOKENS


def test_nodes_that_hold_no_further_copy_go_to_the_ones_there_are() -> None:
    large = offer_of("deepseek-ai/DeepSeek-R1", fleet("A100-80G", 4))
    assert (large.tensor_parallel, large.pipeline_parallel, large.replicas) == (32, 1, 1)
    assert large.convert_to_bf16
    assert large.dtype == "bf16"
    assert large.lines == ["model=deepseek-ai/DeepSeek-R1", "tensor_parallel=32"]


def test_several_copies_are_in_the_lines() -> None:
    lines = offer_of("meta-llama/Llama-3.1-405B-Instruct", fleet("A100-80G", 4)).lines
    assert lines[1:] == ["tensor_parallel=16", "replicas=2", "gpus_per_replica=16"]


@pytest.mark.parametrize(
    ("gpu", "gpus", "first", "second"),
    [
        ("RTX-4090", 2, "Qwen/Qwen3-32B-AWQ", "Qwen/Qwen2.5-32B-Instruct-GPTQ-Int4"),
        ("A100-80G", 8, "Qwen/Qwen3-32B", "Qwen/Qwen2.5-72B-Instruct"),
        ("H200-141G", 8, "deepseek-ai/DeepSeek-R1", "meta-llama/Llama-3.1-405B-Instruct"),
        ("H200-141G", 8, "deepseek-ai/DeepSeek-R1", "Qwen/QwQ-32B"),
        ("H200-141G", 8, "Qwen/Qwen3-235B-A22B-Instruct-2507", "Qwen/Qwen3-235B-A22B"),
        # NVFP4 takes more bits than the publisher's MXFP4 and INT4, from which it was made.
        ("B200-180G", 8, "deepseek-ai/DeepSeek-V4-Flash", "nvidia/DeepSeek-V4-Flash-NVFP4"),
        ("B200-180G", 8, "deepseek-ai/DeepSeek-V4-Pro", "nvidia/DeepSeek-V4-Pro-NVFP4"),
        ("B200-180G", 8, "deepseek-ai/DeepSeek-V4-Pro-0813", "deepseek-ai/DeepSeek-V4-Pro"),
        ("B200-180G", 8, "moonshotai/Kimi-K2.6", "nvidia/Kimi-K2.6-NVFP4"),
    ],
)
def test_newer_models_and_the_publishers_own_copies_are_first(
    gpu: str, gpus: int, first: str, second: str
) -> None:
    assert [one.model for one in surveyed(fleet(gpu, 1, gpus), second, first).offers] == [first, second]


def test_the_publisher_of_a_copy_is_that_of_its_model() -> None:
    assert catalogue.publisher("nvidia/kimi-k2.6-nvfp4") == "moonshotai"
    assert catalogue.publisher("somebody/else") == "somebody"


@pytest.mark.parametrize(("gpu", "first"), [("H100-80G", "FP8"), ("B200-180G", "NVFP4")])
def test_nvfp4_is_first_only_where_the_gpu_computes_in_it(gpu: str, first: str) -> None:
    """Other GPUs unpack it: of these the smaller model in FP8 is before it."""
    ids = ("nvidia/GLM-5.1-NVFP4", "zai-org/GLM-4.6-FP8")
    assert offered([model(id) for id in ids], fleet(gpu, 1)).offers[0].precision == first


def test_the_most_precise_copy_of_a_model_is_first() -> None:
    half = model("Qwen/QwQ-32B").model_copy(update={"id": "Qwen/QwQ-32B-Half", "dtype": "int8"})
    both = offered([half, model("Qwen/QwQ-32B")], fleet("H200-141G", 1))
    assert both.offers[0].model == "Qwen/QwQ-32B"


def test_tasks_are_listed_one_after_the_other_and_short_caches_last() -> None:
    offers = offered(catalogued(), fleet("A10", 1, 1)).offers
    groups = ["chat", "embedding", "rerank", "reward", "completion"]
    places = [(groups.index(group_of(offer.task)), not offer.long_request) for offer in offers]
    assert places == sorted(places)
    assert {short for _, short in places} == {True, False}


class _Refusing(ServiceTrial):
    """Refuses every plan that does not allow the model's code."""

    def starting(
        self, checkpoint: Checkpoint, settings: Mapping[str, object], machines: Machines | None = None
    ) -> tuple[dict[str, object], Fit]:
        if not settings.get("trust_remote_code"):
            raise InputError("It needs its code.")
        return dict(settings), fit(checkpoint, None, Layout(1), SGLANG, dtype="bf16", arguments={})


def test_of_models_that_need_their_code_those_that_have_some_have_the_line_that_allows_it() -> None:
    its = fleet("H200-141G", 1)
    refusing = _Refusing(trial_on(its).cluster, trial_on(its).groups)
    code = model("Qwen/QwQ-32B").model_copy(update={"remote_code": True})
    found = offered([code, model("Qwen/Qwen3-32B")], its, trial=refusing)
    assert [offer.model for offer in found.offers] == ["Qwen/QwQ-32B"]
    assert "trust_remote_code=true" in found.offers[0].lines
    assert [(one.model, one.reason) for one in found.refused] == [("Qwen/Qwen3-32B", "It needs its code.")]


def test_offers_and_advice_are_in_the_type_that_the_engine_computes() -> None:
    # platforms/cuda.py and config/model.py of vLLM: Gemma 3 in FP32 on a GPU without BF16.
    vllm, gemma = engines.get("vllm"), model("google/gemma-3-4b-it")

    def surveyed_on(count: int) -> Models:
        return offered([gemma], fleet("T4", 1, count), engine="vllm")

    assert surveyed_on(1).refused[0].reason == "It needs 2 nodes with 1 × T4 in FP32."
    both = surveyed_on(2).offers[0]
    assert (both.precision, both.dtype) == ("BF16→FP32", "fp32")
    case = attempt(model("google/gemma-3-27b-it"), fleet("T4", 1, 1), engine=vllm)
    assert not any(gemma.id in sentence for sentence in alternatives(case, [gemma]))


def test_the_tokens_of_an_offer_are_those_of_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = offers.inventory(tmp_path / "cluster.ini", "T4", 1, 2)
    hosts, id = path.read_text(), "nvidia/NVIDIA-Nemotron-Nano-9B-v2"
    monkeypatch.setattr(catalogue, "ids", lambda: [id])
    found = offer(listed([path], [], task=None, engine="vllm", probe=False), id)
    path.write_text(hosts + "\n".join(found.lines) + "\n")
    planned = prepare([path], [], probe=False).plan.services[0]
    assert found.kv_tokens == planned.fit.kv_tokens_of_replica


def test_what_cannot_be_served_has_the_nodes_that_it_needs() -> None:
    for its, reason in (
        (fleet("A100-80G", 2), "It needs 3 nodes with 8 × A100-80G in BF16."),
        (fleet("T4", 1), "It does not fit in FP16 on any number of nodes with 8 × T4."),
    ):
        assert surveyed(its, "deepseek-ai/DeepSeek-R1").refused[0].reason == reason


def test_a_task_leaves_the_other_models_out() -> None:
    both = [model("Qwen/Qwen3-Embedding-0.6B"), model("Qwen/Qwen3-0.6B")]
    found = offered(both, fleet("L4", 1), task="embedding")
    assert [one.model for one in found.offers] == ["Qwen/Qwen3-Embedding-0.6B"]


def test_the_largest_kv_cache_is_taken_where_none_is_large_enough() -> None:
    tight = Copies(model("Qwen/QwQ-32B"), fleet("H100-80G", 1, 1), SGLANG, "bf16").best()
    assert tight is not None
    assert 0 < tight.candidate.tokens < ENOUGH_TOKENS


def test_nodes_needed_agrees_with_the_fit() -> None:
    r1 = model("deepseek-ai/DeepSeek-R1")
    more = Copies(r1, fleet("H100-80G", 1), SGLANG, "fp8").on_more_nodes()
    assert next(more).machines == Machines(2, 8)
    copy = Copies(r1, fleet("H100-80G", 2), SGLANG, "fp8").best()
    assert copy is not None
    assert copy.machines == Machines(2, 8)


@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("Qwen/Qwen3-32B-AWQ", "qwen3-32b"),
        ("Qwen/Qwen3-32B-FP8", "qwen3-32b"),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "qwen2.5-72b-instruct"),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "llama-3.1-70b-instruct"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "llama-3.1-8b-instruct"),
        ("nvidia/DeepSeek-R1-0528-NVFP4-v2", "deepseek-r1-0528"),
        ("meituan/DeepSeek-R1-Block-INT8", "deepseek-r1"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
    ],
)
def test_checkpoints_of_one_model_have_one_name(id: str, name: str) -> None:
    assert base_name(id) == name


def attempt(checkpoint: Checkpoint, its: Fleet, *arguments: str, engine: Engine = SGLANG) -> Attempt:
    """A service that does not fit."""
    trial = trial_on(its, model=checkpoint.id, engine=engine.name, engine_args=list(arguments))
    return Attempt(checkpoint, its, engine, trial)


def test_a_published_checkpoint_of_another_precision_is_named_first() -> None:
    r1 = model("deepseek-ai/DeepSeek-R1")
    int8 = model("meituan/DeepSeek-R1-Block-INT8")
    changes = {"id": int8.id, "dtype": "blockwise_int8", "quantization": int8.quantization}
    smaller = r1.model_copy(update={**changes, "bytes_by_dtype": {"I8": 680_000_000_000}})
    found = alternatives(attempt(r1, fleet("A100-80G", 2)), [smaller, r1])
    assert found[0].startswith(
        "model=meituan/DeepSeek-R1-Block-INT8 is the same model in INT8 and fits with tensor_parallel=16: "
    )
    assert found[1].startswith("3 nodes with 8 × A100-80G each hold it with tensor_parallel=")


def test_quantising_while_loading_is_named_where_the_gpu_can() -> None:
    llama = model("meta-llama/Llama-3.1-405B-Instruct")
    h100 = alternatives(attempt(llama, fleet("H100-80G", 1)), [])
    assert h100[0].startswith('engine_args="--quantization fp8" converts it to FP8')
    assert "2 nodes with 8 × H100-80G each hold it with tensor_parallel=16: " in " ".join(h100)
    a100 = alternatives(attempt(llama, fleet("A100-80G", 1)), [])
    assert not any("--quantization" in line for line in a100)


def test_an_argument_that_is_set_is_counted_and_not_proposed() -> None:
    """--quantization fp8 of the user halves the weights, and no sentence proposes it again (L11)."""
    llama = model("meta-llama/Llama-3.1-70B-Instruct")
    case = attempt(llama, fleet("H100-80G", 1, 2), "--quantization", "fp8")
    sentences = alternatives(case, [])
    assert not any("--quantization fp8 --quantization" in sentence for sentence in sentences)
    assert not any("converts it to FP8" in sentence for sentence in sentences)
    served = precision.choose(
        llama, gpus.find("H100-80G"), SGLANG, device="cuda", arguments={"quantization": "fp8"}
    )
    assert (served.dtype, served.convert_to_bf16) == ("fp8", False)


def test_more_gpus_and_a_smaller_reserve_are_both_computed() -> None:
    """DeepSeek-R1 on four B200 (L24)."""
    reserve, more = alternatives(attempt(model("deepseek-ai/DeepSeek-R1"), fleet("B200", 1, 4)), [])[:2]
    assert reserve.startswith('engine_args="--chunked-prefill-size 4096 --max-running-requests 32" fits')
    assert more.startswith("8 × B200-180G in the node hold it with tensor_parallel=8: ")


def test_every_proposed_argument_makes_a_plan_that_fits() -> None:
    """Each sentence was planned: what it names fits, and holds a longer request than the plan."""
    for id, gpu, gpus_of_node in (
        ("Qwen/QwQ-32B", "RTX-4090", 4),
        ("Qwen/Qwen3-8B", "RTX-4090", 1),
        ("Qwen/Qwen3-VL-32B-Instruct", "H100-80G", 1),
    ):
        for engine in (engines.get("sglang"), engines.get("vllm")):
            case = attempt(model(id), fleet(gpu, 1, gpus_of_node), engine=engine)
            for sentence in smaller_reserve(case):
                words = shlex.split(shlex.split(sentence)[0].removeprefix("engine_args="))
                _, made = case.trial.starting(case.checkpoint, {"engine_args": shlex.join(words)})
                assert f"{made.kv_tokens_of_replica:,} tokens" in sentence


def test_a_reserve_with_which_a_request_is_short_is_followed_by_a_smaller_one() -> None:
    """A context that is lowered so that the engine starts is not the one that is needed."""
    id, its, vllm = "XiaomiMiMo/MiMo-V2-Flash", fleet("A100-80G", 1, 4), engines.get("vllm")
    case = Attempt(model(id), its, vllm, trial_on(its, model=id, engine="vllm", preset="latency"))
    (sentence,) = smaller_reserve(case)
    limit = re.search(r"--max-model-len (\d+)", sentence)
    assert limit
    assert int(limit[1]) >= ENOUGH_TOKENS


def test_a_quantised_model_of_the_same_size_is_not_called_smaller() -> None:
    """L11: fewer bytes are not fewer parameters."""
    llama = model("meta-llama/Llama-3.1-70B-Instruct")
    awq = llama.model_copy(update={"id": "x/Llama-3.3-70B-Instruct-AWQ", "total_bytes": 40_000_000_000})
    sentences = alternatives(attempt(llama, fleet("A10", 1, 4)), [awq])
    assert not any("a smaller model" in sentence for sentence in sentences)


def test_a_smaller_model_of_the_family_is_the_last_resort() -> None:
    distilled = model("deepseek-ai/DeepSeek-R1-Distill-Llama-70B")
    found = alternatives(attempt(distilled, fleet("H100-80G", 1, 1)), catalogued())
    assert found[-1] == (
        "model=deepseek-ai/DeepSeek-R1-Distill-Qwen-32B is a smaller model of the same family and fits with "
        "tensor_parallel=1: 15,707 tokens of KV cache."
    )


def test_advice_of_another_model_drops_the_revision_of_this_one(tmp_path: Path) -> None:
    """A commit or tag of the inventory's model is none of another's; the line for it is pasted as it is."""
    path = offers.inventory(tmp_path / "cluster.ini", "RTX-4090", 1, 2)
    hosts = f"{path.read_text()}model_source=huggingface\nmodel_revision=v1\n"
    path.write_text(f"{hosts}model=Qwen/Qwen3-32B\n")
    printed = deploy("plan", path).output
    sentences = [line for line in printed.splitlines() if "Instead: model=" in line]
    assert sentences
    assert all(" and model_revision= is " in sentence for sentence in sentences)
    listed = succeeds("models", path, "--model", "Qwen/Qwen3-32B-AWQ")
    assert "model_revision=" in listed.splitlines()
    path.write_text(f"{hosts}{listed}")
    assert plan_of(path).services[0].weights.revision is None


def test_a_model_that_the_engine_lacks_has_no_layout_as_the_way_out(tmp_path: Path) -> None:
    """Three GPUs share no layer of it either, but no tensor_parallel would be accepted."""
    path = offers.inventory(tmp_path / "cluster.ini", "A100-80G", 1, 3)
    path.write_text(
        f"{path.read_text()}engine=lmdeploy\nmodel=LiquidAI/LFM2.5-8B-A1B\ntrust_remote_code=true\n"
    )
    with pytest.raises(InputError, match="does not support the architecture Lfm2MoeForCausalLM"):
        prepare([path], [], probe=False)


def test_more_gpus_come_with_the_context_that_they_hold() -> None:
    """vLLM ends where its KV cache does not hold the model's longest request."""
    llama, vllm = model("meta-llama/Llama-3.3-70B-Instruct"), engines.get("vllm")
    found = alternatives(attempt(llama, fleet("A10", 1, 4), engine=vllm), [])
    assert (
        '8 × A10 in the node hold it with tensor_parallel=8 and engine_args="--max-model-len 1' in found[-1]
    )


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [("", ""), ("--max-model-len 65536", ""), ("--max_model_len=65536 --seed 7", "--seed 7 ")],
)
def test_a_context_that_is_too_long_has_the_line_with_the_longest_that_fits(
    tmp_path: Path, arguments: str, kept: str
) -> None:
    """vLLM refuses it. What the user sets is replaced in this line alone."""
    path = offers.inventory(tmp_path / "cluster.ini", "A10", 1, 1)
    hosts = f"{path.read_text()}engine=vllm\nmodel=meta-llama/Llama-3.1-8B-Instruct\n"
    path.write_text(f'{hosts}engine_args="{arguments}"\n')
    refused = prepare([path], [], probe=False).plan.services[0]
    assert refused.fit.fits is False
    context = (refused.fit.longest_request or 0) // 1024 * 1024
    setting = f'engine_args="{kept}--max-model-len {context}"'
    path.write_text(f"{hosts}{setting}\n")
    fitting = prepare([path], [], probe=False).plan.services[0].fit
    assert fitting.fits
    sentence = (
        f"{setting} fits, with {fitting.kv_tokens_of_replica:,} tokens of KV cache: a request has at most "
        f"{context:,} tokens."
    )
    assert sentence in refused.alternatives
    others = [line for line in refused.alternatives if line != sentence]
    assert others
    assert not (arguments and any("--max-model-len" in line for line in others))


def test_of_a_smaller_model_the_precision_that_holds_a_long_request_is_proposed() -> None:
    found = alternatives(attempt(model("Qwen/Qwen3-32B"), fleet("RTX-4090", 1, 2)), catalogued())
    assert found[-1].startswith("model=Qwen/Qwen3-14B-FP8 is a smaller model")


def test_the_plan_and_its_refusal_carry_the_alternatives() -> None:
    result = deploy("plan", INVENTORIES / "h200x1.ini", "-e", "gpu=A100-80G")
    assert "DeepSeek-R1 does not fit" in refusal(result)
    assert "Instead: 3 nodes with 8 × A100-80G each hold it with " in result.output
    assert "docker run" not in result.output
    assert unfit_hint(["3 nodes hold it."]).startswith("3 nodes hold it.\n`deploy models`")


def test_a_plan_that_does_not_fit_ends_with_2_in_json_too() -> None:
    result = deploy("plan", INVENTORIES / "h200x1.ini", "-e", "gpu=A100-80G", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["services"][0]["alternatives"]


def test_the_command_lists_models_and_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    some = ["deepseek-ai/DeepSeek-R1", *catalogue.ids()[::40]]
    monkeypatch.setattr(catalogue, "ids", lambda: some)
    inventory = str(INVENTORIES / "h20x2.ini")
    found = Models.model_validate_json(succeeds("models", inventory, "--json"))
    assert sorted(one.model for one in (*found.offers, *found.refused)) == sorted(some)
    assert all(one.weights_seconds > 0 for one in found.offers)
    table = deploy("models", inventory, "--all", COLUMNS="160")
    assert "deepseek-ai/DeepSeek-R1 " in table.output
    assert f"write under [all:vars]:\n  model={found.offers[0].model}\n" in table.output


def test_the_lines_of_one_model_make_a_plan(tmp_path: Path) -> None:
    inventory = INVENTORIES / "h20x2.ini"
    lines = succeeds("models", inventory, "--model", "deepseek-ai/DeepSeek-V3")
    assert lines == "model=deepseek-ai/DeepSeek-V3\ntensor_parallel=16\n"
    changed = tmp_path / "cluster.ini"
    kept = [line for line in inventory.read_text().splitlines() if not line.startswith("model=")]
    changed.write_text("\n".join(kept) + f"\n{lines}")
    succeeds("plan", changed)


def test_an_inventory_without_a_model_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "ids", lambda: ["Qwen/Qwen3-32B"])
    path = tmp_path / "new.ini"
    path.write_text("[head]\nn1 ansible_host=192.0.2.1 gpus=8 gpu=H200-141G nic=eth0 hca=none\n")
    succeeds("models", path)


@pytest.mark.parametrize(
    ("hosts", "what"),
    [
        ("[head]\nn1 ansible_host=192.0.2.1\n", "the GPUs of n1 are not known"),
        (
            "[head]\nn1 ansible_host=192.0.2.1 gpus=8 gpu=H200-141G\n"
            "[workers]\nn2 ansible_host=192.0.2.2 gpus=8 gpu=A100-80G\n",
            "the hosts have different GPUs",
        ),
    ],
)
def test_unknown_or_mixed_gpus_are_refused(tmp_path: Path, hosts: str, what: str) -> None:
    path = tmp_path / "new.ini"
    path.write_text(hosts)
    error = refused("models", path)
    assert isinstance(error, InputError) and what in error.what


def test_a_model_that_cannot_be_served_has_no_lines() -> None:
    for inventory, id, what in (
        ("a100x1-70b", "deepseek-ai/DeepSeek-R1", "It needs 3 nodes"),
        ("h200x1", "a/b", "the catalogue has no a/b"),
    ):
        error = refused("models", INVENTORIES / f"{inventory}.ini", "--model", id)
        assert isinstance(error, InputError) and what in error.what


def test_fp8_that_is_neither_served_nor_converted_is_refused_and_not_proposed() -> None:
    fp8 = model("nvidia/Llama-3.1-70B-Instruct-FP8").model_copy(update={"dtype": "fp8"})
    found = offered([fp8], fleet("V100-32G", 1))
    assert not found.offers
    assert "cannot be converted to BF16 here: quantisation modelopt" in found.refused[0].reason
    case = attempt(model("meta-llama/Llama-3.1-70B-Instruct"), fleet("V100-32G", 1))
    proposed = alternatives(case, [fp8])
    assert not any(fp8.id in sentence for sentence in proposed)


def test_a_narrow_terminal_breaks_lines_between_words() -> None:
    """A setting in quotes is pasted, and stays whole."""
    words = ["plan", INVENTORIES / "h200x1.ini", "-e", "gpus=4", "-e", "gpu=B200", "-e", "engine=vllm"]
    piped = deploy(*words).output
    terminal = deploy(*words, COLUMNS="80", FORCE_COLOR="1").output
    narrow = re.sub(r"\x1b\[[0-9;]*m", "", terminal)
    advice = next(line for line in piped.splitlines() if "Instead: engine_args=" in line)
    setting = re.search(r'engine_args="[^"]*"', advice)
    assert setting and setting[0] in narrow
    assert advice not in narrow
    above, _, _ = narrow.partition("\nNodes")
    assert above.split() == piped.partition("\nNodes")[0].split()
    assert all(len(line) <= 80 or setting[0] in line for line in above.splitlines())


@pytest.mark.parametrize("verb", ["models", "plan"])
def test_gpus_of_another_vendor_are_refused_before_anything_is_listed(tmp_path: Path, verb: str) -> None:
    inventory = tmp_path / "amd.ini"
    inventory.write_text(
        "[head]\nn1 ansible_host=192.0.2.1 gpus=8 gpu=MI300X nic=eth0\n\n[all:vars]\nmodel=Qwen/Qwen3-32B\n"
    )
    result = deploy(verb, inventory)
    assert "MI300X is not an NVIDIA GPU" in refusal(result)
    assert result.output == ""
