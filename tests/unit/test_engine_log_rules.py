"""What an engine's log says: the first line that decides, not the last of a crash."""

from __future__ import annotations

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils import engine_log_rules

STARTING = [
    "[2026-01-01 10:00:00] server_args={'api_key': 'sesame'}",
    "[2026-01-01 10:00:09] Load weight begin.",
]
CRASH = [
    "Traceback (most recent call last):",
    '  File "scheduler.py", line 1, in run',
    "RuntimeError: something else fell over later",
    "[2026-01-01 10:00:20] Received sigquit from a child process. It usually means the child failed.",
]


@pytest.mark.parametrize(
    ("line", "reason", "echo"),
    [
        ("launch_server.py: error: unrecognized arguments: --foo", "arguments", False),
        ("launch_server.py: error: argument --dtype: invalid choice: 'x'", "arguments", False),
        (
            "torch.distributed.DistStoreError: Timed out after 121 seconds, 1/2 clients joined.",
            "rendezvous",
            True,
        ),
        ("torch.distributed.DistNetworkError: The client socket has timed out", "reach rank 0", True),
        ("OSError: [Errno 98] Address already in use", "port", False),
        ("safetensors_rust.SafetensorError: MetadataIncompleteBuffer", "cut short", False),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "memory", False),
        ("RuntimeError: [pair.cc:547] Connection closed by peer [10.0.0.2]:1234", "another rank", True),
        ("AssertionError: tp_size must be divisible by number of nodes", "parallel sizes", False),
        ("AttributeError: 'NoneType' object has no attribute 'shape'", "the engine failed", False),
    ],
)
def test_the_line_that_decides(line: str, reason: str, echo: bool) -> None:
    cause = engine_log_rules.find_cause([*STARTING, line, *CRASH])
    assert cause is not None
    assert reason in cause.reason
    assert cause.lines[0] == line
    assert cause.echo is echo
    assert cause.hint


def test_no_reason_is_no_reason() -> None:
    assert engine_log_rules.find_cause(STARTING) is None


def test_no_line_shows_the_arguments_with_the_api_key() -> None:
    assert all("sesame" not in engine_log_rules.shown(line) for line in STARTING)


def test_few_lines_are_shown() -> None:
    cause = engine_log_rules.find_cause([*CRASH * 50])
    assert cause is not None
    assert len(cause.lines) <= 3


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Init torch distributed begin.", "joining the other ranks"),
        ("Loading safetensors checkpoint shards:  38% Completed | 3/8 [00:01<00:02]", "loading weights 3/8"),
        ("Multi-thread loading shards: 100% Completed | 1/1 [00:00<00:00, 1.08it/s]", "loading weights 1/1"),
        ("The server is fired up and ready to roll!", "ready"),
    ],
)
def test_what_a_rank_is_doing(line: str, words: str) -> None:
    assert engine_log_rules.doing([*STARTING, line, "an uninteresting line"]) == words


def test_a_crash_shows_before_the_container_ends() -> None:
    assert any(engine_log_rules.DYING.search(line) for line in CRASH)
    assert not any(engine_log_rules.DYING.search(line) for line in STARTING)
