"""The user's engine arguments against vLLM's own parser, kept as data."""

from __future__ import annotations

import shlex

from headfirst.decide import engines
from together import together

ENGINE = engines.get("vllm")
SPEC = engines.get("vllm").specification


def problems(line: str) -> list[str]:
    return [str(problem) for problem in engines.get("vllm").check_arguments(shlex.split(line)).problems]


def test_the_specification_is_that_of_the_snapshot() -> None:
    assert len({option["dest"] for option in SPEC.options.values()}) == 320
    assert SPEC.options["-tp"] is SPEC.options["--tensor-parallel-size"]
    assert len(SPEC.removed) == 68


def test_values_are_typed_by_destination() -> None:
    words = (
        "--gpu-memory-utilization 0.85 --dtype bfloat16 --max_model_len 32k --max-num-batched-tokens=8K "
        "--cudagraph-capture-sizes 1 2 4 --no-enable-prefix-caching --max-num-seqs 64 -O3 --seed 1 "
        "--kv-cache-dtype fp8 --enable-auto-tool-choice --tool-call-parser hermes --moe-backend DEEP-GEMM "
        "--middleware a.b --middleware c.d "
        "--compilation-config.mode 3 --compilation-config.cudagraph_capture_sizes+ 1,2 "
        '--speculative-config \'{"method": "mtp", "num_speculative_tokens": 1}\''
    )
    arguments = ENGINE.check_arguments(shlex.split(words))
    assert [str(problem) for problem in arguments.problems] == []
    assert arguments.values == {
        "gpu_memory_utilization": 0.85,
        "dtype": "bfloat16",
        "max_model_len": 32000,
        "max_num_batched_tokens": 8192,
        "cudagraph_capture_sizes": [1, 2, 4],
        "enable_prefix_caching": False,
        "max_num_seqs": 64,
        "optimization_level": "3",
        "seed": 1,
        "kv_cache_dtype": "fp8",
        "enable_auto_tool_choice": True,
        "tool_call_parser": "hermes",
        "moe_backend": "deep_gemm",
        "middleware": ["a.b", "c.d"],
        "compilation_config": {"mode": 3, "cudagraph_capture_sizes": ["1", "2"]},
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 1},
    }


@together(
    ("line", "expected"),
    [
        ("--api-key secret", "--api-key is set by the plan. The plan makes a key and passes it in a file"),
        ("--hf-overrides {bad", "--hf-overrides has a value of another type. Write a JSON object."),
        ("--override-generation-config []", "has a value of another type. Write a JSON object."),
        ("-tp 4", "-tp is set by the plan. Set tensor_parallel"),
        (
            "--task embed",
            "--task was removed: vLLM 0.33.0 does not have it. It was removed between 0.10.2 and 0.13.0",
        ),
        ("--worker-use-ray", "set engine_runtime=ray in the inventory"),
        ("--max-modl-len 8", "Did you mean --max-model-len?"),
        ("--max-model 8", "--max-model is cut short. Write --max-model-len."),
        ("--max-model-len lots", "It takes a number such as 8192 or 8k, or auto."),
        ("--dtype int3", "Its values are auto, bfloat16"),
        (
            "--kv-transfer-config '{\"kv_conector\": 1}'",
            "has no key 'kv_conector'. Did you mean kv_connector?",
        ),
        ("--kv-transfer-config NixlConnector", "It takes a JSON object."),
        ("--compilation-config.levl 3", "--compilation-config has no key 'levl'."),
        ("--tool-call-parser hermis", "--tool-call-parser cannot be 'hermis'."),
        ("--enforce-eager 1", "'1' is in the place of a flag."),
        ("--seed 1 --seed 2", "--seed is given twice."),
        ("--context-length 8192", "vLLM 0.33.0 has no --context-length. Its counterpart is --max-model-len."),
        ("--ep 8", "Its counterpart is --enable-expert-parallel."),
        ("--max-loras", "--max-loras needs a value."),
    ],
)
def test_what_the_parser_or_the_server_would_refuse(line: str, expected: str) -> None:
    (problem,) = problems(line)
    assert expected in problem


def test_a_plugin_may_bring_a_parser_of_its_own() -> None:
    assert problems("--tool-call-parser mine --tool-parser-plugin /models/parser.py") == []


# Appendix B of the service's documentation in the seeds, which is of vLLM 0.4 to 0.8.
_SEEDS_ACCEPTED = """
--uvicorn-log-level --disable-uvicorn-access-log --allow-credentials --allowed-origins --allowed-methods
--allowed-headers --lora-modules --chat-template --chat-template-content-format --response-role --ssl-keyfile
--ssl-certfile --ssl-ca-certs --enable-ssl-refresh --ssl-cert-reqs --root-path --middleware
--return-tokens-as-token-ids --enable-request-id-headers --enable-auto-tool-choice --tool-call-parser
--tool-parser-plugin --log-config-file --max-log-len --disable-fastapi-docs --enable-prompt-tokens-details
--enable-force-include-usage --enable-server-load-tracking --tokenizer --code-revision
--tokenizer-revision --tokenizer-mode --trust-remote-code --load-format --dtype
--kv-cache-dtype --max-model-len --max-parallel-loading-workers --ray-workers-use-nsight --block-size
--enable-prefix-caching --seed --gpu-memory-utilization --num-gpu-blocks-override --max-num-batched-tokens
--max-num-seqs --disable-log-stats --quantization --enforce-eager --max-logprobs --disable-custom-all-reduce
--enable-lora --max-loras --max-lora-rank --lora-dtype --max-cpu-loras --fully-sharded-loras
--enable-chunked-prefill --model-loader-extra-config
"""
_SEEDS_REFUSED = {
    "set by the plan": "--host --port --api-key --model --pipeline-parallel-size -tp -pp --revision "
    "--download-dir",
    "without a successor": "--prompt-adapters --disable-frontend-multiprocessing --quantization-param-path "
    "--num-lookahead-slots --max-paddings --tokenizer-pool-size --tokenizer-pool-type "
    "--tokenizer-pool-extra-config --lora-extra-vocab-size --enable-prompt-adapter --max-prompt-adapters "
    "--max-prompt-adapter-token --image-input-type --image-token-id --image-input-shape "
    "--image-feature-size --scheduler-delay-factor",
    "; write --": "--swap-space --max-context-len-to-capture --speculative-model --num-speculative-tokens "
    "--speculative-max-model-len --ngram-prompt-lookup-min --ngram-prompt-lookup-max",
    "It was removed between": "--worker-use-ray --use-v2-block-manager --rope-scaling --rope-theta --device",
    "vLLM 0.33.0 has no": "--reorder-layers --speculative-disable-by-sequence_length",
}


def test_the_seeds_flags_that_vllm_has() -> None:
    flags = _SEEDS_ACCEPTED.split()
    assert len(flags) == 59
    assert [flag for flag in flags if flag not in SPEC.options] == []
    assert [flag for flag in flags if SPEC.options[flag]["dest"] in SPEC.owned] == []


@together(
    ("flag", "reason"), [(flag, reason) for reason, flags in _SEEDS_REFUSED.items() for flag in flags.split()]
)
def test_the_seeds_flags_that_are_refused_have_a_reason(flag: str, reason: str) -> None:
    (problem,) = problems(f"{flag} 1")
    assert reason in problem
