"""What vLLM's own functions make of attention kernels below Hopper, and of scaled positions.

Of an FP8 KV cache on compute capability 8.0 the answer has "heads": sizes with which vLLM takes FlashInfer's
kernels; "sinks" and "prefix": whether it does so with attention sinks, and with attention in both directions
within an image; "triton": whether Triton's kernels have such a cache. "forced" are architectures for which it
sets Triton's kernels, "in images" those with attention in both directions. "with sinks" are modules of models
that give their attention sinks, each with its architectures. "scaled" are types of positions whose factor
does not lengthen the context.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import planned_gpu
import torch
import vllm_driver

AMPERE = (8, 0)
CONTEXT, FACTOR = 1000, 4.0


def with_flashinfer(head_size: int, **settings: bool) -> bool:
    """Whether vLLM takes FlashInfer's kernels for an FP8 KV cache."""
    from vllm.platforms import current_platform
    from vllm.platforms.interface import DeviceCapability
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    from vllm.v1.attention.selector import AttentionSelectorConfig

    selected = AttentionSelectorConfig(head_size, torch.bfloat16, "fp8", None, **settings)
    valid, _ = current_platform.get_valid_backends(DeviceCapability(*AMPERE), selected, 16)
    first = min(valid, key=lambda candidate: candidate.priority, default=None)
    return first is not None and first.backend == AttentionBackendEnum.FLASHINFER


def with_triton() -> bool:
    """Whether Triton's kernels have an FP8 KV cache."""
    from vllm.v1.attention.backends.triton_attn import TritonAttentionImpl

    try:
        TritonAttentionImpl(16, 128, 1.0, 16, None, None, "fp8")
    except ValueError:
        return False
    return True


def forced() -> list[str]:
    """Architectures whose checks of the configuration set Triton's kernels, with heads of two sizes."""
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    names = []
    for name, checks in MODELS_CONFIG_MAP.items():
        config = MagicMock()
        config.attention_config = SimpleNamespace(backend=None, flash_attn_version=None, use_non_causal=False)
        config.model_config.hf_text_config.layer_types = ["sliding_attention", "full_attention"]
        architecture = config.model_config.model_arch_config
        architecture.total_num_hidden_layers = 2
        architecture.__getitem__.side_effect = lambda at: SimpleNamespace(head_size=(256, 512)[at])
        try:
            checks.verify_and_update_config(config)
        except Exception as error:  # of a check of other settings
            print(name, type(error).__name__, error)
        if config.attention_config.backend == AttentionBackendEnum.TRITON_ATTN:
            names.append(name)
    return names


def registered() -> dict[str, list[str]]:
    """Module of models -> its architectures, without draft models."""
    from vllm.model_executor.models import registry

    modules: dict[str, list[str]] = {}
    for name, model in registry.ModelRegistry.models.items():
        if name not in registry._SPECULATIVE_DECODING_MODELS:
            modules.setdefault(model.module_name.rpartition(".")[2], []).append(name)
    return modules


def in_images(modules: dict[str, list[str]]) -> list[str]:
    """Architectures of the model types that have attention in both directions within an image."""
    from transformers.models.auto import modeling_auto as auto
    from vllm.transformers_utils.model_arch_config_convertor import ModelArchConfigConvertorBase

    function = ModelArchConfigConvertorBase.is_mm_prefix_lm
    kinds = next(value for value in function.__code__.co_consts if isinstance(value, tuple))
    names: set[str] = set()
    for kind in kinds:
        config = SimpleNamespace(model_type=kind)
        assert function(SimpleNamespace(hf_config=config)), kind
        known = auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.get(kind)
        names.update([known] if known else modules[kind])
    return sorted(names)


def with_sinks(modules: dict[str, list[str]]) -> dict[str, list[str]]:
    """Modules that give an attention layer `sinks`, or have the class from one that does."""
    from vllm.model_executor import models

    files = {path.stem: ast.parse(path.read_text()) for path in Path(models.__path__[0]).glob("*.py")}
    givers = {name for name, tree in files.items() if any(_given(node) for node in ast.walk(tree))}
    takers = {name for name, tree in files.items() if givers & set(_attention_from(tree))}
    return {name: modules[name] for name in sorted(givers | takers) if name in modules}


def _given(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and any(word.arg == "sinks" for word in node.keywords)


def _attention_from(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any("Attention" in alias.name for alias in node.names):
            yield (node.module or "").rpartition(".")[2]


def scaled() -> list[str]:
    """Types of scaled positions, of vLLM's and transformers' own names."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from vllm.config import model
    from vllm.model_executor.layers import rotary_embedding

    text = Path(rotary_embedding.__file__).read_text() + Path(model.__file__).read_text()
    names = {*ROPE_INIT_FUNCTIONS, *re.findall(r'"(\w+)"', text)}
    architecture = SimpleNamespace(derived_max_model_len_and_key=(CONTEXT, "max_position_embeddings"))

    def lengthens(kind: str) -> bool:
        config = SimpleNamespace(model_type="llama", rope_parameters={"rope_type": kind, "factor": FACTOR})
        try:
            model._get_and_verify_max_len(config, architecture, None, CONTEXT + 1, False, None)
        except ValueError:
            return False
        return True

    return sorted(name for name in names if not lengthens(name))


def main() -> None:
    """Answers without a question."""
    vllm_driver.start({"name": "NVIDIA GPU", "memory_mib": 81920, "capability": AMPERE, "count": 8})
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.v1.attention.backends import fa_utils
    from vllm_without_gpu import OnMeta

    # FlashAttention 4 begins with Hopper (vllm_flash_attn/flash_attn_interface.py, which has a stand-in).
    fa_utils.is_fa_version_supported = lambda version: version < 4
    with OnMeta(), set_current_vllm_config(VllmConfig()):  # a module of the backends makes a buffer
        modules = registered()
        planned_gpu.write(
            {
                "heads": [size for size in range(8, 1032, 8) if with_flashinfer(size)],
                "sinks": with_flashinfer(128, has_sink=True),
                "prefix": with_flashinfer(128, use_mm_prefix=True),
                "triton": with_triton(),
                "forced": forced(),
                "in images": in_images(modules),
                "with sinks": with_sinks(modules),
                "scaled": scaled(),
            }
        )


if __name__ == "__main__":
    main()
