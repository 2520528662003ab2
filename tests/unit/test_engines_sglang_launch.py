"""Launches of SGLang in many shapes; tests/engines/test_launches.py has SGLang itself read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from headfirst.common.errors import InputError
from headfirst.decide import engines
from headfirst.decide.engines.base import LaunchRequest, Task
from sglang_launches import LAUNCHES, ONE, TWO
from together import together

ENGINE = engines.get("sglang")


@together(("request_", "values"), LAUNCHES)
def test_the_command_is_read_as_it_is_meant(request_: LaunchRequest, values: Mapping[str, Any]) -> None:
    arguments = ENGINE.check_arguments(ENGINE.launch(request_).command[3:])
    for problem in arguments.problems:
        assert "is set by the plan" in problem.what
    owned = {"tp_size", "pp_size", "nnodes", "node_rank", "dist_init_addr", "served_model_name", "host"}
    owned |= {"device", "lora_paths"}
    for name, value in values.items():
        assert name in owned or arguments.values.get(name, value if not value else None) == value


def test_a_colon_in_the_served_name_would_name_an_adapter() -> None:
    with pytest.raises(InputError, match="served_model_name=a:b has a colon"):
        ENGINE.launch(replace(ONE, served_name="a:b"))


def test_caches_are_kept_where_a_folder_is_given() -> None:
    environment = ENGINE.launch(replace(ONE, cache_dir="/data/cache")).environment
    assert environment["TORCHINDUCTOR_CACHE_DIR"] == "/data/cache/inductor"
    assert all(value.startswith("/data/cache/") for value in environment.values())
    assert "TORCHINDUCTOR_CACHE_DIR" not in ENGINE.launch(ONE).environment


def test_the_users_own_task_flag_is_not_said_twice() -> None:
    command = ENGINE.launch(replace(ONE, task="embedding", extra_args=("--is-embedding",))).command
    assert command.count("--is-embedding") == 1


def test_data_parallel_launches_take_more_ports() -> None:
    plain = ENGINE.rendezvous_ports(TWO)
    layout = ENGINE.layout(16, 1, {"attn_dp_size": 16})
    assert (len(plain), len(ENGINE.rendezvous_ports(replace(TWO, layout=layout)))) == (1, 7)


@pytest.mark.parametrize(
    ("task", "path", "answer"),
    [
        ("chat", "/v1/chat/completions", {"usage": {"completion_tokens": 1}}),
        ("vision", "/v1/chat/completions", {"usage": {"completion_tokens": 1}}),
        ("embedding", "/v1/embeddings", {"data": [{"embedding": [0.1], "index": 0}]}),
        ("rerank", "/v1/rerank", [{"score": 0.5, "document": "Hello", "index": 0}]),
        ("reward", "/classify", {"embedding": [1.5], "meta_info": {}}),
    ],
)
def test_readiness_asks_what_the_task_answers(task: Task, path: str, answer: Any) -> None:
    readiness = ENGINE.readiness(task)
    assert (readiness.path, readiness.probe_path) == ("/health_generate", path)
    for key in readiness.answer:
        answer = answer[key]
    assert answer
