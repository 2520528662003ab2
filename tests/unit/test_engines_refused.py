"""Arguments with which an engine starts and answers otherwise than clients, checks and monitoring need it."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from headfirst.common.errors import InputError
from headfirst.control.inventory import names
from headfirst.decide import engines
from headfirst.decide.engines.layout import Layout
from known_models import model
from sglang_launches import ONE
from together import together

ENGINES = [engines.get(name) for name in engines.names()]
QWEN = model("Qwen/Qwen3-8B")


@pytest.mark.parametrize("name", engines.names())
def test_what_is_owned_refused_or_removed_fits_the_options(name: str) -> None:
    spec = engines.get(name).specification
    dests = {option["dest"] for option in spec.options.values()}
    assert spec.owned.keys() <= dests
    assert spec.refused
    assert spec.refused.keys() <= dests - spec.owned.keys()
    assert all(entry.why.endswith(".") for entry in spec.refused.values())
    for flag, advice in spec.removed.items():
        assert flag not in spec.options
        if "write -" in advice:
            successor, *value = shlex.split(advice.partition("write ")[2].removesuffix("."))
            option, _, key = successor.partition(".")
            found = spec.options[option]
            assert not key or "keys" not in found or key in found["keys"]
            assert not value or "choices" not in found or value[0] in found["choices"]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_no_option_about_tls_passes(engine: engines.Engine) -> None:
    for flag, option in engine.specification.options.items():
        if "ssl" not in option["dest"] or flag.startswith(("--no-", "--disable-")):
            continue
        words = [flag] if option["type"] == "flag" else [flag, "2"]
        (problem,) = engine.check_arguments(words).problems
        assert "tls=files" in (problem.hint or ""), flag


@together(
    ("name", "words", "hint"),
    [
        ("sglang", "--skip-tokenizer-init", "texts"),
        ("sglang", "--smg-grpc-mode", "HTTP"),
        ("sglang", "--grpc-mode", "HTTP"),
        ("sglang", "--grpc-port 40000", "API key"),
        ("sglang", "--tokenizer-worker-num 4", "API key"),
        ("sglang", "--enable-http-worker-reuseport", "API key"),
        ("sglang", "--fastapi-root-path /llm", "Prometheus"),
        ("sglang", "--encoder-only", "another server"),
        ("sglang", "--gated-launch-port 9000", "POST /gate/activate"),
        ("sglang", "--checkpoint-engine-wait-weights-before-ready", "weights"),
        ("sglang", "--decoupled-spec-role drafter", "--speculative-algorithm"),
        ("sglang", "--elastic-ep-join-mode scale", "another server"),
        ("sglang", "--use-ray", "without Ray"),
        ("sglang", "--max-queued-requests 0", "1 or more"),
        ("sglang", "--api-key k", "deploy keys add"),
        ("vllm", "--skip-tokenizer-init", "texts"),
        ("vllm", "--tokens_only", "texts"),
        ("vllm", "--uds /tmp/s", "other hosts"),
        ("vllm", "--grpc", "HTTP"),
        ("vllm", "--grpc-port 40000", "Rust"),
        ("vllm", "--mm-encoder-only", "another server"),
        ("vllm", "--api-server-count 0", "1 or more"),
        ("vllm", "-asc -1", "1 or more"),
        ("vllm", "--max-num-queued-reqs 0", "1 or more"),
        ("vllm", "--max-num-queued-tokens 0", "1 or more"),
        ("vllm", "--task embed", "set task in the inventory"),
        ("vllm", "--api-key k", "deploy keys add"),
        ("lmdeploy", "--empty-init", "weights"),
        ("lmdeploy", "--max-concurrent-requests 0", "1 or more"),
        ("lmdeploy", "--api-keys k", "deploy keys add"),
    ],
)
def test_the_hint_has_the_way_out(name: str, words: str, hint: str) -> None:
    (problem,) = engines.get(name).check_arguments(shlex.split(words)).problems
    assert hint in (problem.hint or "")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sglang", "--tokenizer-worker-num 1 --decoupled-spec-role null --max-queued-requests 64"),
        ("sglang", "--disable-radix-cache --skip-server-warmup --log-level-http error"),
        # FastAPI finds the routes with the prefix and without, and the key is required for the same ones.
        ("vllm", "--root-path /llm --api-server-count 2 --disable-fastapi-docs --enable-request-id-headers"),
        ("vllm", "--no-skip-tokenizer-init --no-tokens-only --disable-ssl-refresh --ssl-cert-reqs 0"),
        ("lmdeploy", "--max-concurrent-requests 64 --disable-fastapi-docs"),
    ],
)
def test_what_changes_no_answer_passes(name: str, words: str) -> None:
    assert engines.get(name).check_arguments(shlex.split(words)).problems == ()


def test_a_reason_is_printed_once_and_a_variable_of_that_name_has_it() -> None:
    words = ["--ssl-keyfile", "/k.pem", "--ssl-certfile", "/c.pem"]
    with pytest.raises(InputError) as raised:
        engines.get("vllm").check_arguments(words).require()
    assert (raised.value.hint or "").count("tls=files") == 1
    assert "tls=files" in (names._argument("ssl_keyfile", ["vllm"]) or "")


# Engine, task, arguments, and what the refusal has; None: the service answers as the task needs it.
TASKS = [
    ("sglang", "chat", "--is-embedding", "task=embedding"),
    ("sglang", "completion", "--is-embedding", "task=embedding"),
    ("sglang", "embedding", "--is-embedding", None),
    ("sglang", "rerank", "--is-embedding", "leave --is-embedding out"),
    ("sglang", "rerank", "", None),
    ("vllm", "chat", "--runner pooling", "task=embedding, rerank or reward"),
    ("vllm", "chat", "--convert embed", "task=embedding,"),
    ("vllm", "completion", "--convert classify", "task=rerank"),
    ("vllm", "chat", "--runner generate --convert none", None),
    ("vllm", "chat", "--runner draft", "--runner draft does not serve"),
    ("vllm", "embedding", "--runner generate", "--runner generate does not serve"),
    ("vllm", "embedding", "--convert classify", "gives no embeddings"),
    ("vllm", "embedding", "--runner pooling --convert embed", None),
    ("vllm", "rerank", "--convert embed", None),  # by the distance of two embeddings
    ("vllm", "reward", "--runner auto", None),
]


@together(("name", "task", "words", "refusal"), TASKS)
def test_a_runner_of_another_task(name: str, task: engines.Task, words: str, refusal: str | None) -> None:
    engine = engines.get(name)
    values = engine.check_arguments(words.split()).require()
    problems = [
        text for text in engine.support_problems(QWEN, None, task, values) if "reward" not in text[:20]
    ]
    assert refusal in " ".join(problems) if refusal else not problems


def test_a_reranker_that_is_a_cross_encoder_may_have_the_flag() -> None:
    encoder = QWEN.model_copy(update={"architecture": "XLMRobertaForSequenceClassification"})
    assert not engines.get("sglang").support_problems(encoder, None, "rerank", {"is_embedding": True})


@pytest.mark.parametrize("words", ["--api-server-count 2", "--api_server_count=2", "-asc 2"])
def test_headless_ranks_of_vllm_have_no_number_of_servers(words: str) -> None:
    """run_headless refuses one (entrypoints/cli/serve.py)."""
    extra = ("--seed", "1", *words.split(), "--enforce-eager")
    request = replace(ONE, layout=Layout(2), nodes=2, extra_args=extra)
    engine = engines.get("vllm")
    assert engine.launch(request).command[-len(extra) :] == list(extra)
    other = replace(request, rank=1, address="192.0.2.2")
    assert engine.launch(other).command[-3:] == ["--seed", "1", "--enforce-eager"]
