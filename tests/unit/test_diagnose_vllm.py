"""A diagnosis of vLLM: lines that 0.32.0 wrote on two nodes, and what `deploy up` starts there."""

from __future__ import annotations

import pytest
from diagnosing import START, container, ended, node
from headfirst.decide import engines
from headfirst.decide.diagnose.decide import diagnose
from headfirst.decide.diagnose.subject import subject
from headfirst.decide.diagnose.types import Diagnosis, HttpAnswer, NodeFacts
from headfirst.decide.engines.base import Launch, LaunchRequest
from headfirst.decide.engines.layout import Layout

VLLM = engines.get("vllm")
SUBJECT = subject(VLLM, VLLM.readiness("chat"))
JOINING = (
    "(Worker pid=1) INFO 11-22 04:08:32 [parallel_state.py:1906] world_size=2 rank=1 local_rank=0"
    " distributed_init_method=tcp://10.0.0.1:5000 backend=nccl"
)
JOINED = "(Worker pid=1) INFO 11-22 04:08:46 [parallel_state.py:2350] rank 1 in world size 2 is assigned as"
LOST = "(Worker_TP0 pid=1) ERROR 11-22 04:09:58 [x.py:1] RuntimeError: Connection closed by peer [10.0.0.2]:1"
DEAD = (
    "(APIServer pid=1) ERROR 11-22 04:09:59 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: See"
)
MEMORY = "(Worker_TP1 pid=1) ERROR 11-22 04:09:57 [x.py:1] torch.OutOfMemoryError: CUDA out of memory."
READY = "INFO:     Application startup complete."


def started(rank: int, runtime: str | None = None) -> tuple[str, ...]:
    """The whole command of a rank, as Docker tells it."""
    request = LaunchRequest(
        model_dir="/models/m",
        served_name="m",
        layout=Layout(16),
        nodes=2,
        rank=rank,
        head_address="10.0.0.1",
        dist_port=5000,
        address=f"10.0.0.{rank + 1}",
        port=30000,
        config_file="/etc/headfirst/engine.yaml",
        runtime=runtime,
    )
    launch: Launch = VLLM.launch(request)
    return (launch.entrypoint or "", *launch.command)


def found(*nodes: NodeFacts) -> Diagnosis:
    return diagnose(nodes, SUBJECT)


@pytest.mark.parametrize("runtime", [None, "ray"])
def test_what_deploy_up_starts_on_two_nodes_differs_in_nothing_that_matters(runtime: str | None) -> None:
    nodes = [node(rank, container(rank, argv=started(rank, runtime))) for rank in (0, 1)]
    assert found(*nodes).decisive is None


@pytest.mark.parametrize(
    ("head", "rule", "means"),
    [
        ((*started(0), "--max-model-len", "4096"), "arguments-differ", "--max-model-len missing, there 4096"),
        (started(1), "same-node-rank", "--node-rank 1"),
    ],
)
def test_ranks_with_other_arguments(head: tuple[str, ...], rule: str, means: str) -> None:
    ranks = (container(0, argv=head), container(1, argv=started(1)))
    decisive = found(*(node(rank, one) for rank, one in enumerate(ranks))).decisive
    assert decisive is not None
    assert (decisive.rule, means in decisive.means) == (rule, True)


def test_the_rank_that_died_first_decides_over_the_engine_that_lost_it() -> None:
    head = ended(0, {1.0: JOINED, 30.0: LOST, 31.0: DEAD}, 34, argv=started(0))
    worker = ended(1, {1.0: JOINED, 29.0: MEMORY}, 30, argv=started(1))
    diagnosis = found(node(0, head), node(1, worker))
    assert diagnosis.decisive is not None
    assert (diagnosis.decisive.host, diagnosis.decisive.rule) == ("node2", "out-of-memory")
    assert "--gpu-memory-utilization" in diagnosis.decisive.fix
    assert [event.rule for event in diagnosis.then] == ["lost-peer", "engine-core"]


def test_ranks_that_wait_for_each_other() -> None:
    nodes = [node(rank, container(rank, {5.0: JOINING}, argv=started(rank))) for rank in (0, 1)]
    diagnosis = found(*nodes)
    assert diagnosis.decisive is not None
    assert diagnosis.decisive.rule == "hang-rendezvous"
    assert [state.doing for state in diagnosis.nodes] == ["joining the other ranks"] * 2


@pytest.mark.parametrize(
    ("health", "rule"), [(HttpAnswer(200, ""), None), (HttpAnswer(0, "/v1/x timed out"), "generate-hangs")]
)
def test_an_engine_that_was_ready(health: HttpAnswer, rule: str | None) -> None:
    head = container(0, {5.0: JOINING, 6.0: JOINED, 60.0: READY}, argv=started(0))
    worker = container(1, {5.0: JOINING, 6.0: JOINED}, argv=started(1))
    diagnosis = found(node(0, head, health=health), node(1, worker))
    assert (diagnosis.decisive.rule if diagnosis.decisive else None) == rule
    assert diagnosis.ready is (rule is None)
    assert diagnosis.nodes[0].doing == "ready"


def test_a_minute_of_silence_between_processes_is_a_note() -> None:
    line = "INFO [shm_broadcast.py:698] No available shared memory broadcast block found in 60 seconds."
    head = container(0, {60.0: READY, 200.0: line}, argv=started(0))
    diagnosis = found(node(0, head, health=HttpAnswer(200, ""), now=START + 300))
    assert [note.rule for note in diagnosis.notes] == ["rank-busy"]
