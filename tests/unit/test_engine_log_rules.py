"""What an engine's log says: the first line that decides, not the last of a crash."""

from __future__ import annotations

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils import failure_causes
from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import Profile, profile
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line, Symptom
from headfirst.decide import engines

LOG = profile(engines.get("sglang").log())
GENERIC = profile({})
STARTING = ["[2026-01-01 10:00:00] server_args={'tp_size': 2}", "[2026-01-01 10:00:09] Load weight begin."]
CRASH = [
    "Traceback (most recent call last):",
    '  File "scheduler.py", line 1, in run',
    "RuntimeError: something else fell over later",
    "[2026-01-01 10:00:20] Received sigquit from a child process. It usually means the child failed.",
]


def cause(log: list[str], of: Profile = LOG) -> Symptom | None:
    """The cause in the log of a rank that has ended, a line a second."""
    lines = [Line(float(second), text) for second, text in enumerate(log)]
    symptoms = failure_causes.in_log(of, lines)
    end = failure_causes.end_of(of, lines, symptoms, rank=0, ended=float(len(log)), exit_code=1)
    return failure_causes.decisive([*symptoms, *([end] if end else [])])


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
        ("AttributeError: 'NoneType' object has no attribute 'shape'", "no rule matches", False),
    ],
)
def test_the_line_that_decides(line: str, reason: str, echo: bool) -> None:
    found = cause([*STARTING, line, *CRASH])
    assert found is not None
    assert reason in found.means
    assert line in found.lines
    assert (found.weight == "consequence") is echo
    assert found.fix


def test_the_last_line_of_a_crash_and_few_lines_of_it() -> None:
    warning = "ERROR 03-05 [moe.py:28] Failed to import it. Error: No module named 'triton_kernels'"
    found = cause([*STARTING, warning, *CRASH])  # a line of every start is no error
    assert found is not None
    assert found.means.endswith(": RuntimeError: something else fell over later")
    found = cause([*CRASH * 50])
    assert found is not None
    assert len(found.lines) <= 5
    found = cause(STARTING)
    assert found and found.rule == "rank-ended", "without a reason"


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
    assert LOG.doing([*STARTING, line, "an uninteresting line"]) == words


def test_a_crash_shows_before_the_container_ends() -> None:
    assert any(LOG.dying.search(line) for line in CRASH)
    assert not any(LOG.dying.search(line) for line in STARTING)


def test_without_an_engine_the_generic_rules_hold() -> None:
    assert GENERIC.match("OSError: [Errno 98] Address already in use") is not None
    assert (
        GENERIC.doing(["Init torch distributed begin.", "INFO: Application startup complete."])
        == "warming up"
    )
    assert not any(GENERIC.dying.search(line) for line in CRASH)


def test_an_engine_replaces_keys_of_a_generic_rule() -> None:
    line = "torch.OutOfMemoryError: CUDA out of memory"
    own = profile({"rules": [{"id": "out-of-memory", "fix": "Set --less."}]})
    generic, replaced = GENERIC.match(line), own.match(line)
    assert generic and replaced
    assert (replaced.means, replaced.failures) == (generic.means, generic.failures)
    assert (generic.fix != replaced.fix, replaced.fix) == (True, "Set --less.")
    assert len(own.rules) == len(GENERIC.rules)


def test_a_rule_of_the_engine_goes_before_a_generic_one_unless_it_is_general() -> None:
    rule = {"id": "own", "failures": [], "pattern": "CUDA", "means": "it is special", "fix": "Do that."}
    line = "torch.OutOfMemoryError: CUDA out of memory"
    for weight, expected in (("cause", "own"), ("general", "out-of-memory")):
        found = profile({"rules": [{**rule, "weight": weight}]}).match(line)
        assert found and found.id == expected


def test_a_rule_that_lacks_a_key_is_refused() -> None:
    with pytest.raises((KeyError, TypeError)):
        profile({"rules": [{"id": "new", "fix": "Nothing."}]})
