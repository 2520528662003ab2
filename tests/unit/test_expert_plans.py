"""Plans that experts read: what an engine accepts, refuses and needs, by its own code.

Each case is one inventory with a checkpoint, what its plan must have or the refusal, and the source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from clusters import planned
from headfirst.common.errors import InputError
from headfirst.control.inventory.inventory import load
from headfirst.decide.plan.types import Plan, PlannedService
from known_models import model as known


class Case(NamedTuple):
    """`gpus`: of the hosts, `2 x 8 x H100-80G` are two with eight GPUs each; `set`: lines of [all:vars]."""

    model: str
    source: str
    gpus: str = "1 x H100-80G"
    set: Sequence[str] = ()

    @property
    def hosts(self) -> list[str]:
        """The variables of each host."""
        *hosts, each, gpu = self.gpus.split(" x ")
        return [f"gpus={each} gpu={gpu}"] * int(hosts[0] if hosts else 1)


class Expected(NamedTuple):
    """What a plan must have, or a part of the `refusal`. `sizes`: TP, PP and DP.

    `words` are in the command of rank 0, `absent` are not, and `environment` is in that of rank 0;
    `probe` is the path of readiness, `longest` the tokens of the longest request, `kv_bytes` are those of a
    token, `weights` GiB on a rank, both within 5 %. Parts of texts: `note` of the notes, `left_out` of the
    arguments that are not chosen, `reason` of the layout's reason, `rejected` of the layouts that are not
    chosen, `advice` of the alternatives and notes.
    """

    refusal: str = ""
    fits: bool | None = None
    sizes: list[int] | None = None
    words: str = ""
    absent: str = ""
    environment: Mapping[str, str] = {}
    probe: str = ""
    longest: int = 0
    kv_bytes: int = 0
    weights: float = 0
    precision: str = ""
    note: str = ""
    left_out: str = ""
    reason: str = ""
    rejected: str = ""
    advice: str = ""


def read(table: str, *lines: str, **has: Any) -> dict[str, tuple[Case, Expected]]:
    """The cases of a table, with these lines of [all:vars]; their plans also have what `has` says."""
    entries = yaml.safe_load(table)
    del entries["sources"]
    cases = {name: Case(**entry["plan"]) for name, entry in entries.items()}
    return {
        name: (case._replace(set=[*case.set, *lines]), Expected(**has | entries[name]["has"]))
        for name, case in cases.items()
    }


def plan(case: Case, tmp_path: Path) -> Plan:
    path = tmp_path / "cluster.ini"
    lines = [f"n{rank} ansible_host=192.0.2.{rank + 1} {words}" for rank, words in enumerate(case.hosts)]
    groups = ["[head]", lines[0], "[workers]", *lines[1:]]
    path.write_text("\n".join([*groups, "[all:vars]", f"model={case.model}", *case.set, ""]))
    return planned(load([path]), known(case.model))


TABLE = r"""
sources:
  - &length "vllm 0.33.0, config/model.py, _get_and_verify_max_len"
  - &nccl "NCCL's documentation, Environment Variables: NCCL_SOCKET_IFNAME, NCCL_IB_HCA"
  - &dtype "vllm 0.33.0, config/model.py, _resolve_auto_dtype, _FLOAT16_NOT_SUPPORTED_MODELS"
  - &template "the models' pages: tokenizer_config.json without chat_template"
  - &grace "NVIDIA's Grace: decide/hardware/gpus.json"
  - &preset a preset applies where its arguments exist
  - &legacy "sglang 0.5.23, model_executor, maybe_downgrade_dtype_for_legacy_gpu"
"L7: a longer context than the model's":
  plan: {model: Qwen/Qwen3-32B, set: [engine=vllm, engine_args="--max-model-len 131072"], source: *length}
  has: {refusal: --max-model-len 131072 is more than the model's 40960}
"L7: the longest context":
  plan: {model: Qwen/Qwen3-32B, set: [engine=vllm, engine_args="--max-model-len 40960"], source: *length}
  has: {words: --max-model-len 40960}
"L7: the largest that fits":
  plan: {model: Qwen/Qwen3-32B, set: [engine=vllm, engine_args="--max-model-len auto"], source: *length}
  has: {words: --max-model-len auto}
"L7: a user who allows it":
  plan: {model: Qwen/Qwen3-32B,
    set: [engine=vllm, engine_args="--max-model-len 65536", engine_env=VLLM_ALLOW_LONG_MAX_MODEL_LEN=True],
    source: *length}
  has: {words: --max-model-len 65536}
"L7: a value that vLLM does not take for yes":
  plan: {model: Qwen/Qwen3-32B,
    set: [engine=vllm, engine_args="--max-model-len 65536", engine_env=VLLM_ALLOW_LONG_MAX_MODEL_LEN=yes],
    source: *length}
  has: {refusal: --max-model-len 65536 is more than}
"L7: a config with another length":
  plan: {model: Qwen/Qwen3-32B,
    set: [engine=vllm,
      'engine_args="--max-model-len 65536 --hf-overrides ''{\"max_position_embeddings\": 65536}''"'],
    source: *length}
  has: {words: --max-model-len 65536}
"L7: the factor of YaRN alone does not lengthen the context":
  plan: {model: Qwen/Qwen3-32B,
    set: [engine=vllm, 'engine_args="--max-model-len 65536
      --hf-overrides ''{\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 4.0}}''"'],
    source: *length}
  has: {refusal: --max-model-len 65536 is more than}
"L7: LongRoPE's long factors with the preset for long requests":
  plan: {model: microsoft/Phi-4-mini-instruct, set: [engine=vllm, preset=long-context], source: *length}
  has: {words: --max-model-len 131072}
"L7: LongRoPE without long factors":
  plan: {model: microsoft/Phi-4-mini-instruct, set: [engine=vllm], source: *length}
  has: {absent: --max-model-len, longest: 4096}
"L7: another engine has LongRoPE's long factors":
  plan: {model: microsoft/Phi-4-mini-instruct, set: [engine=sglang],
    source: "sglang 0.5.23, srt/utils/hf_transformers/common.py, get_context_length"}
  has: {longest: 131072}
"L7: a linear factor does":
  plan: {model: Qwen/Qwen3-32B,
    set: [engine=vllm, 'engine_args="--max-model-len 65536
      --hf-overrides ''{\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 4.0}}''"'],
    source: *length}
  has: {words: --max-model-len 65536}
"L7: SGLang with a user who allows it":
  plan: {model: Qwen/Qwen3-32B,
    set: [engine_args="--context-length 65536", engine_env=SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1],
    source: "sglang 0.5.23, configs/model_config.py, _derive_context_length; environ.py, EnvBool"}
  has: {words: --context-length 65536}
"L20: a size that is not built":
  plan: {model: deepseek-ai/DeepSeek-R1, set: [prefill_replicas=2],
    source: "issue: nothing that changes what is served is a note"}
  has: {refusal: prefill_replicas}
"L20: capitals":
  plan: {model: Qwen/Qwen3-32B, set: [PRESET=throughput], source: "issue: the same"}
  has: {refusal: PRESET}
"L12: NCCL gets whole names, Gloo a plain one":
  plan: {model: deepseek-ai/DeepSeek-R1, gpus: 2 x 8 x H100-80G,
    set: [nic=bond0, "hca=mlx5_1,mlx5_2", ib_gid_index=3, trust_remote_code=true], source: *nccl}
  has: {environment: {NCCL_SOCKET_IFNAME: =bond0, GLOO_SOCKET_IFNAME: bond0, NCCL_IB_HCA: "=mlx5_1,mlx5_2"}}
"L12: vLLM":
  plan: {model: deepseek-ai/DeepSeek-R1, gpus: 2 x 8 x H200-141G,
    set: [engine=vllm, nic=bond0, hca=mlx5_1:1, ib_gid_index=3, trust_remote_code=true], source: *nccl}
  has: {environment: {NCCL_SOCKET_IFNAME: =bond0, NCCL_IB_HCA: =mlx5_1:1}}
"L12: the beginning of names stays one":
  plan: {model: deepseek-ai/DeepSeek-R1, gpus: 2 x 8 x H100-80G,
    set: [nic=bond0, hca=mlx5, ib_gid_index=3, trust_remote_code=true], source: *nccl}
  has: {environment: {NCCL_IB_HCA: mlx5}}
"L12: all but one":
  plan: {model: deepseek-ai/DeepSeek-R1, gpus: 2 x 8 x H100-80G,
    set: [nic=bond0, hca=^mlx5_1, ib_gid_index=3, trust_remote_code=true], source: *nccl}
  has: {environment: {NCCL_IB_HCA: ^=mlx5_1}}
"L12: a user's own form":
  plan: {model: deepseek-ai/DeepSeek-R1, gpus: 2 x 8 x H100-80G,
    set: [nic=bond0, hca=none, engine_env=NCCL_SOCKET_IFNAME=bond, trust_remote_code=true], source: *nccl}
  has: {environment: {NCCL_SOCKET_IFNAME: bond, GLOO_SOCKET_IFNAME: bond0}}
"L8: vLLM's image has no kernels for Volta":
  plan: {model: Qwen/Qwen3-8B, gpus: 1 x V100-32G, set: [engine=vllm],
    source: "cubins of the wheels of vllm 0.32.0 and 0.33.0: sm_75 to sm_120"}
  has: {refusal: "has kernels from compute capability 7.5 on, unlike V100-32G"}
"L8: gemma-3 on a GPU without BF16 is float32":
  plan: {model: google/gemma-3-4b-it, gpus: 1 x T4, set: [engine=vllm], source: *dtype}
  has: {note: "vLLM computes in FP32, and the checkpoint is BF16: T4 (compute capability 7.5) has no BF16",
    fits: false}
"L8: two GPUs hold it":
  plan: {model: google/gemma-3-4b-it, gpus: 2 x T4, set: [engine=vllm, engine_args="--max-model-len 8192"],
    source: *dtype}
  has: {fits: true}
"L8: SGLang would compute it in float16":
  plan: {model: google/gemma-3-4b-it, gpus: 1 x T4, source: *legacy}
  has: {refusal: "SGLang computes in FP16, in which Gemma3ForConditionalGeneration overflows: T4
    (compute cap"}
"L8: LMDeploy would, too":
  plan: {model: google/gemma-3-4b-it, gpus: 1 x T4, set: [engine=lmdeploy],
    source: "lmdeploy 0.18.0, pytorch/config.py, _update_torch_dtype"}
  has: {refusal: "LMDeploy computes in FP16, in which Gemma3ForConditionalGeneration overflows: T4"}
"L8: float16 is set where the GPU has BF16":
  plan: {model: google/gemma-3-4b-it, gpus: 1 x L40S, set: [engine_args='--dtype half'],
    source: "vllm 0.33.0, config/model.py, _FLOAT16_NOT_SUPPORTED_MODELS"}
  has: {refusal: "overflows: write --dtype bfloat16"}
"L8: SGLang computes others in float16":
  plan: {model: Qwen/Qwen3-4B, gpus: 1 x T4, source: *legacy}
  has: {fits: true}
"L15: a preset for an image of another version":
  plan: {model: Qwen/Qwen3-8B, set: [engine_image=lmsysorg/sglang:v0.5.9, preset=throughput], source: *preset}
  has: {note: "is of SGLang 0.5.9: arguments and models are checked against the snapshot of SGLang 0.5.23",
    fits: true}
"L15: parsers":
  plan: {model: Qwen/Qwen3-8B, set: [engine=vllm, engine_image=vllm/vllm-openai:v0.11.0, parsers=auto],
    source: *preset}
  has: {note: "is of vLLM 0.11.0: arguments and models are checked against the snapshot of vLLM 0.33.0",
    fits: true}
"L15: without a preset the version is a note":
  plan: {model: Qwen/Qwen3-8B, set: [engine_image=lmsysorg/sglang:v0.5.9, parsers=none], source: *preset}
  has: {note: "is of SGLang 0.5.9: arguments and models are checked against the snapshot of SGLang 0.5.23"}
"L16: GB200-186G is on ARM hosts":
  plan: {model: Qwen/Qwen3-8B, gpus: 1 x GB200-186G, source: *grace}
  has: {note: Hosts with GB200-186G are ARM (aarch64)}
NVLink between hosts of GB200:
  plan: {model: deepseek-ai/DeepSeek-R1, gpus: 4 x 4 x GB200-186G,
    source: NVIDIA/srt-slurm sets NCCL_MNNVL_ENABLE where Slurm has IMEX channels; roles/ set none up}
  has: {note: NVLink between hosts with GB200-186G is not used}
"L16: GH200-96G is on ARM hosts":
  plan: {model: Qwen/Qwen3-8B, gpus: 1 x GH200-96G, source: *grace}
  has: {note: Hosts with GH200-96G are ARM (aarch64)}
"L16: GB10 is on ARM hosts":
  plan: {model: Qwen/Qwen3-8B, gpus: 1 x GB10, source: *grace}
  has: {note: Hosts with GB10 are ARM (aarch64)}
"L9: a base checkpoint continues texts":
  plan: {model: meta-llama/Llama-3.1-8B, set: [preset=throughput], source: *template}
  has: {note: "no chat template: task=completion", probe: /v1/completions}
"L9: Mixtral with vLLM":
  plan: {model: mistralai/Mixtral-8x7B-v0.1, gpus: 4 x H100-80G, set: [engine=vllm, parsers=auto],
    source: *template}
  has: {left_out: "parsers=auto adds nothing: task=completion has no chats", probe: /v1/completions}
"L9: it cannot chat":
  plan: {model: meta-llama/Llama-3.1-70B, gpus: 8 x H100-80G, set: [task=chat], source: *template}
  has: {refusal: "task=chat, but meta-llama/Llama-3.1-70B has no chat template"}
"L9: a template by hand makes it a chat":
  plan: {model: meta-llama/Llama-3.1-8B, set: [engine_args="--chat-template /templates/llama.jinja"],
    source: *template}
  has: {probe: /v1/chat/completions}
"L9: a chat checkpoint chats":
  plan: {model: meta-llama/Llama-3.1-8B-Instruct, source: *template}
  has: {probe: /v1/chat/completions}
"""
CASES = read(TABLE)


def holds(part: str, whole: list[str]) -> bool:
    """Whether the words of `part` are in `whole`, in a row."""
    words = part.split()
    return any(whole[at : at + len(words)] == words for at in range(len(whole)))


def check(service: PlannedService, expected: Expected) -> None:
    container = service.replicas[0].nodes[0].container
    fit = service.fit
    assert expected.fits in (None, fit.fits), fit.reason
    if expected.sizes:
        sizes = [service.tensor_parallel, service.pipeline_parallel, service.data_parallel]
        assert sizes == expected.sizes
    assert holds(expected.words, container.command), container.command
    assert not expected.absent or not holds(expected.absent, container.command), container.command
    assert expected.environment.items() <= container.environment.items()
    assert expected.probe in ("", service.readiness.probe_path)
    assert expected.longest in (0, fit.longest_request)
    if expected.kv_bytes:
        assert fit.kv_bytes_per_token == pytest.approx(expected.kv_bytes, rel=0.05)
    if expected.weights:
        assert fit.weight_bytes_per_rank / 2**30 == pytest.approx(expected.weights, rel=0.05)
    assert expected.precision in service.precision
    assert expected.note in " ".join([*service.warnings, *service.notes])
    assert expected.left_out in " ".join(service.arguments_left_out)
    assert expected.reason in service.layout_reason
    assert expected.rejected in " ".join(service.layouts_rejected)
    assert expected.advice in " ".join([*service.alternatives, *service.notes])


@pytest.mark.parametrize("name", CASES)
def test_what_experts_expect(name: str, tmp_path: Path) -> None:
    case, expected = CASES[name]
    if expected.refusal:
        with pytest.raises(InputError) as error:
            plan(case, tmp_path)
        assert expected.refusal in f"{error.value} {error.value.hint}"
        return
    check(plan(case, tmp_path).services[0], expected)
