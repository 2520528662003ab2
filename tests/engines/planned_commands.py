"""The commands of all plans that exit with 0: each model of the catalogue, each preset, each fleet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

from headfirst.common import container_names
from headfirst.common.errors import InputError
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.division import Members, divide
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.engines.presets import Preset
from headfirst.decide.hardware import gpus
from headfirst.decide.model import catalogue
from headfirst.decide.plan.build import build
from headfirst.decide.plan.types import PlannedService

# The engine may look up the host's own addresses and interfaces: those of every machine.
INVENTORY = (
    "[head]\nn0 ansible_host=127.0.0.1\n\n[all:vars]\nmodel=x\ntrust_remote_code=true\n"
    "nic=lo\nhca=mlx5_0\nib_gid_index=3\n"
)
PRESETS: tuple[str | None, ...] = (None, *get_args(Preset))


@dataclass(frozen=True)
class Fleet:
    """`hosts` with `gpus` each."""

    hosts: int
    gpus: int
    gpu: str

    def __str__(self) -> str:
        return f"{self.hosts}x{self.gpus}x{self.gpu}"


FLEETS = (
    Fleet(2, 8, "H100-80G"),
    Fleet(1, 4, "A100-80G"),
    Fleet(1, 2, "RTX-4090"),
    Fleet(1, 8, "B200-180G"),
)


@dataclass(frozen=True)
class Case:
    """One rank's command and the inventory that it comes from."""

    inventory: str
    model: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    service: PlannedService


@cache
def one_host(folder: Path) -> Cluster:
    """The cluster that the cases change; Ansible reads its inventory once."""
    path = folder / "cluster.ini"
    path.write_text(INVENTORY, encoding="utf-8")
    return load([path])


def cases(
    cluster: Cluster, engine: str, fleet: Fleet, presets: Iterable[str | None] = PRESETS
) -> Iterator[Case]:
    """The ranks of all plans with this fleet that exit with 0; equal commands for equal models once."""
    commands = set()
    for model in catalogue.ids():
        for preset in presets:
            for case in _ranks(cluster, engine, fleet, model, preset):
                names = (case.service.weights.directory, case.service.served_model_name)
                words = tuple(word for word in case.command if word not in names)
                if (key := (_digest(config(model)), words)) not in commands:
                    commands.add(key)
                    yield case


def _ranks(cluster: Cluster, engine: str, fleet: Fleet, model: str, preset: str | None) -> Iterator[Case]:
    checkpoint = catalogue.lookup(model)
    assert checkpoint is not None
    first = cluster.hosts[0]
    members = [
        replace(first, name=f"n{rank}", address=f"127.0.0.{rank + 1}", gpus=fleet.gpus, gpu=fleet.gpu)
        for rank in range(fleet.hosts)
    ]
    settings = cluster.services[0].settings.model_copy(
        update={"model": model, "engine": engine, "preset": preset}
    )
    services = divide([Members(None, settings, tuple(members), None)])
    try:
        plan = build(replace(cluster, services=services, webui=members[0]), {None: checkpoint})
    except InputError:
        return  # refused, as unit tests check
    service = plan.services[0]
    if service.fit.fits is False:
        return
    inventory = f"hosts={fleet.hosts} gpus={fleet.gpus} gpu={fleet.gpu} engine={engine} model={model}"
    yield from of_ranks(f"{inventory}{f' preset={preset}' if preset else ''}", model, service)


def of_ranks(inventory: str, model: str, service: PlannedService) -> Iterator[Case]:
    """The ranks of the service's first replica that start the engine; Ray's workers start Ray alone."""
    for rank, node in enumerate(service.replicas[0].nodes):
        container = node.container
        if container.command[3:4] != ["ray-worker"]:
            variables = f"{inventory} (rank {rank})"
            yield Case(variables, model, tuple(container.command), container.environment, service)


# model_type by architecture, as transformers has it, for entries of the catalogue that do not keep it.
MODEL_TYPES = {
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "Glm4MoeForCausalLM": "glm4_moe",
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
# Lists of modules whose names engines compare whole.
UNQUANTIZED = {"modules_to_not_convert", "ignored_layers"}
MOST_LAYERS = 128  # more than a model has: the names of the others match nothing
# Models whose config.json in the catalogue is not enough for an engine, and a part of what it then raises.
NOT_ENOUGH = {
    ("sglang", "meta-models/Muse-Glimmer-30B"): "KeyError: 'hidden_activation'",
    # Mistral's own format beside config.json.
    ("sglang", "mistralai/Mistral-Large-3-675B-Instruct-2512"): "params.json",
    ("sglang", "mistralai/Leanstral-2603"): "params.json",
    # The class of its config is in the checkpoint's own code.
    ("sglang", "XiaomiMiMo/MiMo-V2.5"): "model type `mimo_v2`",
    ("sglang", "XiaomiMiMo/MiMo-V2.5-Pro"): "model type `mimo_v2`",
    ("vllm", "XiaomiMiMo/MiMo-V2.5"): "model type `mimo_v2`",
    ("vllm", "XiaomiMiMo/MiMo-V2.5-Pro"): "model type `mimo_v2`",
    ("lmdeploy", "zai-org/GLM-4.1V-9B-Thinking"): "no attribute 'eos_token_id'",
    # The types of the draft layers.
    ("vllm", "stepfun-ai/Step-3.5-Flash-FP8"): "1 validation error for SpeculativeConfig",
    ("vllm", "stepfun-ai/Step-3.5-Flash"): "1 validation error for SpeculativeConfig",
    ("vllm", "stepfun-ai/Step-3.7-Flash"): "1 validation error for SpeculativeConfig",
    ("vllm", "stepfun-ai/Step-3.7-Flash-FP8"): "1 validation error for SpeculativeConfig",
}


@cache
def config(model: str) -> dict[str, Any]:
    """The catalogue's config.json, with what the file has on every hub.

    A publisher's code is left out: it is not there, and the engines have their own classes.
    """
    kept = _without(catalogue.resolved(model)["config"], "auto_map")
    if kept.get("quantization_config", {}) is None:  # left out of what the entry is the same as
        del kept["quantization_config"]
    quantization = kept.get("quantization_config", {})
    for group in quantization.get("config_groups", {}).values():
        group.setdefault("targets", ["Linear"])
    for key in quantization.keys() & UNQUANTIZED:
        quantization[key] = _of_each_layer(quantization[key])
    return {"model_type": MODEL_TYPES.get(kept["architectures"][0]), **kept}


def _of_each_layer(modules: list[str]) -> list[str]:
    """The names with a number where the catalogue has a wildcard for all layers."""
    layers = range(MOST_LAYERS)
    numbers = [(name, layers if ".*." in name else layers[:1]) for name in modules]
    return [name.replace(".*.", f".{number}.") for name, layers in numbers for number in layers]


def _without(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {
        name: _without(value, key) if isinstance(value, dict) else value
        for name, value in config.items()
        if name != key
    }


def _digest(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


# A fixture with the tokens that parsers of the presets look for: no checkpoint's tokenizer is tested.
TOKENS = ("<unk>", "<think>", "</think>", "[THINK]", "[/THINK]", "<mm:think>", "</mm:think>")
TOKENS += ("[TOOL_CALLS]", "[ARGS]", "<assistant>", "<image>")
_TOKEN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [{"id": id, "content": token, **_TOKEN} for id, token in enumerate(TOKENS)],
    "model": {
        "type": "WordLevel",
        "vocab": {token: id for id, token in enumerate(TOKENS)},
        "unk_token": TOKENS[0],
    },
}


def on_this_machine(case: Case, folder: Path) -> list[str]:
    """The command with files below `folder`: config.json and a tokenizer, and the settings of rank 0."""
    kind = "bf16" if case.service.convert_to_bf16 else "published"
    model, settings = folder / case.model.replace("/", "--") / kind, folder / "engine.yaml"
    if not model.exists():
        model.mkdir(parents=True)
        served = config(case.model)
        if case.service.convert_to_bf16:
            served = _without(served, "quantization_config")
        (model / "config.json").write_text(json.dumps(served), encoding="utf-8")
        (model / "tokenizer.json").write_text(json.dumps(TOKENIZER), encoding="utf-8")
        settings.write_text("api-key: secret\n", encoding="utf-8")
    there = {case.service.weights.directory: str(model)}
    for replica in case.service.replicas:
        there[container_names.engine_config(replica.nodes[0].container.name)] = str(settings)
    return [there.get(word, word) for word in case.command]


def question(fleet: Fleet, engine: str, cases: Sequence[Case], folder: Path) -> dict[str, Any]:
    """What a driver of commands reads: the GPU, and of each command its words and variables."""
    return {
        "gpu": gpu(fleet),
        "commands": [on_this_machine(case, folder) for case in cases],
        "environments": [dict(case.environment) for case in cases],
    }


def not_enough(engine: str) -> dict[str, str]:
    """The rows of NOT_ENOUGH of the engine, by model."""
    return {model: error for (name, model), error in NOT_ENOUGH.items() if name == engine}


def refused(exceptions: Mapping[str, str], answers: Iterable[tuple[Case, Mapping[str, Any]]]) -> list[str]:
    """The commands that the engine refuses, each with its error; `exceptions` has parts of it, by model."""
    return [
        f"{case.inventory}\n  {' '.join(case.command)}\n  {answer['error']}\n  {answer['at']}"
        for case, answer in answers
        if "error" in answer and exceptions.get(case.model, answer["error"] + "?") not in answer["error"]
    ]


def stale(exceptions: Mapping[str, str], answers: Iterable[tuple[Case, Mapping[str, Any]]]) -> list[str]:
    """The exceptions that no command of their model raises."""
    errors: dict[str, str] = {}
    for case, answer in answers:
        errors[case.model] = errors.get(case.model, "") + answer.get("error", "")
    return [f"{model}: {error}" for model, error in exceptions.items() if error not in errors.get(model, "")]


def gpu(fleet: Fleet) -> dict[str, Any]:
    """The GPU as the engine's environment reports it (drivers/planned_gpu.py)."""
    known = gpus.find(fleet.gpu)
    return {
        "name": f"NVIDIA {known.name}",
        "memory_mib": known.memory_bytes >> 20,
        "capability": list(known.compute_capability or ()),
        "count": fleet.gpus,
    }
