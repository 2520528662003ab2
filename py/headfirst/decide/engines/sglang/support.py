"""What SGLang refuses or cannot do with a model, a GPU and arguments, whatever the layout; found out before.

Sources, in sglang/srt: models/registry.py, model_loader/loader.py (_get_quantization_config),
configs/model_config.py (_verify_quantization, _derive_context_length, is_generation_model),
model_executor/model_runner_components/load_model_utils.py (sm75), arg_groups/speculative_hook.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated

from pydantic import Field

from headfirst.decide.engines.answers import MOST, Answers, Word, Words
from headfirst.decide.engines.base import BF16_CAPABILITY, FLOAT_NAMES, Computing, Task, Values, overflow
from headfirst.decide.frozen import Tolerant
from headfirst.decide.hardware.gpus import FP8_CAPABILITY, Gpu, capability_text
from headfirst.decide.model.checkpoint import FLOATS, Checkpoint
from headfirst.decide.model.quantization import Quantization as Quantized
from headfirst.decide.model.task import GENERATING

LOWEST_CAPABILITY = (7, 5)
# Of MXFP8 in a mixture (layers/quantization/fp8_utils.py, _unsupported_mxfp8_linear).
MXFP8_CAPABILITY = (9, 0)
# DeepSeek Sparse Attention, of any latent attention with an index (configs/model_config.py, is_deepseek_dsa),
# has kernels from Hopper on (sglang #35420, layers/attention/dsa_backend.py).
SPARSE_CAPABILITY = (9, 0)
# Of GPTQ, Marlin's kernels read INT4 and INT8 alone, with a scale for so many elements; None: for a row
# (layers/quantization/marlin_utils.py, MARLIN_SUPPORTED_GROUP_SIZES).
_MARLIN_BITS, _MARLIN_GROUPS = (4, 8), (None, 32, 64, 128)
_LONGER, _TRUE = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", {"true", "1", "yes", "y"}  # environ.py, EnvBool


class QuantizationSupport(Tolerant):
    """One method: the lowest compute capability (7.5 is 75), and whether the checkpoint must be quantised."""

    min_capability: Annotated[int, Field(ge=0, le=1000)]
    checkpoint_only: bool = False


class SupportTable(Tolerant):
    """What SGLang has. A table that the answers lack is empty, and nothing is refused by it.

    `abilities` of architectures, as `architectures` of config.json names them: embedding, reward, rerank,
    multimodal, pooling_only (cannot generate text), pipeline (can be divided into stages), window_pool
    (layers with a window have a pool of their own), tracked_states (the prefix cache keeps copies of
    recurrent states), images_when_asked (multimodal only with --enable-multimodal),
    images_with_prefill_graphs, undivided_attention (divided among all ranks, whatever --attn-dp-size is),
    `no class` (in a list of SGLang, without a model class).
    `spanning_exchanges`: values of --moe-a2a-backend whose experts are on all ranks, whatever --ep-size is.
    """

    abilities: Annotated[dict[Word, Words], Field(alias="architectures", max_length=MOST)] = {}
    quantizations: Annotated[dict[Word, QuantizationSupport], Field(max_length=MOST)] = {}
    # Methods of checkpoints for which one is accepted by hand.
    compatible: Annotated[dict[Word, Words], Field(alias="compatible_quantizations", max_length=MOST)] = {}
    spanning_exchanges: Words = frozenset()

    @cached_property
    def _by_ability(self) -> dict[str, frozenset[str]]:
        every = {ability for row in self.abilities.values() for ability in row}
        return {
            ability: frozenset(name for name, row in self.abilities.items() if ability in row)
            for ability in every
        }

    def able(self, ability: str) -> frozenset[str]:
        """The architectures with the ability."""
        return self._by_ability.get(ability, frozenset())

    def lacks(self, architecture: str, ability: str) -> bool:
        """Whether other architectures have the ability, and this one has not."""
        return architecture not in self.able(ability) and bool(self.able(ability))

    def has_class(self, architecture: str) -> bool:
        """Whether there is a model class of this name, as far as is known."""
        row = self.abilities.get(architecture)
        return not self.abilities if row is None else "no class" not in row


def problems(
    answers: Answers, checkpoint: Checkpoint, gpu: Gpu | None, task: Task, values: Values
) -> list[str]:
    """One clause for each reason; empty when it can serve the checkpoint."""
    has: SupportTable = answers.support
    named = f"SGLang {answers.version}"
    return [
        *_architecture(named, has, checkpoint, values),
        *(_gpu(checkpoint, gpu) or _quantization(answers, checkpoint, gpu, values)),
        *(_task(has, checkpoint, task) or _vectors(has, checkpoint, task, values)),
        *overflow("SGLang", checkpoint, gpu, values),
        *_all_to_all(checkpoint, gpu, values),
        *_expert_kernels(checkpoint, gpu, values),
    ]


def _architecture(named: str, has: SupportTable, checkpoint: Checkpoint, values: Values) -> list[str]:
    if (
        has.has_class(checkpoint.architecture)
        or checkpoint.external_class
        or values.get("model_impl") == "transformers"
    ):
        return []
    return [
        f"{named} has no model class {checkpoint.architecture} (--model-impl transformers in "
        "engine_args runs the Transformers library's own, slower, where that library has it)"
    ]


def _gpu(checkpoint: Checkpoint, gpu: Gpu | None) -> list[str]:
    if gpu is None:
        return []
    if gpu.lacks(LOWEST_CAPABILITY):
        return [f"SGLang needs compute capability {capability_text(LOWEST_CAPABILITY)}, unlike {gpu}"]
    if checkpoint.mla is not None and checkpoint.index is not None and gpu.lacks(SPARSE_CAPABILITY):
        lowest = capability_text(SPARSE_CAPABILITY)
        return [f"its sparse attention needs compute capability {lowest}, unlike {gpu} (sglang issue 35420)"]
    return []


def _quantization(answers: Answers, checkpoint: Checkpoint, gpu: Gpu | None, values: Values) -> list[str]:
    has, named = answers.support, f"SGLang {answers.version}"
    argument: str | None = values.get("quantization")
    stored = _method(checkpoint)
    if not has.quantizations or (answers.guessed and (argument or stored) not in has.quantizations):
        return []
    if argument is not None and argument not in has.quantizations:
        return [f"{named} has no quantisation {argument} for NVIDIA GPUs"]
    if stored is None and argument is not None and has.quantizations[argument].checkpoint_only:
        if values.get("quantize_and_serve"):
            return []
        return [
            f"--quantization {argument} needs a checkpoint that is quantised with it, and this one is "
            f"{checkpoint.dtype.upper()} (--quantization fp8 quantises while loading)"
        ]
    # An FP8 checkpoint that is not read on the GPU is converted before (plan/weights/precision.py).
    if argument is None and checkpoint.dtype in (*FLOATS, "fp8"):
        return []
    if stored and argument and has.compatible and not _is_accepted(has, stored, argument):
        return [f"the checkpoint is quantised with {stored}, not with {argument}: leave --quantization out"]
    method = argument or stored or ""
    if method == "gptq":
        method = "gptq_marlin" if _read_by_marlin(checkpoint.quantization) else ""
    if stored == "int8" and argument is None:
        return [
            "its weights are INT8 and its config.json has no quantization_config, which SGLang needs "
            "(--quantization w8a8_int8 where each channel has a scale)"
        ]
    if method not in has.quantizations:
        name = checkpoint.quantization_name if checkpoint.quantization else stored
        return [f"{named} does not load checkpoints quantised with {name} on NVIDIA GPUs"]
    lowest = divmod(has.quantizations[method].min_capability, 10)
    if gpu is not None and gpu.lacks(lowest):
        return [f"{method} needs compute capability {capability_text(lowest)}, unlike {gpu}"]
    parts = checkpoint.quantization.schemes if checkpoint.quantization else ()
    if method == "modelopt_mixed" and "mxfp8" in parts and gpu is not None and gpu.lacks(MXFP8_CAPABILITY):
        needed = capability_text(MXFP8_CAPABILITY)
        return [f"its MXFP8 layers need compute capability {needed}, unlike {gpu}"]
    return []


def _method(checkpoint: Checkpoint) -> str | None:
    """The method that the checkpoint is quantised with, by SGLang's name; None for BF16 and the like."""
    quantization = checkpoint.quantization
    if checkpoint.dtype in FLOATS:
        return None
    if quantization is None or quantization.method != "modelopt":
        return quantization.method if quantization else checkpoint.dtype
    # configs/model_config.py, _parse_modelopt_quant_config
    if "nvfp4" in quantization.schemes:
        return "modelopt_fp4" if len(quantization.schemes) == 1 else "modelopt_mixed"
    return {"fp8": "modelopt_fp8", "mxfp8": "mxfp8"}.get(quantization.scheme, "modelopt")


def _is_accepted(has: SupportTable, stored: str, argument: str) -> bool:
    """Whether --quantization may name another method than the checkpoint's (_verify_quantization)."""
    wide = stored.startswith("modelopt") or argument in ("humming", "moe_wna16")
    alike = argument.startswith(stored) or (argument, stored) == ("w8a8_int8", "int8")
    return wide or alike or stored in has.compatible.get(argument, ())


def _read_by_marlin(quantization: Quantized | None) -> bool:
    """Whether GPTQ's weights are of a kind that Marlin's kernels read (layers/quantization/gptq/gptq.py)."""
    return quantization is None or (
        quantization.bits in _MARLIN_BITS
        and quantization.group_size in _MARLIN_GROUPS
        and "asymmetric" not in quantization.variants
    )


def fp8_capability(has: SupportTable, checkpoint: Checkpoint) -> tuple[int, int] | None:
    """From where on FP8 weights are read; None: not at all.

    Mixtures of experts need FP8 units; the layers of dense models run as weight-only FP8 from 8.0 on
    (layers/quantization/fp8_utils.py, can_auto_enable_marlin_fp8).
    """
    method = has.quantizations.get(_method(checkpoint) or "")
    if method is None and has.quantizations:
        return None
    lowest = divmod(method.min_capability, 10) if method else (0, 0)
    return max((8, 0) if checkpoint.moe is None else FP8_CAPABILITY, lowest)


def _task(has: SupportTable, checkpoint: Checkpoint, task: Task) -> list[str]:
    name = checkpoint.architecture
    if checkpoint.external_class and not has.has_class(name):
        return []
    if task in GENERATING and name in has.able("pooling_only"):
        fitting = next((other for other in ("rerank", "reward") if name in has.able(other)), "embedding")
        return [f"{name} does not generate text: set task={fitting}"]
    if task == "vision" and has.lacks(name, "multimodal"):
        return [f"{name} accepts no images"]
    if task == "embedding" and has.lacks(name, "embedding"):
        return [f"{name} gives no embeddings"]
    if task == "reward" and has.lacks(name, "reward"):
        return [f"{name} gives no rewards"]
    # Besides cross-encoders, /v1/rerank serves chat models with the template of a reranker.
    if task == "rerank" and name in has.able("pooling_only") - has.able("rerank") - has.able("reward"):
        return [f"{name} does not rerank"]
    return []


def _vectors(has: SupportTable, checkpoint: Checkpoint, task: Task, values: Values) -> list[str]:
    """--is-embedding where it takes the text from a model that gives both (is_generation_model)."""
    if not values.get("is_embedding") or task in ("embedding", "reward"):
        return []
    if checkpoint.architecture in has.able("pooling_only"):
        return []
    if task == "rerank":  # entrypoints/openai/serving_rerank.py
        return [f"{checkpoint.architecture} reranks with text that it generates: leave --is-embedding out"]
    return [f"--is-embedding gives no text, and the task is {task}: set task=embedding, or leave it out"]


def _all_to_all(checkpoint: Checkpoint, gpu: Gpu | None, values: Values) -> list[str]:
    """DeepEP has no function for experts that Marlin's or FlashInfer's kernels compute (layers/moe)."""
    if values.get("moe_a2a_backend") != "deepep" or checkpoint.moe is None:
        return []
    quantization = checkpoint.quantization
    schemes = quantization.schemes if quantization else ()
    packed = "int4" in schemes or ("nvfp4" in schemes and gpu is not None and not gpu.reaches((10, 0)))
    if packed or checkpoint.architecture.startswith("NemotronH"):
        kind = quantization.title if quantization else checkpoint.architecture
        return [f"--moe-a2a-backend deepep has no kernels for experts of {kind} on these GPUs"]
    return []


def _expert_kernels(checkpoint: Checkpoint, gpu: Gpu | None, values: Values) -> list[str]:
    """For NVFP4 experts of DeepSeek-V4 it chooses kernels of Blackwell (model_overrides/deepseek_v4.py)."""
    schemes = checkpoint.quantization.schemes if checkpoint.quantization else ()
    chosen = values.get("moe_runner_backend", "auto")
    if not checkpoint.compress_ratios or "nvfp4" not in schemes or chosen == "marlin":
        return []
    if gpu is None or gpu.reaches((10, 0)):
        return []
    return [f"its NVFP4 experts need --moe-runner-backend marlin on {gpu}"]


def length_problems(checkpoint: Checkpoint, values: Values, environment: Mapping[str, str]) -> list[str]:
    """A context that is longer than the model's, or the draft's, which runs at the same positions
    (configs/model_config.py, _derive_context_length)."""
    # A rope_scaling that is given by hand lengthens the context (utils/hf_transformers, get_context_length).
    if "json_model_override_args" in values or environment.get(_LONGER, "").lower() in _TRUE:
        return []
    off = f"(engine_env={_LONGER}=1 turns SGLang's check off)"
    context, draft = values.get("context_length") or checkpoint.max_context, checkpoint.draft
    if context > checkpoint.max_context:
        return [f"--context-length {context} is more than the model's {checkpoint.max_context} {off}"]
    if draft is not None and context > draft.max_context:
        return [
            f"the draft model is made for {draft.max_context} tokens and the service for {context}: set "
            f"engine_args=--context-length {draft.max_context} {off}"
        ]
    return []


def computing(checkpoint: Checkpoint, gpu: Gpu | None, values: Values) -> Computing | None:
    """What configs/model_config.py, _get_and_verify_dtype, makes of --dtype, and load_model_utils.py,
    maybe_downgrade_dtype_for_legacy_gpu, of the GPU."""
    if gpu is None or checkpoint.dtype not in FLOATS:
        return None
    argument = FLOAT_NAMES.get(str(values.get("dtype", "auto")).lower())
    if gpu.lacks(BF16_CAPABILITY):
        dtype, reason = "fp16", f"{gpu} has no BF16"
    elif argument:
        dtype, reason = argument, "--dtype is set"
    elif checkpoint.dtype == "fp32":
        dtype = "bf16" if checkpoint.architecture.startswith("Gemma") else "fp16"
        reason = "it computes FP32 checkpoints in 16 bits"
    else:
        return None
    return None if dtype == checkpoint.dtype else Computing(dtype, reason)
