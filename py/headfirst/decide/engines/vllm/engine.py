"""vLLM as one of the engines: what is data; sources are files of vllm, of 0.33.0."""

from __future__ import annotations

from functools import partial

from headfirst.common.metrics import Metrics, Series
from headfirst.decide.engines.answers import Answers
from headfirst.decide.engines.arguments import OBJECT, RefusedOption, object_of, within
from headfirst.decide.engines.base import (
    KEY_FILE,
    OWN_KEY,
    PATTERN,
    SOME,
    TEXTS,
    TLS,
    Diagnostics,
    Engine,
    MissingProgram,
    ReadinessProbe,
    RequestDialect,
    ScoreRequest,
    Task,
    Values,
    version_numbers,
    without_images,
)
from headfirst.decide.engines.dummies import dummy_weights
from headfirst.decide.engines.vllm import (
    arguments,
    cpu_image,
    disaggregation,
    draft,
    host_memory,
    launch,
    layout,
    lora,
    memory,
    support,
)

# Since then its images have it (METADATA: nvidia-cutlass-dsl[cu13]), where the tag has no -cu129 or -cu130.
_CUDA_13 = (0, 32)
_RANKS = "It follows from the hosts in [head] and [workers]."
_BALANCE = "The head answers for all data-parallel ranks; for separate servers set replicas."
_OWNED = {
    "model": "Set model in the inventory.",
    "served_model_name": "Set served_model_name in the inventory.",
    "revision": "Set model_revision in the inventory.",
    "download_dir": "Set weights_dir in the inventory.",
    "tensor_parallel_size": "Set tensor_parallel in the inventory.",
    "pipeline_parallel_size": "Set pipeline_parallel in the inventory.",
    "nnodes": _RANKS,
    "node_rank": "The head is rank 0, then the workers in the order of the inventory.",
    "master_addr": "It is the head's address.",
    "master_port": "Set dist_port in the inventory.",
    "headless": "All ranks but the head's are headless.",
    "device_ids": "Set gpu_devices in the inventory.",
    "distributed_executor_backend": "Set engine_runtime=ray in the inventory for Ray; without it vLLM's own "
    "processes are used.",
    "data_parallel_size_local": _RANKS,
    "data_parallel_start_rank": _RANKS,
    "data_parallel_rank": _BALANCE,
    "data_parallel_address": "It is the head's address.",
    "data_parallel_rpc_port": "It follows dist_port in the inventory.",
    "data_parallel_backend": _RANKS,
    "data_parallel_external_lb": _BALANCE,
    "data_parallel_hybrid_lb": _BALANCE,
    "data_parallel_multi_port_external_lb": _BALANCE,
    "host": "The plan chooses the address that the engine listens on.",
    "port": "Set engine_port in the inventory.",
    "config": "The plan mounts its own file there, with the API key: write its lines as flags in "
    "engine_args.",
    "api_key": OWN_KEY,
    "hf_token": "Everyone who lists processes could read it: set engine_env_file, a file with HF_TOKEN=…",
}
# entrypoints/launchers/launcher.py, entrypoints/common/cli_args.py, entrypoints/scale_out/factories.py,
# config/vllm.py. --root-path changes no answer: FastAPI finds its routes with the prefix and without.
_REFUSED = {
    **dict.fromkeys(("max_num_queued_reqs", "max_num_queued_tokens"), SOME),
    **dict.fromkeys(("ssl_keyfile", "ssl_certfile", "ssl_ca_certs"), TLS),
    **dict.fromkeys(("enable_ssl_refresh", "ssl_cert_reqs", "ssl_ciphers"), TLS),
    **dict.fromkeys(("skip_tokenizer_init", "tokens_only"), TEXTS),
    "uds": RefusedOption("Clients come from other hosts: leave it out."),
    "grpc": RefusedOption("Clients and the checks use HTTP: leave it out."),
    "grpc_port": RefusedOption(
        "vLLM has it in its Rust front end alone, which the plan does not start: leave it out.",
        harmless=lambda port: port is None,
    ),
    "mm_encoder_only": RefusedOption(
        "The service would encode images for another server and answer no request: leave it out."
    ),
}
# vllm/config: Field(ge=…, gt=…, le=…).
_BOUNDS = {
    **dict.fromkeys(("data_parallel_size", "decode_context_parallel_size"), within(1, 4096)),
    **dict.fromkeys(("prefill_context_parallel_size", "spec_tokens", "max_loras"), within(1, 4096)),
    **dict.fromkeys(("max_num_seqs", "max_num_batched_tokens", "block_size"), within(1)),
    **dict.fromkeys(("max_cudagraph_capture_size", "cudagraph_capture_sizes"), within(0, 1_048_576)),
    **dict.fromkeys(("offload_group_size", "offload_prefetch_step"), within(0)),
    **dict.fromkeys(("kv_cache_memory_bytes", "num_gpu_blocks_override"), within(0, 2**50)),
    **dict.fromkeys(("cpu_offload_gb", "kv_offloading_size"), within(0, 2**20)),
    "offload_num_in_group": within(1),
    "gpu_memory_utilization": within(1e-6, 1),
    "max_model_len": within(-1),
    **dict.fromkeys(("hf_overrides", "override_generation_config", "default_chat_template_kwargs"), OBJECT),
    **dict.fromkeys(("limit_mm_per_prompt", "media_io_kwargs", "mm_processor_kwargs"), OBJECT),
    "speculative_config": object_of(
        ("method", "model", "kv_cache_dtype"), ("num_speculative_tokens", "draft_tensor_parallel_size")
    ),
}

# v1/metrics/loggers.py.
_GENERATED = Series("vllm:generation_tokens_total")
_PROMPT = Series("vllm:prompt_tokens_total")

_METRICS = Metrics(
    running=Series("vllm:num_requests_running"),
    queued=Series("vllm:num_requests_waiting"),
    cache_usage=Series("vllm:kv_cache_usage_perc"),
    generated_tokens=_GENERATED,
    prompt_tokens=_PROMPT,
    progress=(_GENERATED, _PROMPT),
    first_token=Series("vllm:time_to_first_token_seconds"),
    output_token=Series("vllm:inter_token_latency_seconds"),
    request=Series("vllm:e2e_request_latency_seconds"),
)

_TEXT_BODY = {"prompt": "Hello", "max_tokens": 1, "temperature": 0}
_CHAT_BODY = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1, "temperature": 0}
_RERANK_BODY = {"query": "Hello", "documents": ["Hello"]}
# The health path needs no key and answers 200 while the engine's processes live, 503 when they are gone.
_PROBES: dict[Task, ReadinessProbe] = {
    "chat": ReadinessProbe("/health", "/v1/chat/completions", _CHAT_BODY, ("usage", "completion_tokens")),
    "completion": ReadinessProbe("/health", "/v1/completions", _TEXT_BODY, ("usage", "completion_tokens")),
    "embedding": ReadinessProbe("/health", "/v1/embeddings", {"input": "Hello"}, ("data", 0, "embedding", 0)),
    "rerank": ReadinessProbe("/health", "/v1/rerank", _RERANK_BODY, ("results", 0, "relevance_score")),
    "reward": ReadinessProbe("/health", "/pooling", {"input": "Hello"}, ("data", 0, "data")),
}
_DIAGNOSTICS = Diagnostics(
    rank_flag="--node-rank",
    head_flag="--master-addr",
    # Only rank 0 listens for clients and has the key.
    own_flags=frozenset(
        {
            *("--node-rank", "--headless", "--host", "--port", "--config"),
            *("--data-parallel-start-rank", "--api-server-count"),
        }
    ),
    secret_flags=frozenset({"--api-key", "--hf-token"}),
)


def _dialect(values: Values) -> RequestDialect:
    """The requests of a server with these arguments (entrypoints/openai, entrypoints/pooling)."""
    parser = values.get("reasoning_parser")
    images = without_images(values, "--limit-mm-per-prompt", values.get("limit_mm_per_prompt"))
    most = values.get("max_logprobs", 20)
    few = {"sampling.logprobs": f"--max-logprobs {most} allows fewer than two"} if most in (0, 1) else {}
    return RequestDialect(
        tool_parser=values.get("tool_call_parser") if values.get("enable_auto_tool_choice") else None,
        reasoning_parser=None if not parser or parser.lower() == "none" else parser,
        regex={"structured_outputs": {"regex": PATTERN}},
        grammar={"structured_outputs": {"grammar": PATTERN}},
        rerank=ScoreRequest("/v1/rerank", texts="documents", rows=("results",), score=("relevance_score",)),
        reward=ScoreRequest("/pooling", texts="input", rows=("data",), score=("data",)),
        classify="/classify",
        left_out={**images, **few},
        # tool_parsers: supports_required_and_named
        named_tool="a grammar constrains the answer to the call, unless the parser leaves it to the model",
        at_once=values.get("max_num_queued_reqs"),
    )


def _publishes(values: Values) -> bool:
    """Without statistics /metrics has none of the engine's figures."""
    return not values.get("disable_log_stats", False)


# No Requires-Dist of vllm 0.19 and later names it (METADATA of 0.32.0 and 0.33.0; ai-dynamo/dynamo #8515).
_NO_RAY = MissingProgram(
    program="ray",
    repository="vllm/vllm-openai",
    since="0.19.0",
    hint="Remove engine_runtime: vLLM's own launcher serves over several nodes. For Ray build an image FROM "
    "this one with `RUN pip install 'ray[cgraph]'`, and name it in engine_image.",
)


def engine(answers: Answers) -> Engine:
    """vLLM with the options and tables that were answered."""
    image, has = f"vllm/vllm-openai:v{answers.version}", answers.support
    return Engine(
        name="vllm",
        title="vLLM",
        answers=answers,
        images={"cuda": image, "cpu": cpu_image.RECIPE.tag},
        image_cuda={image: "13.0"} if version_numbers(answers.version) >= _CUDA_13 else {},
        recipes=(cpu_image.RECIPE,),
        package_variables=frozenset({"VLLM_PLUGINS"}),  # plugins/__init__.py
        missing_programs=(_NO_RAY,),
        owned=_OWNED,
        refused=_REFUSED,
        bounds=_BOUNDS,
        metrics=_METRICS,
        probes=_PROBES,
        diagnostics=_DIAGNOSTICS,
        dummy_weights=dummy_weights,
        parse=arguments.check,
        support_problems=partial(support.problems, answers),
        fp8_capability=partial(support.fp8_capability, has),
        layout=layout.layout,
        layout_problems=partial(layout.problems, answers),
        pipeline_layers=layout.pipeline_layers,
        computing=partial(support.computing, has),
        adapter_needs=lora.needs,
        adapter_slots=lora.SLOTS,
        draft_needs=draft.needs,
        named_draft=draft.named,
        length_problems=support.length_problems,
        memory_use=partial(memory.memory_use, has),
        host_memory=host_memory.host_memory,
        launch=partial(launch.launch, answers.by_flag),
        disaggregation=disaggregation.DISAGGREGATION,
        variable_aliases={"VLLM_API_KEY": KEY_FILE},
        admin_key_name="api-key",
        rendezvous_ports=launch.rendezvous_ports,
        publishes=_publishes,
        request_dialect=_dialect,
    )
