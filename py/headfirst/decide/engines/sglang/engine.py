"""SGLang as one of the engines: what is data; sources are files of sglang/srt, of 0.5.23."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from headfirst.common.metrics import Metrics, Series
from headfirst.decide.cluster.settings import HIGHEST_PORT
from headfirst.decide.engines.answers import Answers
from headfirst.decide.engines.arguments import OBJECT, RefusedOption, within
from headfirst.decide.engines.base import (
    OWN_KEY,
    PATTERN,
    SOME,
    TEXTS,
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
    version_numbers,
    without_images,
)
from headfirst.decide.engines.dummies import dummy_weights
from headfirst.decide.engines.sglang import (
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
from headfirst.decide.engines.sglang.launch import METRICS_FLAG

if TYPE_CHECKING:
    from headfirst.decide.diagnose.types import Live, NodeFacts, Tuning

_CUDA_13 = (0, 5, 11)  # the first whose image has it, where its tag has no -cu129 or -cu130
_OWNED = {
    "model_path": "Set model in the inventory.",
    "served_model_name": "Set served_model_name in the inventory.",
    "revision": "Set model_revision in the inventory.",
    "download_dir": "Set weights_dir in the inventory.",
    "delete_ckpt_after_loading": "The next start needs it, and it is mounted read-only; leave it out.",
    "base_gpu_id": "Set gpu_devices in the inventory.",
    "gpu_id_step": "Set gpu_devices in the inventory.",
    "tp_size": "Set tensor_parallel in the inventory.",
    "pp_size": "Set pipeline_parallel in the inventory.",
    "nnodes": "It follows from the hosts in [head] and [workers].",
    "node_rank": "The head is rank 0, then the workers in the order of the inventory.",
    "dist_init_addr": "It is the head's address; set dist_port in the inventory for another port.",
    "host": "The plan chooses the address that the engine listens on.",
    "port": "Set engine_port in the inventory.",
    "lora_paths": "Set adapters in the inventory: their folders are then copied and mounted too.",
    "device": "Set engine_device in the inventory.",
    "config": "The plan mounts its own file there, with the API key: write its lines as flags in "
    "engine_args.",
    "disaggregation_mode": "Set prefill_replicas and decode_replicas in the inventory.",
    "disaggregation_transfer_backend": "Set kv_transfer in the inventory.",
    "disaggregation_bootstrap_port": "Set kv_transfer_port in the inventory.",
    "disaggregation_ib_device": "Set hca in the inventory.",
    "api_key": OWN_KEY,
    "admin_api_key": "The plan makes one and passes it in a file; `deploy credentials` prints it.",
}
_GRPC = "Clients, the checks and the router use HTTP: leave it out."
_ONE_TOKENIZER = RefusedOption(
    "SGLang accepts no API key with several tokenizer processes, and the plan gives it one: leave it out.",
    harmless=lambda number: number == 1,
)
# entrypoints/http_server.py, launch_server.py, arg_groups/serving_hook.py, utils/auth.py.
_REFUSED = {
    "max_queued_requests": SOME,
    **dict.fromkeys(
        ("ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "ssl_keyfile_password", "enable_ssl_refresh"), TLS
    ),
    "skip_tokenizer_init": TEXTS,
    # With it /health and /metrics answer 401 without a key.
    "fastapi_root_path": RefusedOption(
        "The router and Prometheus ask for paths without it, which SGLang then guards with the key: let the "
        "proxy before the cluster remove the prefix, and leave it out."
    ),
    **dict.fromkeys(("smg_grpc_mode", "grpc_mode"), RefusedOption(_GRPC)),
    "grpc_port": RefusedOption(
        "SGLang serves gRPC beside HTTP only without an API key, and the plan gives it one: leave it out.",
        harmless=lambda port: port is None,
    ),
    "sidecar": RefusedOption("It needs --grpc-port, which SGLang has only without an API key: leave it out."),
    "tokenizer_worker_num": _ONE_TOKENIZER,
    "enable_http_worker_reuseport": RefusedOption(_ONE_TOKENIZER.why),
    "use_ray": RefusedOption("SGLang's ranks connect without Ray, and the plan starts none: leave it out."),
    "encoder_only": RefusedOption(
        "The service would encode images for another server and answer no request: leave it out."
    ),
    "gated_launch_port": RefusedOption(f"{WAITING} POST /gate/activate: leave it out."),
    "checkpoint_engine_wait_weights_before_ready": RefusedOption(f"{WAITING} the weights: leave it out."),
    "decoupled_spec_role": RefusedOption(
        "One service has both the draft and the verification: set --speculative-algorithm alone.",
        harmless=lambda role: role == "null",
    ),
    "ep_join_mode": RefusedOption("A rank that joins answers through another server: leave it out."),
}
_BOUNDS = {
    **dict.fromkeys(("dp_size", "ep_size", "attn_dp_size", "attn_cp_size"), within(1, 4096)),
    **dict.fromkeys(("moe_dp_size", "moe_dense_tp_size", "speculative_num_draft_tokens"), within(1, 4096)),
    **dict.fromkeys(("cuda_graph_max_bs_decode", "cuda_graph_bs_decode"), within(1, 65_536)),
    **dict.fromkeys(("cuda_graph_max_bs_prefill", "cuda_graph_bs_prefill"), within(1, 1_048_576)),
    **dict.fromkeys(("max_running_requests", "max_total_tokens", "max_prefill_tokens"), within(1)),
    **dict.fromkeys(
        ("context_length", "page_size", "max_mamba_cache_size", "max_loras_per_batch"), within(1)
    ),
    "chunked_prefill_size": within(-1, 2**24),
    "swa_full_tokens_ratio": within(1e-6, 1),
    "mem_fraction_static": within(0.001, 0.999),
    "mamba_full_memory_ratio": within(1e-6, 100),
    **dict.fromkeys(("json_model_override_args", "default_chat_template_kwargs"), OBJECT),
    **dict.fromkeys(("cpu_offload_gb", "hicache_size"), within(0, 2**20)),
}
# observability/metrics_collector.py. realtime_tokens_total rises with every step of the scheduler,
# generation_tokens_total only when a request ends. The first token of a request belongs to its prefill. Only
# the schedulers of rank 0's node publish: those of other nodes answer on their own loopback address.
_TOKENS = "sglang:realtime_tokens_total"

_METRICS = Metrics(
    running=Series("sglang:num_running_reqs"),
    queued=Series("sglang:num_queue_reqs"),
    cache_usage=Series("sglang:token_usage"),
    generated_tokens=Series(_TOKENS, {"mode": "decode"}),
    prompt_tokens=Series(_TOKENS, {"mode": "prefill_.*"}),
    progress=(Series(_TOKENS),),
    first_token=Series("sglang:time_to_first_token_seconds"),
    output_token=Series("sglang:inter_token_latency_seconds"),
    request=Series("sglang:e2e_request_latency_seconds"),
    # Each pipeline stage counts every request; by priority there is a total, and its parts.
    copies=("pp_rank", "priority"),
    flag=METRICS_FLAG,
    throughput="sglang:gen_throughput",
    delay_s=30.0,  # with decode_log_interval steps between two reports, or 30 s where nothing runs
)
_TEXT_BODY = {"prompt": "Hello", "max_tokens": 1, "temperature": 0}
_CHAT_BODY = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1, "temperature": 0}


def _probe(path: str, body: Mapping[str, Any], *answer: str | int) -> ReadinessProbe:
    """The health path needs no key; 200: a token or an embedding was computed, 503: warm-up still
    runs (entrypoints/http_server.py, health_generate)."""
    return ReadinessProbe("/health_generate", path, body, answer, generates=True)


# Paths: entrypoints/http_server.py; bodies: openai/protocol.py; of a reranker: openai/serving_rerank.py.
_PROBES: dict[Task, ReadinessProbe] = {
    "chat": _probe("/v1/chat/completions", _CHAT_BODY, "usage", "completion_tokens"),
    "completion": _probe("/v1/completions", _TEXT_BODY, "usage", "completion_tokens"),
    "embedding": _probe("/v1/embeddings", {"input": "Hello"}, "data", 0, "embedding"),
    "rerank": _probe("/v1/rerank", {"query": "Hello", "documents": ["Hello"]}, 0, "score"),
    "reward": _probe("/classify", {"text": "Hello"}, "embedding", 0),  # answers as for an embedding
}


def _tune(nodes: Sequence[NodeFacts], live: Live | None, flags: Mapping[str, str]) -> Tuning | None:
    """The rules of SGLang's tuning guide; imported here, as reading logs takes a while to import."""
    from headfirst.decide.engines.sglang.tuning import tune

    return tune(nodes, live, flags)


_DIAGNOSTICS = Diagnostics(
    rank_flag="--node-rank",
    head_flag="--dist-init-addr",
    # Only rank 0 listens for clients and has the key.
    own_flags=frozenset({"--node-rank", "--host", "--config"}),
    secret_flags=frozenset({"--api-key", "--admin-api-key", "--hf-token"}),
    slow_start_flags=frozenset({"--enable-torch-compile"}),
    tune=_tune,
)


def _dialect(values: Values) -> RequestDialect:
    """The requests of a server with these arguments (entrypoints/http_server.py, openai/protocol.py)."""
    ignored = {"model": "SGLang answers with the model it serves, whatever name the request has"}
    # sampling_batch_info.py: sampling_seed is None otherwise.
    if not values.get("enable_deterministic_inference"):
        ignored["seed"] = "SGLang uses it with --enable-deterministic-inference only"
    images = without_images(values, "--limit-mm-data-per-request", values.get("limit_mm_data_per_request"))
    cut = {"limits.too-long": "--allow-auto-truncate cuts it"} if values.get("allow_auto_truncate") else {}
    return RequestDialect(
        tool_parser=values.get("tool_call_parser"),
        reasoning_parser=values.get("reasoning_parser"),
        regex={"regex": PATTERN},
        grammar={"ebnf": PATTERN},
        rerank=ScoreRequest("/v1/rerank", texts="documents", rows=(), score=("score",)),
        reward=ScoreRequest("/classify", texts="text", rows=(), score=("embedding",)),
        classify="/v1/classify",
        adapter="{model}:{adapter}",
        ignored=ignored,
        left_out={**images, **cut},
        # function_call/function_call_parser.py: get_structure_constraint, parses_required_natively
        named_tool="a grammar constrains the answer to the call, unless the parser leaves it to the model",
        at_once=values.get("max_queued_requests"),
    )


def _rendezvous_ports(request: LaunchRequest) -> Sequence[int]:
    """With attention groups SGLang takes six ports beside the rendezvous (PortArgs)."""
    if request.layout.attention_data > 1 and launch.meets(request):
        return _with_groups(request.dist_port)
    return (request.dist_port,)


def _more_ports(request: LaunchRequest) -> Sequence[int]:
    """Where the ranks do not meet, those of attention groups are on loopback (ZMQ_TCP_PORT_DELTA)."""
    if request.layout.attention_data == 1 or launch.meets(request):
        return ()
    return _with_groups(request.port + (233 if request.port + 233 <= HIGHEST_PORT else -233))


def _with_groups(first: int) -> Sequence[int]:
    after = first + 1 if first + 6 <= HIGHEST_PORT else first - 7
    return (first, *range(after, after + 6))


def engine(answers: Answers) -> Engine:
    """SGLang with the options and tables that were answered."""
    image, has = f"lmsysorg/sglang:v{answers.version}", answers.support
    return Engine(
        name="sglang",
        title="SGLang",
        answers=answers,
        images={"cuda": image, "cpu": cpu_image.RECIPE.tag},
        image_cuda={image: "13.0"} if version_numbers(answers.version) >= _CUDA_13 else {},
        recipes=(cpu_image.RECIPE,),
        # models/registry.py, and plugins/__init__.py, whose general plugins may register models.
        package_variables=frozenset({"SGLANG_EXTERNAL_MODEL_PACKAGE", "SGLANG_PLUGINS"}),
        owned=_OWNED,
        refused=_REFUSED,
        bounds=_BOUNDS,
        metrics=_METRICS,
        probes=_PROBES,
        diagnostics=_DIAGNOSTICS,
        dummy_weights=dummy_weights,
        support_problems=partial(support.problems, answers),
        fp8_capability=partial(support.fp8_capability, has),
        layout=partial(layout.layout, has),
        layout_problems=partial(layout.problems, has),
        pipeline_layers=layout.pipeline_layers,
        computing=support.computing,
        adapter_needs=lora.needs,
        adapter_slots=lora.SLOTS,
        draft_needs=draft.needs,
        named_draft=draft.named,
        length_problems=support.length_problems,
        memory_use=partial(memory.memory_use, has),
        host_memory=host_memory.host_memory,
        launch=partial(launch.launch, answers.by_flag),
        disaggregation=disaggregation.DISAGGREGATION,
        variable_aliases={"HOST_IP": "SGLANG_HOST_IP"},
        admin_key_name="admin-api-key",
        rendezvous_ports=_rendezvous_ports,
        more_ports=_more_ports,
        ports_alone=range(22000, 30000),  # srt/utils/network.py, get_free_port_below_ephemeral
        request_dialect=_dialect,
    )
