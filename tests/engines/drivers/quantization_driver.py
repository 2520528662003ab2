"""The quantisation by which an engine loads a checkpoint, by its own check of config.json and --quantization.

The question is {"engine": …, "capability": [major, minor], "configs": [quantization_config or null, …],
"given": [method or null, …]}; the answer has for each config a list with the method that results of each; ""
where there is none, null where the engine refuses.
"""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import planned_gpu


def sglang(gpu: dict[str, Any]) -> Any:
    """What SGLang's class of a model's configuration makes of a config and a method."""
    import sglang_driver

    planned_gpu.install(gpu, sglang_driver.ABSENT)
    from sglang.srt.configs.model_config import ModelConfig

    def check(config: dict[str, Any] | None, given: str | None) -> str | None:
        model = ModelConfig.__new__(ModelConfig)
        model.hf_config = SimpleNamespace(quantization_config=config)
        model.model_path, model.is_draft_model, model.quantization = ".", False, given
        model._verify_quantization()
        return model.quantization

    return check


def vllm(gpu: dict[str, Any]) -> Any:
    """What vLLM's class of a model's configuration makes of a config and a method."""
    import vllm_driver

    vllm_driver.start(gpu)
    from vllm.config.model import ModelConfig
    from vllm.transformers_utils.model_arch_config_convertor import ModelArchConfigConvertorBase

    def check(config: dict[str, Any] | None, given: str | None) -> str | None:
        published = SimpleNamespace(model_type="llama", architectures=["LlamaForCausalLM"])
        if config is not None:
            published.quantization_config = config
        converter = ModelArchConfigConvertorBase.__new__(ModelArchConfigConvertorBase)
        converter.hf_config = published
        model = ModelConfig.__new__(ModelConfig)
        model.hf_config, model.quantization, model.allow_deprecated_quantization = published, given, False
        model.model_arch_config = SimpleNamespace(quantization_config=converter.get_quantization_config())
        model._verify_quantization()
        return model.quantization

    return check


def loaded(check: Any, config: dict[str, Any] | None, given: str | None) -> str | None:
    """The result of the engine's check; None where it raises."""
    try:
        return check(copy.deepcopy(config), given) or ""
    except ValueError:
        return None


def main() -> None:
    """Answers one file of questions."""
    question = planned_gpu.question()
    gpu = {"name": "NVIDIA GPU", "memory_mib": 81920, "capability": question["capability"], "count": 8}
    check = {"sglang": sglang, "vllm": vllm}[question["engine"]](gpu)
    planned_gpu.write(
        [[loaded(check, config, given) for given in question["given"]] for config in question["configs"]]
    )


if __name__ == "__main__":
    main()
