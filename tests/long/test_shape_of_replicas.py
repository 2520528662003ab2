"""What clients see while replicas become prefill and decode replicas, and back (docs/operations.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from changing_lab import ANSWER, bound_ranks, changes, fails, loaded
from client_load import ask
from headfirst.decide.cluster.settings import ServiceSettings
from readme_lab import SMALL, Service, bring_up, own_lab, succeeds

pytestmark = pytest.mark.lab
CLUSTER = f"""\
[head]
node1 ansible_host=10.215.0.11 cpu_cores=0

[workers]
node2 ansible_host=10.215.0.12 cpu_cores=1

[all:vars]
cluster_name=parts
lab_subnet=10.215.0.0/24
lab_memory=11g
engine=vllm
engine_version=0.32.0
model_source=demo
served_model_name=headfirst-demo
router_image_source=build
{SMALL}"""
WHOLE = "replicas=2\n"
PAIR = "prefill_replicas=1\ndecode_replicas=1\n"
BROKEN = "PYTHONHOME=/nowhere"  # Python does not start
ROUTER = f"http://10.215.0.11:{ServiceSettings().router_port}"


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with own_lab(tmp_path_factory.mktemp("parts") / "parts.ini", CLUSTER + WHOLE) as path:
        yield path


@pytest.fixture(scope="module")
def first(inventory: Path) -> Service:
    """Two replicas that answer alone, behind a router."""
    service = bring_up(inventory=inventory)
    bound_ranks("parts")
    return service


def test_a_pair_that_fails_leaves_a_replica_that_answers(first: Service, inventory: Path) -> None:
    with loaded(first, "replicas to a pair, failed", ROUTER, clients=2):
        told = fails(inventory, f"{CLUSTER}{PAIR}decode_engine_env={BROKEN}\n")
    assert "The previous version serves again" in told
    assert ask(ROUTER, first.api_key, first.model) in ANSWER


def test_replicas_become_a_pair_and_return(first: Service, inventory: Path) -> None:
    with loaded(first, "replicas to a pair", ROUTER, clients=2):
        told = changes(inventory, CLUSTER + PAIR)
    assert told.count("does not answer until its ranks have started again") == 1
    assert ask(ROUTER, first.api_key, first.model) in ANSWER
    with loaded(first, "rollback of a pair", ROUTER, clients=2):
        succeeds("rollback", inventory=inventory, options=["--plain"])
    assert ask(ROUTER, first.api_key, first.model) in ANSWER


def test_replicas_that_fail_leave_the_pair(first: Service, inventory: Path) -> None:
    changes(inventory, CLUSTER + PAIR)
    with loaded(first, "a pair to replicas, failed", ROUTER, clients=2):
        told = fails(inventory, f"{CLUSTER}{WHOLE}engine_env={BROKEN}\n")
    assert "The previous version serves again" in told
    assert ask(ROUTER, first.api_key, first.model) in ANSWER
    with loaded(first, "a pair to replicas", ROUTER, clients=2):
        changes(inventory, CLUSTER + WHOLE)
    assert ask(ROUTER, first.api_key, first.model) in ANSWER


def test_with_two_replicas_of_each_part_only_the_router_restarts(first: Service, inventory: Path) -> None:
    changes(inventory, CLUSTER + "replicas=4\n")
    for text in ("prefill_replicas=2\ndecode_replicas=2\n", "replicas=4\n"):
        with loaded(first, f"four replicas, to {text.splitlines()[0]}", ROUTER, clients=2):
            told = changes(inventory, CLUSTER + text)
        assert "does not answer until its ranks have started again" not in told
        assert ask(ROUTER, first.api_key, first.model) in ANSWER
