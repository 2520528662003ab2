"""LMDeploy as one of the engines: what is data; sources are files of lmdeploy, of 0.18.0."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from headfirst.common.metrics import Metrics, Series
from headfirst.decide.engines.answers import Answers
from headfirst.decide.engines.arguments import OBJECT, RefusedOption, within
from headfirst.decide.engines.base import (
    OWN_KEY,
    PATTERN,
    SOME,
    TLS,
    WAITING,
    Diagnostics,
    Engine,
    LaunchRequest,
    ReadinessProbe,
    RequestDialect,
    ScoreRequest,
    Task,
    Values,
    without_images,
)
from headfirst.decide.engines.lmdeploy import backend, draft, launch, layout, lora, memory
from headfirst.decide.hardware.gpus import FP8_CAPABILITY
from headfirst.decide.model.checkpoint import Checkpoint

# TurboMind multiplies FP8 weights in 16 bits from Volta on (kernels/gemm/kernel/sm70_884_8.cu).
_TURBOMIND_FP8 = (7, 0)
_OWNED = {
    "model_name": "Set served_model_name in the inventory.",
    "revision": "Set model_revision in the inventory.",
    "download_dir": "Set weights_dir in the inventory.",
    "tp": "Set tensor_parallel in the inventory.",
    "nnodes": "It follows from the hosts in [head] and [workers].",
    "node_rank": "The head is rank 0, then the workers in the order of the inventory.",
    "dist_init_addr": "It is the head's address; set dist_port in the inventory for another port.",
    "server_name": "The plan chooses the address that the engine listens on.",
    "server_port": "Set engine_port in the inventory.",
    "proxy_url": "With --dp the plan starts LMDeploy's proxy on the head, at engine_port.",
    "device": "Set engine_device in the inventory.",
    "api_keys": OWN_KEY,
}
_REFUSED = {
    "max_concurrent_requests": SOME,
    "ssl": TLS,
    # serve/core/async_engine.py: it begins asleep and answers no request.
    "empty_init": RefusedOption(f"{WAITING} the weights: leave it out."),
}
_BOUNDS = {
    **dict.fromkeys(("dp", "ep", "cp"), within(1, 4096)),
    **dict.fromkeys(("session_len", "max_batch_size", "cache_block_seq_len"), within(1)),
    "max_prefill_token_num": within(1),
    "num_gpu_blocks": within(0),
    "cache_max_entry_count": within(0.001, 0.999),
    "hf_overrides": OBJECT,
}
# metrics/loggers.py; serve/utils/server_utils.py lets only the health paths pass without the key.
_GENERATED = Series("lmdeploy:generation_tokens_total")
_PROMPT = Series("lmdeploy:prompt_tokens_total")

_METRICS = Metrics(
    running=Series("lmdeploy:num_requests_running"),
    queued=Series("lmdeploy:num_requests_waiting"),
    cache_usage=Series("lmdeploy:gpu_cache_usage_perc"),
    generated_tokens=_GENERATED,
    prompt_tokens=_PROMPT,
    progress=(_GENERATED, _PROMPT),
    first_token=Series("lmdeploy:time_to_first_token_seconds"),
    output_token=Series("lmdeploy:time_per_output_token_seconds"),
    request=Series("lmdeploy:e2e_request_latency_seconds"),
    needs_key=True,
    delay_s=10.0,  # serve/openai/api_server.py, log_interval
)

_TEXT_BODY = {"prompt": "Hello", "max_tokens": 1, "temperature": 0}
_CHAT_BODY = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1, "temperature": 0}
# The server listens after it has loaded the model; /health is missing in the proxy of --dp.
_PROBES: dict[Task, ReadinessProbe] = {
    "chat": ReadinessProbe("/v1/models", "/v1/chat/completions", _CHAT_BODY, ("usage", "completion_tokens")),
    "completion": ReadinessProbe("/v1/models", "/v1/completions", _TEXT_BODY, ("usage", "completion_tokens")),
    "reward": ReadinessProbe("/v1/models", "/pooling", {"input": "Hello"}, ("usage", "prompt_tokens")),
}
_DIAGNOSTICS = Diagnostics(
    rank_flag="--node-rank",
    head_flag="--dist-init-addr",
    # TurboMind's ranks and the API servers of --dp listen each on an address of their own.
    own_flags=frozenset({"--node-rank", "--server-name"}),
    secret_flags=frozenset({"--api-keys"}),
)


def _dialect(values: Values) -> RequestDialect:
    """The requests of a server with these arguments (serve/openai/protocol.py, endpoints/auxiliary.py)."""
    penalty = "LMDeploy has repetition_penalty in its place"
    return RequestDialect(
        tool_parser=values.get("tool_call_parser"),
        reasoning_parser=values.get("reasoning_parser"),
        regex={"response_format": {"type": "regex_schema", "regex_schema": PATTERN}},
        reward=ScoreRequest("/pooling", texts="input", rows=("data",), score=("data",)),
        ignored={"presence_penalty": penalty, "frequency_penalty": penalty},
        left_out=without_images(values, "", None),
        # serve/parsers/tool_parser/tool_parser.py: dump_tools
        named_tool="LMDeploy offers the model that tool alone, and no grammar constrains the answer",
    )


def _publishes(values: Values) -> bool:
    """With --dp the proxy answers at the engine's port, and has no figures."""
    return not values.get("disable_metrics", False) and values.get("dp", 1) == 1


def _rendezvous_ports(request: LaunchRequest) -> Sequence[int]:
    """Ray's head (or TurboMind's store, or that of the DP ranks), and torch's store beside Ray."""
    return range(request.dist_port, request.dist_port + 2)


def _more_ports(request: LaunchRequest) -> Sequence[int]:
    """The API servers of --dp, on each node."""
    groups = request.layout.attention_data
    return range(request.port + 1, request.port + 1 + groups // request.nodes) if groups > 1 else ()


def engine(answers: Answers) -> Engine:
    """LMDeploy with the options and tables that were answered."""
    has = answers.support

    def fp8_capability(checkpoint: Checkpoint) -> tuple[int, int] | None:
        """What both back ends need, where both have the model: several nodes take the PyTorch engine."""
        able = backend.serving(has, checkpoint)
        if not able and checkpoint.convertible and backend.serving(has, checkpoint.converted):
            return None
        return _TURBOMIND_FP8 if able == [backend.TURBOMIND] else FP8_CAPABILITY

    return Engine(
        name="lmdeploy",
        title="LMDeploy",
        answers=answers,
        # `latest` is the one with CUDA 12.8 (.github/workflows/docker.yml).
        images={"cuda": f"openmmlab/lmdeploy:v{answers.version}-cu12.8"},
        image_cuda={"/lmdeploy:latest": "12.8"},
        no_device=launch.NO_CPU,
        owned=_OWNED,
        refused=_REFUSED,
        bounds=_BOUNDS,
        metrics=_METRICS,
        probes=_PROBES,
        diagnostics=_DIAGNOSTICS,
        support_problems=partial(backend.problems, answers),
        start_problems=partial(backend.start_problems, answers),
        fp8_capability=fp8_capability,
        layout=layout.layout,
        layout_problems=partial(layout.problems, has),
        adapter_needs=lora.needs,
        draft_needs=draft.needs,
        named_draft=draft.named,
        memory_use=memory.memory_use,
        host_memory=memory.host_memory,
        launch=partial(launch.launch, answers),
        variable_aliases={
            "MASTER_ADDR": "LMDEPLOY_DIST_MASTER_ADDR",
            "MASTER_PORT": "LMDEPLOY_DIST_MASTER_PORT",
        },
        admin_key_name="api-key",
        rendezvous_ports=_rendezvous_ports,
        more_ports=_more_ports,
        publishes=_publishes,
        request_dialect=_dialect,
    )
