"""`deploy plan --image` on lab nodes: the engine in its image reads the commands of the plan."""

from __future__ import annotations

import json
import subprocess

import pytest
from readme_lab import INVENTORY, Service, deploy, on_node

pytestmark = pytest.mark.lab
NAMED = "docker ps --all --quiet --filter name=^headfirst-probe-"


def plan(*variables: str) -> subprocess.CompletedProcess[str]:
    """`deploy plan --image` with variables that are not in the inventory."""
    more = [word for variable in variables for word in ("-e", variable)]
    return deploy("plan", options=["--image", "--json", *more])


def test_the_image_answers_and_leaves_nothing(service: Service) -> None:
    done = plan()
    assert done.returncode == 0, done.stderr
    described = json.loads(done.stdout)["services"][0]["engine_described_by"]
    assert described.startswith("the image sha256:")
    assert on_node("node1", NAMED) == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--of-a-newer-version 1", "has no --of-a-newer-version"),
        ("--enable-hierarchical-cache --disable-radix-cache", "are mutually exclusive"),
        ("--enable-lora --lora-target-modules q_proj", "--max-lora-rank"),
        ("--attention-backend fa3 --device-of-another", "has no --device-of-another"),
    ],
)
def test_what_the_engine_refuses_ends_with_its_sentence(
    service: Service, arguments: str, sentence: str
) -> None:
    done = plan(json.dumps({"engine_args": arguments}))
    assert done.returncode == 2, done.stdout + done.stderr
    assert sentence in done.stdout


def test_a_model_class_that_the_image_lacks_is_refused(service: Service) -> None:
    overrides = '--json-model-override-args {"architectures":["NoSuchForCausalLM"]}'
    done = plan(json.dumps({"engine_args": overrides.split(" ", 1)}))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "NoSuchForCausalLM" in done.stdout
    assert str(INVENTORY) in done.stdout
