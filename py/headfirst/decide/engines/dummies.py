"""Ranks without weights: which checkpoints and arguments SGLang and vLLM start with --load-format dummy."""

from __future__ import annotations

from headfirst.decide.engines.base import DummyWeights, Values
from headfirst.decide.engines.host_memory import connectors
from headfirst.decide.model.checkpoint import Checkpoint

# Formats that read the files of the checkpoint as they are: random weights take their place.
_PLAIN_FORMATS = ("auto", "safetensors", "fastsafetensors", "pt", "npcache", "mistral")
# Methods that make the weights of something else than the checkpoint's own tensors while they load.
_LOADED_OTHERWISE = {
    "gguf": "GGUF files are read by a loader of their own",
    "bitsandbytes": "bitsandbytes quantises while it loads",
    "auto-round": "AutoRound repacks the weights while it loads",
    "auto-round-int8": "AutoRound quantises while it loads",
}


def dummy_weights(checkpoint: Checkpoint, values: Values) -> DummyWeights:
    """`--load-format dummy`, or why dummies would prove nothing of the real start."""
    problem = _problem(checkpoint, values)
    return DummyWeights(problem=problem) if problem else DummyWeights(("--load-format", "dummy"))


def _problem(checkpoint: Checkpoint, values: Values) -> str:
    loads = str(values.get("load_format") or "auto")
    if loads not in _PLAIN_FORMATS:
        return f"--load-format {loads} has a loader of its own"
    if values.get("model_loader_extra_config"):
        return "--model-loader-extra-config is for the loader of the real weights"
    if values.get("modelopt_quant"):
        return "--modelopt-quant converts the weights while they load"
    if _keeps_cache(values):
        return "a KV cache that outlives the ranks would keep what dummies have computed"
    methods = {str(values.get("quantization") or ""), checkpoint.quantization_name}
    methods |= {checkpoint.quantization.method} if checkpoint.quantization else set()
    for method, reason in _LOADED_OTHERWISE.items():
        if method in methods:
            return reason
    if checkpoint.quantization and "desc_act" in checkpoint.quantization.variants:
        return "GPTQ in the order of activations has an index that random weights do not have"
    return ""


def _keeps_cache(values: Values) -> bool:
    """Whether other programs, or files, have KV caches of the model after its ranks have ended."""
    kept = values.get("hicache_storage_backend") or values.get("enable_lmcache")
    between = [name for name, _ in connectors(values.get("kv_transfer_config")) if "Nixl" not in name]
    return bool(kept or between or values.get("kv_offloading_backend") == "lmcache")
