"""Which quantised checkpoints LMDeploy's two back ends read.

The question has config.json of checkpoints; the answer has for each {back end: whether it reads it}.
"""

from __future__ import annotations

from typing import Any

import lmdeploy_driver
import planned_gpu
from model_folder import model_folder

GPU = {"name": "NVIDIA H100", "memory_mib": 81920, "capability": [9, 0], "count": 8}


def turbomind(folder: str) -> None:
    """Reads the checkpoint as TurboMind's converter does before it loads weights."""
    from lmdeploy import TurbomindEngineConfig
    from lmdeploy.turbomind import converter, turbomind

    config = TurbomindEngineConfig()
    turbomind.update_parallel_config(config)
    converter._get_executable_dtypes = lambda *_words: {"bfloat16", "float16"}
    converter.get_tm_config(folder, config)


def pytorch(folder: str) -> None:
    """Reads the checkpoint as the PyTorch engine does before it makes the model."""
    from lmdeploy.pytorch.config import ModelConfig

    ModelConfig.from_pretrained(folder, device_type="cuda")


def reads(reader: Any, config: dict[str, Any]) -> bool:
    """Whether the back end's reader takes the config."""
    with model_folder({"config": config}) as folder:
        try:
            reader(folder)
        except (AssertionError, KeyError, NotImplementedError, TypeError, ValueError) as error:
            print(reader.__name__, config.get("quantization_config"), type(error).__name__, error)
            return False
    return True


def main() -> None:
    """Answers one file of questions."""
    question = planned_gpu.question()
    planned_gpu.install(GPU, [*lmdeploy_driver.ABSENT, *lmdeploy_driver.TURBOMIND])
    readers = {"turbomind": turbomind, "pytorch": pytorch}
    planned_gpu.write(
        [{name: reads(reader, config) for name, reader in readers.items()} for config in question]
    )


if __name__ == "__main__":
    main()
