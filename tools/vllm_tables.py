#!/usr/bin/env python3
"""Write which architectures and quantisations a vLLM version has, as JSON, from its own registries.

Run it as tools/vllm_arguments.py. Optional packages that only exist as CUDA builds are replaced by stand-ins:
the model files import them, and no model is run.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from unittest.mock import MagicMock

import torch
import transformers
import transformers.models.auto.modeling_auto as auto
import vllm
from stand_ins import StandIns

STAND_INS = ("torchvision", "torchaudio", "torchcodec", "timm", "terratorch", "pynvml", "numba")


def architectures() -> tuple[dict[str, list[str]], list[str]]:
    """Architecture -> what its class can do; and the architectures whose class cannot be loaded here."""
    from vllm.model_executor.models import registry
    from vllm.model_executor.models.interfaces import supports_eagle3, supports_lora

    abilities, failed = {}, []
    for name, model in registry.ModelRegistry.models.items():
        if name in registry._SPECULATIVE_DECODING_MODELS or name in registry._TRANSFORMERS_BACKEND_MODELS:
            continue
        try:
            model_class = model.load_model_cls()
            info = registry._ModelInfo.from_model_cls(model_class)
        except Exception as error:  # whatever a model file raises
            failed.append(name)
            print(f"{name}: {error}", file=sys.stderr)
            continue
        can = {
            "generate": info.is_text_generation_model,
            "pooling": info.is_pooling_model,
            "multimodal": info.supports_multimodal,
            "pp": info.supports_pp,
            "lora": supports_lora(model_class),
            "lora_ends": bool(getattr(model_class, "embedding_modules", None)),  # embedding and head, too
            # one matrix for gate and up
            "lora_fused_experts": getattr(model_class, "is_3d_moe_weight", False),
            "hybrid": info.is_hybrid,
            "attention_free": info.is_attention_free,
            "eagle3": supports_eagle3(model_class),  # gives a draft the states of its layers
        }
        abilities[name] = [word for word, holds in can.items() if holds]
    return abilities, failed


def of_transformers(known: set[str]) -> list[str]:
    """Architectures outside the registry that vLLM serves with transformers' own classes."""
    names: set[str] = set()
    for mapping in (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES):
        for entry in mapping.values():
            names |= {entry} if isinstance(entry, str) else set(entry)
    usable = []
    for name in sorted(names - known):
        try:
            usable += [name] if getattr(transformers, name).is_backend_compatible() else []
        except Exception as error:  # whatever a model file raises
            print(f"{name}: {error}", file=sys.stderr)
    return usable


def quantizations() -> dict[str, int]:
    """Method of quantisation -> the lowest compute capability, times ten."""
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS, get_quantization_config

    methods = sorted(QUANTIZATION_METHODS)
    return {name: int(get_quantization_config(name).get_min_capability()) for name in methods}


def in_float32() -> list[str]:
    """Methods of quantisation whose layers compute in FP32, too."""
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS, get_quantization_config

    methods = []
    for name in QUANTIZATION_METHODS:
        dtypes = get_quantization_config(name).get_supported_act_dtypes
        # In some classes it is an instance's, and needs nothing of it.
        if torch.float32 in (dtypes() if hasattr(dtypes, "__self__") else dtypes(None)):
            methods.append(name)
    return sorted(methods)


def without_float16() -> list[str]:
    """Architectures that are not computed in FP16, by transformers' names for their model types."""
    from vllm.config.model import _FLOAT16_NOT_SUPPORTED_MODELS

    mappings = [names for name, names in vars(auto).items() if re.fullmatch("MODEL_.*MAPPING_NAMES", name)]
    entries = [names[kind] for names in mappings for kind in _FLOAT16_NOT_SUPPORTED_MODELS if kind in names]
    return sorted({name for entry in entries for name in ([entry] if isinstance(entry, str) else entry)})


def main() -> int:
    """Write support-<version>.json into the folder named on the command line."""
    from vllm.config.model import iter_architecture_defaults
    from vllm.model_executor.layers.quantization import DEPRECATED_QUANTIZATION_METHODS
    from vllm.model_executor.models.registry import _PREVIOUSLY_SUPPORTED_MODELS, _SPECULATIVE_DECODING_MODELS

    # Only now: the packages above look for optional ones when they are imported.
    sys.meta_path.append(StandIns(STAND_INS, lambda name: MagicMock(name=name)))
    abilities, failed = architectures()
    version = vllm.__version__.partition("+")[0]
    tables = {
        "version": version,
        "source": "model_executor/models/registry.py, layers/quantization, config/model.py, by "
        "tools/vllm_tables.py",
        "quantizations": quantizations(),
        "deprecated_quantizations": sorted(DEPRECATED_QUANTIZATION_METHODS),
        "float32_quantizations": in_float32(),
        "without_float16": without_float16(),
        # Endings of architectures, in the order in which they are tried.
        "suffixes": [suffix for suffix, _ in iter_architecture_defaults()],
        "removed_architectures": dict(sorted(_PREVIOUSLY_SUPPORTED_MODELS.items())),
        "unknown_abilities": sorted(failed),
        "drafts": sorted(_SPECULATIVE_DECODING_MODELS),
        "transformers": of_transformers({*abilities, *failed}),
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in tables.items()]
    models = [f"  {json.dumps(name)}: {json.dumps(can)}" for name, can in sorted(abilities.items())]
    lines.append(' "architectures": {\n' + ",\n".join(models) + "\n }")
    target = Path(sys.argv[1]) / f"support-{version}.json"
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{target}: {len(abilities)} architectures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
