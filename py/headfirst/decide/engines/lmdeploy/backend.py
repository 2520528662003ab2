"""LMDeploy's two back ends, TurboMind and PyTorch: which models each serves, and which one is taken."""

from __future__ import annotations

from collections.abc import Collection

from headfirst.decide.engines.answers import Answers
from headfirst.decide.engines.base import EngineStart, Task, Values, overflow
from headfirst.decide.engines.lmdeploy.support import BackEnd, SupportTable
from headfirst.decide.hardware.gpus import Gpu
from headfirst.decide.model.checkpoint import FLOATS, Checkpoint

TURBOMIND, PYTORCH = "turbomind", "pytorch"
TITLES = {TURBOMIND: "TurboMind", PYTORCH: "the PyTorch engine"}
_MIXTURE = {"fp8", "mxfp4"}  # DeepSeek-V4's (backends/cuda/moe/v4_fp4.py)
# Elements that share a scale, by back end and method; others are refused (turbomind/converter.py,
# _SUPPORTED_GROUP_SIZES; pytorch/config.py, _parse_compressed_tensors_config).
_GROUPS = {
    (TURBOMIND, "awq"): (128,),
    (TURBOMIND, "gptq"): (128,),
    (TURBOMIND, "compressed-tensors"): (32, 128),
    (PYTORCH, "compressed-tensors"): (32,),
}
# Variants of a method that a back end does not read (turbomind/converter.py; pytorch/config.py).
_UNREAD = {
    (TURBOMIND, "gptq"): {"desc_act": "desc_act", "asymmetric": "not symmetric"},
    (TURBOMIND, "awq"): {"version": "a version that is not gemm"},
    (TURBOMIND, "compressed-tensors"): {"group_format": "its group has no format of its own"},
    (PYTORCH, "compressed-tensors"): {
        "asymmetric": "not symmetric",
        "status": "a status that is not compressed",
        "groups": "not one group of all Linear layers",
    },
}
# TurboMind's kernels from 9.0 on (CMakeLists.txt: 90a, 100a, 120a) run on no other compute capability.
_TURBOMIND_ALONE = ((9, 0), (10, 0), (12, 0))
# Images of the project, by docker/install.sh and prepare_3rdparty_wheel.sh.
_IMAGE = "openmmlab/lmdeploy:"
_FLASH_MLA = (9, 0)  # from here on MLA takes FlashMLA (configurations/utils.py), built for Hopper alone
_SPARSE = ("DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM", "GlmMoeDsaForCausalLM")
_FULL_CACHE = ("0", "none")
_FP8_CACHE = ("16", "17", "fp8", "fp8_e4m3", "fp8_e5m2")
# What only the PyTorch engine has, by destination in the arguments' values.
_PYTORCH_ONLY = {"adapters": "--adapters", "speculative_algorithm": "--speculative-algorithm"}
_PYTORCH_ONLY |= {"kv_transfer_config": "--kv-transfer-config", "num_gpu_blocks": "--num-gpu-blocks"}


def choose(
    has: SupportTable,
    checkpoint: Checkpoint | None,
    values: Values,
    *,
    nodes: int = 1,
    runtime: str | None = None,
    adapters: bool = False,
) -> str:
    """The back end: the user's --backend; else TurboMind on one node where it has all that is asked.

    Over several nodes the documented way is the PyTorch engine (advance/pytorch_multinodes.md).
    """
    if "backend" in values:
        return str(values["backend"])
    able = serving(has, checkpoint) if checkpoint else [PYTORCH]
    needs_pytorch = (
        nodes > 1
        or runtime == "ray"
        or adapters
        or values.get("dp", 1) > 1
        or values.get("quant_policy") in _FP8_CACHE
        or any(dest in values for dest in _PYTORCH_ONLY)
    )
    if TURBOMIND in able and not (needs_pytorch and PYTORCH in able):
        return TURBOMIND
    return PYTORCH


def serving(has: SupportTable, checkpoint: Checkpoint) -> list[str]:
    """The back ends that have the checkpoint's architecture and its quantisation; TurboMind first."""
    return [name for name in TITLES if not _missing(has, checkpoint, name)]


def problems(
    answers: Answers, checkpoint: Checkpoint, gpu: Gpu | None, task: Task, values: Values
) -> list[str]:
    """Why the checkpoint cannot be served for `task`, a clause each."""
    has: SupportTable = answers.support
    chosen = choose(has, checkpoint, values)
    who = f"{TITLES[chosen]} of LMDeploy {answers.version}"
    reasons = [f"{who} does not {what}" for what in _missing(has, checkpoint, chosen)]
    if reasons and "backend" in values:
        other = [name for name in serving(has, checkpoint) if name != chosen]
        reasons = [*reasons, *(f"{TITLES[name]} serves it: write --backend {name}" for name in other)]
    reasons += overflow("LMDeploy", checkpoint, gpu, values) + _task(has, checkpoint, task)
    return reasons + _arguments(chosen, values)


def start_problems(answers: Answers, checkpoint: Checkpoint, start: EngineStart) -> list[str]:
    """What the back end has no kernel or no package for, a clause each."""
    gpu, capability = start.gpu, start.gpu.compute_capability if start.gpu else None
    if choose(answers.support, checkpoint, start.values, nodes=start.nodes) == TURBOMIND:
        if capability is None or capability < _TURBOMIND_ALONE[0] or capability in _TURBOMIND_ALONE:
            return []
        other = f": write --backend {PYTORCH}" if PYTORCH in serving(answers.support, checkpoint) else ""
        return [f"TurboMind has no kernels for {gpu}{other}"]
    if _IMAGE not in start.image:
        return []
    architecture, reasons = checkpoint.architecture, []
    if architecture == "Qwen3NextForCausalLM":  # configurations/qwen3_next.py
        reasons.append("it reads full_attention_interval, which Transformers 5 in its image does not keep")
    if architecture == "DeepseekV4ForCausalLM" and start.cuda.startswith("12."):
        image = f"{_IMAGE}v{answers.version}-cu13.0"
        reasons.append(f"only its image for CUDA 13 has tile_kernels: write engine_image={image}")
    sparse = architecture in _SPARSE
    if capability is None or not (sparse or (checkpoint.mla and capability >= _FLASH_MLA)):
        return reasons
    if capability[0] != _FLASH_MLA[0]:
        reasons.append(f"its attention needs FlashMLA, which the image has for Hopper alone, unlike {gpu}")
    elif not sparse and start.values.get("quant_policy", "0") not in _FULL_CACHE:
        reasons.append("FlashMLA reads no quantised KV cache of this model: remove --quant-policy")
    return reasons


def _missing(has: SupportTable, checkpoint: Checkpoint, name: str) -> list[str]:
    """What the back end does not do, as "read …"."""
    table: BackEnd = getattr(has, name)
    known = checkpoint.architecture in table.architectures or not table.architectures
    if not known and not (checkpoint.external_class and name == PYTORCH):
        return [f"support the architecture {checkpoint.architecture}"]
    if table.quantisations and not _reads(table.quantisations, name, checkpoint):
        return [f"read checkpoints quantised as {checkpoint.quantization_name}"]
    if unread := _unread(name, checkpoint):
        kind = checkpoint.quantization_name
        return [f"read checkpoints quantised as {kind} ({', '.join(unread)})"]
    return []


def _unread(name: str, checkpoint: Checkpoint) -> list[str]:
    kind = checkpoint.quantization
    words = _UNREAD.get((name, kind.method), {}) if kind else {}
    return [text for variant, text in words.items() if kind and variant in kind.variants]


def _reads(methods: Collection[str], name: str, checkpoint: Checkpoint) -> bool:
    """Whether the back end reads the method: FP8 of ModelOpt or compressed-tensors is not its `fp8`."""
    kind = checkpoint.quantization
    if kind is None:
        return checkpoint.dtype in (*FLOATS, *methods)
    if kind.is_mixed and set(kind.schemes) != _MIXTURE:
        return False
    if kind.method in ("awq", "gptq") and kind.bits not in (4, None):
        return False
    if kind.method == "compressed-tensors" and (kind.format, kind.scheme) != ("pack-quantized", "int4"):
        return False
    groups = _GROUPS.get((name, kind.method))
    # Without a size GPTQ has a scale for a row; the other methods have their own default.
    size = kind.group_size if kind.method == "gptq" else kind.group_size or 128
    return kind.method in methods and (groups is None or size in groups)


def _task(has: SupportTable, checkpoint: Checkpoint, task: Task) -> list[str]:
    if task in ("embedding", "rerank"):
        return [f"LMDeploy has no API for {task}"]
    if task == "reward" and not checkpoint.architecture.endswith("RewardModel"):
        return [f"LMDeploy serves rewards of reward models only, and {checkpoint.architecture} is not one"]
    if task == "vision" and has.vision and checkpoint.architecture not in has.vision:
        return [f"LMDeploy reads no images with {checkpoint.architecture}"]
    return []


def _arguments(chosen: str, values: Values) -> list[str]:
    """What the engine's configuration classes assert (messages.py; pytorch/engine/executor/__init__.py)."""
    if chosen != TURBOMIND:
        return []
    reasons = [
        f"TurboMind has no {flag}: write --backend {PYTORCH}"
        for dest, flag in _PYTORCH_ONLY.items()
        if dest in values
    ]
    if values.get("quant_policy") in _FP8_CACHE:
        reasons.append("TurboMind has no FP8 KV cache: write --quant-policy 8, or --backend pytorch")
    return reasons
