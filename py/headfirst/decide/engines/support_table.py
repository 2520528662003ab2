"""What one version of an engine supports, as a generated JSON file of the engine's folder has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from headfirst.decide.hardware.gpus import Gpu


@dataclass(frozen=True)
class Quantization:
    """One method: the lowest compute capability (7.5 is 75), and whether the checkpoint must be quantised."""

    min_capability: int
    checkpoint_only: bool = False


@dataclass(frozen=True)
class SupportTable:
    """Architectures by what they can do, as `architectures` of config.json names them, and quantisations."""

    architectures: frozenset[str]
    quantizations: Mapping[str, Quantization]
    embedding: frozenset[str]
    reward: frozenset[str]
    rerank: frozenset[str]
    multimodal: frozenset[str]
    pooling_only: frozenset[str]  # cannot generate text
    pipeline: frozenset[str]  # can be divided into pipeline stages


@cache
def load(package: str, version: str) -> SupportTable:
    """The table support-VERSION.json of the engine's package."""
    text = files(package).joinpath(f"support-{version}.json").read_text(encoding="utf-8")
    table = json.loads(text)
    return SupportTable(
        quantizations={name: Quantization(**entry) for name, entry in table["quantizations"].items()},
        **{
            key: frozenset(table[key])
            for key in (
                "architectures",
                "embedding",
                "reward",
                "rerank",
                "multimodal",
                "pooling_only",
                "pipeline",
            )
        },
    )


def lacks(gpu: Gpu, capability: int) -> bool:
    """Whether the GPU's compute capability is known and lower than this number: 89 is 8.9."""
    return gpu.lacks((capability // 10, capability % 10))
