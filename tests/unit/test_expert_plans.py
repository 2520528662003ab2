"""Plans that experts read: what an engine accepts, refuses and needs, by its own code.

Each case is one inventory with a checkpoint, what its plan must have or the refusal, and the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from clusters import planned
from headfirst.common.errors import InputError
from headfirst.control.inventory.inventory import load
from headfirst.decide.plan.types import Plan, PlannedService
from known_models import model as known

QWEN3_32B, QWEN3_8B = "Qwen/Qwen3-32B", "Qwen/Qwen3-8B"
R1 = "deepseek-ai/DeepSeek-R1"


class Case(NamedTuple):
    """`hosts` are the variables of each host; `variables` are lines of [all:vars].

    `refusal`: a part of the error; without it the plan is made, and `words` are in the command of rank 0,
    `absent` are not, and `environment` is in that of rank 0; `note` is a part of the notes,
    `left_out` of what is not chosen; `probe` is the path of readiness,
    `longest` the tokens of the longest request.
    """

    model: str
    variables: str
    source: str
    hosts: tuple[str, ...] = ("gpus=1 gpu=H100-80G",)
    changes: Mapping[str, Any] = {}
    refusal: str = ""
    words: str = ""
    absent: str = ""
    environment: Mapping[str, str] = {}
    note: str = ""
    left_out: str = ""
    probe: str = ""
    fits: bool | None = None
    longest: int = 0


def plan(case: Case, tmp_path: Path) -> Plan:
    path = tmp_path / "cluster.ini"
    lines = [f"n{rank} ansible_host=192.0.2.{rank + 1} {words}" for rank, words in enumerate(case.hosts)]
    workers = ["[workers]", *lines[1:], ""] if lines[1:] else []
    variables = [f"model={case.model}", *case.variables.split("\n")]
    path.write_text("\n".join(["[head]", lines[0], "", *workers, "[all:vars]", *variables, ""]))
    return planned(load([path]), known(case.model, **case.changes))


_LENGTH = "vllm 0.33.0, config/model.py, _get_and_verify_max_len"
_NCCL = "NCCL's documentation, Environment Variables: NCCL_SOCKET_IFNAME, NCCL_IB_HCA"
_DTYPE = "vllm 0.33.0, config/model.py, _resolve_auto_dtype, _FLOAT16_NOT_SUPPORTED_MODELS"
_TEMPLATE = "the models' pages: tokenizer_config.json without chat_template"

CASES: dict[str, Case] = {
    "L7: a longer context than the model's": Case(
        QWEN3_32B,
        'engine=vllm\nengine_args="--max-model-len 131072"',
        _LENGTH,
        refusal="--max-model-len 131072 is more than the model's 40960",
    ),
    "L7: the longest context": Case(
        QWEN3_32B, 'engine=vllm\nengine_args="--max-model-len 40960"', _LENGTH, words="--max-model-len 40960"
    ),
    "L7: the largest that fits": Case(
        QWEN3_32B, 'engine=vllm\nengine_args="--max-model-len auto"', _LENGTH, words="--max-model-len auto"
    ),
    "L7: a user who allows it": Case(
        QWEN3_32B,
        'engine=vllm\nengine_args="--max-model-len 65536"\nengine_env=VLLM_ALLOW_LONG_MAX_MODEL_LEN=True',
        _LENGTH,
        words="--max-model-len 65536",
    ),
    "L7: a value that vLLM does not take for yes": Case(
        QWEN3_32B,
        'engine=vllm\nengine_args="--max-model-len 65536"\nengine_env=VLLM_ALLOW_LONG_MAX_MODEL_LEN=yes',
        _LENGTH,
        refusal="--max-model-len 65536 is more than",
    ),
    "L7: a config with another length": Case(
        QWEN3_32B,
        'engine=vllm\nengine_args="--max-model-len 65536 --hf-overrides \'{\\"max_position_embeddings\\": '
        "65536}'\"",
        _LENGTH,
        words="--max-model-len 65536",
    ),
    "L7: the factor of YaRN alone does not lengthen the context": Case(
        QWEN3_32B,
        'engine=vllm\nengine_args="--max-model-len 65536 --hf-overrides \'{\\"rope_parameters\\": '
        '{\\"rope_type\\": \\"yarn\\", \\"factor\\": 4.0}}\'"',
        _LENGTH,
        refusal="--max-model-len 65536 is more than",
    ),
    "L7: LongRoPE's long factors with the preset for long requests": Case(
        "microsoft/Phi-4-mini-instruct",
        "engine=vllm\npreset=long-context",
        _LENGTH,
        words="--max-model-len 131072",
    ),
    "L7: LongRoPE without long factors": Case(
        "microsoft/Phi-4-mini-instruct", "engine=vllm", _LENGTH, absent="--max-model-len", longest=4096
    ),
    "L7: another engine has LongRoPE's long factors": Case(
        "microsoft/Phi-4-mini-instruct",
        "engine=sglang",
        "sglang 0.5.23, srt/utils/hf_transformers/common.py, get_context_length",
        longest=131072,
    ),
    "L7: a linear factor does": Case(
        QWEN3_32B,
        'engine=vllm\nengine_args="--max-model-len 65536 --hf-overrides \'{\\"rope_parameters\\": '
        '{\\"rope_type\\": \\"linear\\", \\"factor\\": 4.0}}\'"',
        _LENGTH,
        words="--max-model-len 65536",
    ),
    "L7: SGLang with a user who allows it": Case(
        QWEN3_32B,
        'engine_args="--context-length 65536"\nengine_env=SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1',
        "sglang 0.5.23, configs/model_config.py, _derive_context_length; environ.py, EnvBool",
        words="--context-length 65536",
    ),
    "L20: a size that is not built": Case(
        R1,
        "prefill_replicas=2",
        "issue: nothing that changes what is served is a note",
        refusal="prefill_replicas",
    ),
    "L20: capitals": Case(QWEN3_32B, "PRESET=throughput", "issue: the same", refusal="PRESET"),
    "L12: NCCL gets whole names, Gloo a plain one": Case(
        R1,
        "nic=bond0\nhca=mlx5_1,mlx5_2\nib_gid_index=3\ntrust_remote_code=true",
        _NCCL,
        hosts=("gpus=8 gpu=H100-80G",) * 2,
        environment={
            "NCCL_SOCKET_IFNAME": "=bond0",
            "GLOO_SOCKET_IFNAME": "bond0",
            "NCCL_IB_HCA": "=mlx5_1,mlx5_2",
        },
    ),
    "L12: vLLM": Case(
        R1,
        "engine=vllm\nnic=bond0\nhca=mlx5_1:1\nib_gid_index=3\ntrust_remote_code=true",
        _NCCL,
        hosts=("gpus=8 gpu=H200-141G",) * 2,
        environment={"NCCL_SOCKET_IFNAME": "=bond0", "NCCL_IB_HCA": "=mlx5_1:1"},
    ),
    "L12: the beginning of names stays one": Case(
        R1,
        "nic=bond0\nhca=mlx5\nib_gid_index=3\ntrust_remote_code=true",
        _NCCL,
        hosts=("gpus=8 gpu=H100-80G",) * 2,
        environment={"NCCL_IB_HCA": "mlx5"},
    ),
    "L12: all but one": Case(
        R1,
        "nic=bond0\nhca=^mlx5_1\nib_gid_index=3\ntrust_remote_code=true",
        _NCCL,
        hosts=("gpus=8 gpu=H100-80G",) * 2,
        environment={"NCCL_IB_HCA": "^=mlx5_1"},
    ),
    "L12: a user's own form": Case(
        R1,
        "nic=bond0\nhca=none\nengine_env=NCCL_SOCKET_IFNAME=bond\ntrust_remote_code=true",
        _NCCL,
        hosts=("gpus=8 gpu=H100-80G",) * 2,
        environment={"NCCL_SOCKET_IFNAME": "bond", "GLOO_SOCKET_IFNAME": "bond0"},
    ),
    "L8: vLLM's image has no kernels for Volta": Case(
        QWEN3_8B,
        "engine=vllm",
        "cubins of the wheels of vllm 0.32.0 and 0.33.0: sm_75 to sm_120",
        hosts=("gpus=1 gpu=V100-32G",),
        refusal="has kernels from compute capability 7.5 on, unlike V100-32G",
    ),
    "L8: gemma-3 on a GPU without BF16 is float32": Case(
        "google/gemma-3-4b-it",
        "engine=vllm",
        _DTYPE,
        hosts=("gpus=1 gpu=T4",),
        fits=False,
        note="vLLM computes in FP32, and the checkpoint is BF16: T4 (compute capability 7.5) has no BF16",
    ),
    "L8: two GPUs hold it": Case(
        "google/gemma-3-4b-it",
        'engine=vllm\nengine_args="--max-model-len 8192"',
        _DTYPE,
        hosts=("gpus=2 gpu=T4",),
        fits=True,
    ),
    "L8: SGLang would compute it in float16": Case(
        "google/gemma-3-4b-it",
        "",
        "sglang 0.5.23, model_executor, maybe_downgrade_dtype_for_legacy_gpu",
        hosts=("gpus=1 gpu=T4",),
        refusal="SGLang computes in FP16, in which Gemma3ForConditionalGeneration overflows: T4 (compute cap",
    ),
    "L8: LMDeploy would, too": Case(
        "google/gemma-3-4b-it",
        "engine=lmdeploy",
        "lmdeploy 0.18.0, pytorch/config.py, _update_torch_dtype",
        hosts=("gpus=1 gpu=T4",),
        refusal="LMDeploy computes in FP16, in which Gemma3ForConditionalGeneration overflows: T4",
    ),
    "L8: float16 is set where the GPU has BF16": Case(
        "google/gemma-3-4b-it",
        "engine_args='--dtype half'",
        "vllm 0.33.0, config/model.py, _FLOAT16_NOT_SUPPORTED_MODELS",
        hosts=("gpus=1 gpu=L40S",),
        refusal="overflows: write --dtype bfloat16",
    ),
    "L8: SGLang computes others in float16": Case(
        "Qwen/Qwen3-4B",
        "",
        "sglang 0.5.23, model_executor, maybe_downgrade_dtype_for_legacy_gpu",
        hosts=("gpus=1 gpu=T4",),
        fits=True,
    ),
    "L15: a preset for an image of another version": Case(
        QWEN3_8B,
        "engine_image=lmsysorg/sglang:v0.5.9\npreset=throughput",
        "a preset applies where its arguments exist",
        fits=True,
        note="is of SGLang 0.5.9: arguments and models are checked against the snapshot of SGLang 0.5.23",
    ),
    "L15: parsers": Case(
        QWEN3_8B,
        "engine=vllm\nengine_image=vllm/vllm-openai:v0.11.0\nparsers=auto",
        "a preset applies where its arguments exist",
        fits=True,
        note="is of vLLM 0.11.0: arguments and models are checked against the snapshot of vLLM 0.33.0",
    ),
    "L15: without a preset the version is a note": Case(
        QWEN3_8B,
        "engine_image=lmsysorg/sglang:v0.5.9\nparsers=none",
        "a preset applies where its arguments exist",
        note="is of SGLang 0.5.9: arguments and models are checked against the snapshot of SGLang 0.5.23",
    ),
    "L16: GB200-186G is on ARM hosts": Case(
        QWEN3_8B,
        "",
        "NVIDIA's Grace: decide/hardware/gpus.json",
        hosts=("gpus=1 gpu=GB200-186G",),
        note="Hosts with GB200-186G are ARM (aarch64)",
    ),
    "NVLink between hosts of GB200": Case(
        "deepseek-ai/DeepSeek-R1",
        "",
        "NVIDIA/srt-slurm sets NCCL_MNNVL_ENABLE where Slurm has IMEX channels; roles/ set none up",
        hosts=("gpus=4 gpu=GB200-186G",) * 4,
        note="NVLink between hosts with GB200-186G is not used",
    ),
    "L16: GH200-96G is on ARM hosts": Case(
        QWEN3_8B,
        "",
        "NVIDIA's Grace: decide/hardware/gpus.json",
        hosts=("gpus=1 gpu=GH200-96G",),
        note="Hosts with GH200-96G are ARM (aarch64)",
    ),
    "L16: GB10 is on ARM hosts": Case(
        QWEN3_8B,
        "",
        "NVIDIA's Grace: decide/hardware/gpus.json",
        hosts=("gpus=1 gpu=GB10",),
        note="Hosts with GB10 are ARM (aarch64)",
    ),
    "L9: a base checkpoint continues texts": Case(
        "meta-llama/Llama-3.1-8B",
        "preset=throughput",
        _TEMPLATE,
        note="no chat template: task=completion",
        probe="/v1/completions",
    ),
    "L9: Mixtral with vLLM": Case(
        "mistralai/Mixtral-8x7B-v0.1",
        "engine=vllm\nparsers=auto",
        _TEMPLATE,
        hosts=("gpus=4 gpu=H100-80G",),
        probe="/v1/completions",
        left_out="parsers=auto adds nothing: task=completion has no chats",
    ),
    "L9: it cannot chat": Case(
        "meta-llama/Llama-3.1-70B",
        "task=chat",
        _TEMPLATE,
        hosts=("gpus=8 gpu=H100-80G",),
        refusal="task=chat, but meta-llama/Llama-3.1-70B has no chat template",
    ),
    "L9: a template by hand makes it a chat": Case(
        "meta-llama/Llama-3.1-8B",
        'engine_args="--chat-template /templates/llama.jinja"',
        _TEMPLATE,
        probe="/v1/chat/completions",
    ),
    "L9: a chat checkpoint chats": Case(
        "meta-llama/Llama-3.1-8B-Instruct", "", _TEMPLATE, probe="/v1/chat/completions"
    ),
}


def holds(part: str, whole: list[str]) -> bool:
    """Whether the words of `part` are in `whole`, in a row."""
    words = part.split()
    return any(whole[at : at + len(words)] == words for at in range(len(whole)))


def check(case: Case, service: PlannedService) -> None:
    container = service.replicas[0].nodes[0].container
    if case.words:
        assert holds(case.words, container.command), container.command
    if case.absent:
        assert not holds(case.absent, container.command), container.command
    if case.fits is not None:
        assert service.fit.fits is case.fits, service.fit.reason
    if case.longest:
        assert service.fit.longest_request == case.longest
    if case.probe:
        assert service.readiness.probe_path == case.probe
    assert case.left_out in " ".join(service.arguments_left_out)
    assert case.note in " ".join([*service.warnings, *service.notes])
    assert case.environment.items() <= container.environment.items()


@pytest.mark.parametrize("name", CASES)
def test_what_experts_expect(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    if case.refusal:
        with pytest.raises(InputError) as error:
            plan(case, tmp_path)
        assert case.refusal in f"{error.value} {error.value.hint}"
        return
    check(case, plan(case, tmp_path).services[0])
