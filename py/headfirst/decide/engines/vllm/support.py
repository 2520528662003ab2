"""What a vLLM version can serve, by tables from its own registries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field

from headfirst.decide.engines import lora
from headfirst.decide.engines.answers import MOST, Answers, Word, Words
from headfirst.decide.engines.base import BF16_CAPABILITY, FLOAT_NAMES, Computing, Task, Values
from headfirst.decide.frozen import Tolerant
from headfirst.decide.hardware.gpus import FP8_CAPABILITY, Gpu, capability_text
from headfirst.decide.model.checkpoint import FLOATS, Checkpoint
from headfirst.decide.model.task import GENERATING

# Names in checkpoints -> the registry's (override_quantization_method, _normalize_quantization_config).
_ALIASES = {"auto-round": "inc", "compressed_tensors": "compressed-tensors"}
# Kept whatever --quantization is, unless that is Humming's.
_KEPT = ("auto-round", "modelopt", "modelopt_fp4", "modelopt_mixed", "modelopt_mxfp8")
SPARSE_CAPABILITY = (9, 0)
# Values of --convert, and what serves them.
_CONVERTED = {"embed": "task=embedding", "classify": "task=rerank"}
# The lowest of the cubins in both wheels (vllm/_C_stable_libtorch.abi3.so: sm_75 to sm_120): CUDA 13 has no
# compiler for Volta.
LOWEST_CAPABILITY = (7, 5)
_LONGER, _TRUE = "VLLM_ALLOW_LONG_MAX_MODEL_LEN", ("1", "true")  # envs.py
# With them max_position_embeddings is the context; the factor of other types multiplies it (config/model.py,
# _get_and_verify_max_len).
_SCALED_ROPE = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")
_ROPE = frozenset({"rope_parameters", "rope_scaling"})


class SupportTable(Tolerant):
    """What vLLM has. A table that the answers lack is empty, and nothing is refused by it.

    `architectures` have abilities: generate, pooling, multimodal, pp, lora, … `suffixes`: endings of names,
    by which it takes one class for another. `quantizations` have the lowest compute capability (7.5 is 75).
    """

    architectures: Annotated[dict[Word, Words], Field(max_length=MOST)] = {}
    suffixes: Annotated[tuple[Word, ...], Field(max_length=100)] = ()
    unknown_abilities: Words = frozenset()
    transformers: Words = frozenset()
    quantizations: Annotated[dict[Word, Annotated[int, Field(ge=0, le=1000)]], Field(max_length=MOST)] = {}
    deprecated_quantizations: Words = frozenset()
    without_float16: Words = frozenset()

    def abilities(self, architecture: str) -> frozenset[str] | None:
        """What the architecture's class can do; None: not known.

        vLLM takes an architecture that it does not have for the one with another of its endings (registry.py,
        _normalize_arch): XForSequenceClassification is XForCausalLM with another head.
        """
        if architecture in self.architectures:
            return self.architectures[architecture]
        suffix = next((suffix for suffix in self.suffixes if architecture.endswith(suffix)), "")
        for other in self.suffixes if suffix else ():
            base = architecture.removesuffix(suffix) + other
            if base in self.architectures:
                return self.architectures[base]
        return None

    def lacks(self, architecture: str, ability: str) -> bool:
        """Whether the class is known and cannot do what others can."""
        can = self.abilities(architecture)
        return (
            can is not None
            and ability not in can
            and any(ability in row for row in self.architectures.values())
        )

    def capability(self, method: str) -> tuple[int, int] | None:
        """The lowest compute capability for a method of quantisation; None: there is no such method."""
        if not self.quantizations:
            return LOWEST_CAPABILITY
        lowest = self.quantizations.get(_ALIASES.get(method, method))
        return None if lowest is None else divmod(lowest, 10)


def problems(
    answers: Answers, checkpoint: Checkpoint, gpu: Gpu | None, task: Task, values: Values
) -> list[str]:
    """Why the checkpoint cannot be served, a clause each."""
    has: SupportTable = answers.support
    named = f"vLLM {answers.version}"
    return [
        *_architecture(named, has, checkpoint, task, values),
        *_runner(task, values),
        *(_gpu(named, gpu) or _quantization(answers, checkpoint, gpu, values)),
        *_sparse_attention(named, checkpoint, gpu),
        *_fp8_cache(named, checkpoint, gpu, values),
    ]


def _architecture(
    named: str, has: SupportTable, checkpoint: Checkpoint, task: Task, values: Values
) -> Iterator[str]:
    name = checkpoint.architecture
    if has.abilities(name) is None:
        elsewhere = checkpoint.external_class or name in has.transformers | has.unknown_abilities
        if has.architectures and not elsewhere:
            yield f"{named} does not have the architecture {name}"
        return
    if task in GENERATING and has.lacks(name, "generate"):
        yield f"{name} gives embeddings or scores and does not generate text"
    if task == "vision" and has.lacks(name, "multimodal"):
        yield f"{named} gives {name} no images"
    if lora.are_served(checkpoint, values) and has.lacks(name, "lora"):
        yield f"{named} has no LoRA for {name}"


def _runner(task: Task, values: Values) -> Iterator[str]:
    """A --runner or --convert that serves another task (config/model.py, _get_runner_type)."""
    runner, convert = values.get("runner", "auto"), values.get("convert", "auto")
    pools = task not in GENERATING
    if not pools and (runner == "pooling" or convert in _CONVERTED):
        fitting = _CONVERTED.get(convert, "task=embedding, rerank or reward")
        flag = "--runner pooling" if runner == "pooling" else f"--convert {convert}"
        yield f"{flag} gives no text, and the task is {task}: set {fitting}, or leave it out"
    elif runner == "draft" or (pools and runner == "generate"):
        yield f"--runner {runner} does not serve the task {task}: leave it out"
    elif task == "embedding" and convert == "classify":
        yield "--convert classify gives no embeddings: set task=rerank, or leave it out"


def _gpu(named: str, gpu: Gpu | None) -> list[str]:
    if gpu is None or not gpu.lacks(LOWEST_CAPABILITY):
        return []
    lowest = capability_text(LOWEST_CAPABILITY)
    return [f"{named} has kernels from compute capability {lowest} on, unlike {gpu}"]


def computing(has: SupportTable, checkpoint: Checkpoint, gpu: Gpu | None, values: Values) -> Computing | None:
    """What config/model.py, _get_and_verify_dtype, makes of --dtype, and of `auto` on this GPU."""
    plain, dtype = checkpoint.dtype in FLOATS, FLOAT_NAMES.get(str(values.get("dtype", "auto")).lower())
    if gpu is None or not plain or dtype == checkpoint.dtype:
        return None
    if dtype:
        return Computing(dtype, "--dtype is set")
    supported = _supported(has, checkpoint, gpu)
    if checkpoint.dtype in supported and checkpoint.dtype != "fp32":
        return None
    if checkpoint.dtype == "fp32":
        reason = "it computes FP32 checkpoints in 16 bits where it can"
    else:
        reason = f"{gpu} has no BF16" if gpu.lacks(BF16_CAPABILITY) else "FP16 overflows in this architecture"
        if supported[0] == "fp32":
            reason += f", and FP16 overflows in {checkpoint.architecture}"
    return None if supported[0] == checkpoint.dtype else Computing(supported[0], reason)


def _supported(has: SupportTable, checkpoint: Checkpoint, gpu: Gpu) -> list[str]:
    """Types in which it computes, the preferred first (platforms/cuda.py, supported_dtypes)."""
    types = ["fp16", "fp32"] if gpu.lacks(BF16_CAPABILITY) else ["bf16", "fp16", "fp32"]
    without = checkpoint.architecture in has.without_float16
    return [name for name in types if name != "fp16" or not without]


def _sparse_attention(named: str, checkpoint: Checkpoint, gpu: Gpu | None) -> Iterator[str]:
    """Latent attention with an index, and DeepSeek-V4's (v1/attention/backends/mla)."""
    indexed = checkpoint.mla is not None and checkpoint.index is not None
    if (indexed or checkpoint.compress_ratios) and gpu is not None and gpu.lacks(SPARSE_CAPABILITY):
        lowest = capability_text(SPARSE_CAPABILITY)
        yield f"{named} has its sparse attention from compute capability {lowest} on, unlike {gpu}"


def _fp8_cache(named: str, checkpoint: Checkpoint, gpu: Gpu | None, values: Values) -> Iterator[str]:
    """Below Ada only FlashInfer's kernels read FP8, from 8.0 on and not of latent attention
    (v1/attention/backends)."""
    read = checkpoint.mla is None and gpu is not None and gpu.reaches(BF16_CAPABILITY)
    argument = str(values.get("kv_cache_dtype", "auto"))
    stored = checkpoint.quantization.kv_cache if checkpoint.quantization else ""
    kept = stored if argument == "auto" else argument
    if gpu is not None and gpu.lacks(FP8_CAPABILITY) and not read and kept.startswith("fp8"):
        lowest = capability_text(FP8_CAPABILITY)
        yield f"{named} reads an FP8 KV cache here from compute capability {lowest} on, unlike {gpu}"


def _method(checkpoint: Checkpoint) -> str:
    """The registry's name of what the checkpoint has (layers/quantization/modelopt.py)."""
    quantization = checkpoint.quantization
    if checkpoint.dtype in FLOATS or quantization is None:
        return checkpoint.dtype
    schemes = quantization.schemes
    if quantization.method != "modelopt" or not schemes:
        return quantization.method
    names = {"nvfp4": "modelopt_fp4", "mxfp8": "modelopt_mxfp8"}
    return names.get(schemes[0], "modelopt") if len(schemes) == 1 else "modelopt_mixed"


def _quantization(answers: Answers, checkpoint: Checkpoint, gpu: Gpu | None, values: Values) -> Iterator[str]:
    """What config/model.py, _verify_quantization, refuses, and a GPU that lacks the method's kernels."""
    named, has = f"vLLM {answers.version}", answers.support
    argument, stored = values.get("quantization"), _method(checkpoint)
    # An FP8 checkpoint that is not read on the GPU is converted before (plan/weights/precision.py).
    if argument is None and stored == "int8":
        yield "its weights are INT8 and its config.json has no quantization_config, which vLLM needs"
    if argument is None and checkpoint.dtype in (*FLOATS, "fp8", "int8"):
        return
    method = stored if argument is None or (stored in _KEPT and argument != "humming") else argument
    lowest = has.capability(method)
    if lowest is None:
        yield from () if answers.guessed else (f"{named} does not have the quantisation {method}",)
    elif gpu is not None and gpu.lacks(lowest):
        needed = capability_text(lowest)
        yield f"{named} serves {method} from compute capability {needed} on, unlike {gpu}"


def fp8_capability(has: SupportTable, checkpoint: Checkpoint) -> tuple[int, int] | None:
    """From where on FP8 weights are read, below Ada unpacked by Marlin's kernels; None: not at all."""
    method = _method(checkpoint)
    plain, lowest = has.capability("fp8"), has.capability(method)
    if plain is None or lowest is None or method in has.deprecated_quantizations:
        return None
    return max(plain, lowest)


def length_problems(checkpoint: Checkpoint, values: Values, environment: Mapping[str, str]) -> list[str]:
    """A --max-model-len that is more than the model's context (config/model.py, _get_and_verify_max_len)."""
    limit, most = values.get("max_model_len") or 0, _context(checkpoint, values.get("hf_overrides") or {})
    if most is None or limit <= most or environment.get(_LONGER, "").strip().lower() in _TRUE:
        return []
    return [
        f"--max-model-len {limit} is more than the model's {most} (engine_env={_LONGER}=1 turns vLLM's check "
        "off)"
    ]


def _context(checkpoint: Checkpoint, overrides: object) -> int | None:
    """Tokens of the longest request with --hf-overrides; None: these may set another length."""
    if not isinstance(overrides, dict):
        return None
    lengths = {key for key in overrides if re.search("rope|max_|length|seq|config", key)}
    if lengths - _ROPE:
        return None
    ropes = [overrides[key] for key in lengths]
    scaled = all(isinstance(rope, dict) and rope.get("rope_type") in _SCALED_ROPE for rope in ropes)
    return checkpoint.max_context if scaled else None
