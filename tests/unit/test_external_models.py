"""Architectures whose class a package of the user brings are planned, with a note."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import planned, read
from headfirst.common.errors import InputError
from headfirst.decide.plan.types import PlannedService
from known_models import model

OWN, IMAGE = "registry.example.org/own:v1", "engine_image=lmsysorg/sglang"
PACKAGE = "SGLANG_EXTERNAL_MODEL_PACKAGE=acme_models"
MOUNTED = 'engine_volumes=/data/plugins:/plugins:ro\nengine_env="{} PYTHONPATH=/plugins"'


def plan(folder: Path, architecture: str, lines: str) -> PlannedService:
    host = "[head]\nn0 ansible_host=192.0.2.1 gpus=4 gpu=A100-80G\n"
    changes = {"id": "acme/foo-8b", "architecture": architecture}
    checkpoint = model("meta-llama/Llama-3.1-8B-Instruct").model_copy(update=changes)
    cluster = read(folder, f"{host}[all:vars]\nmodel=acme/foo-8b\n{lines}\n")
    return planned(cluster, checkpoint).services[0]


@pytest.mark.parametrize(
    "lines",
    [
        f"engine_image={OWN}\nengine_env={PACKAGE}",
        MOUNTED.format(PACKAGE),
        f"engine=vllm\nengine_image={OWN}\nengine_env=VLLM_PLUGINS=register_acme",
        "engine=vllm\n" + MOUNTED.format("VLLM_PLUGINS=register_acme"),
        f"engine_image={OWN}\nengine_env=SGLANG_PLUGINS=acme",
    ],
)
def test_an_unknown_architecture_is_planned_with_a_note(tmp_path: Path, lines: str) -> None:
    service = plan(tmp_path, "AcmeForCausalLM", lines)
    assert service.fit.fits
    [note] = [note for note in service.notes if "AcmeForCausalLM" in note]
    assert "does not check" in note
    assert lines.partition("engine_env=")[2].strip('"').partition(" ")[0].partition("=")[0] in note


@pytest.mark.parametrize(
    "lines",
    [
        f"engine_image={OWN}",
        f"{IMAGE}:v0.5.24",
        f"{IMAGE}:nightly",
        f"engine=vllm\nengine_image={OWN}",
        f"engine=lmdeploy\nengine_image={OWN}",
    ],
)
@pytest.mark.parametrize("architecture", ["AcmeForCausalLM", "LlamaForCausalLM"])
def test_an_image_of_another_version_may_have_it(tmp_path: Path, lines: str, architecture: str) -> None:
    flags = "--new-flag 1 --reasoning-parser new --quantization new"
    service = plan(tmp_path, architecture, f'{lines}\nengine_args="{flags}"')
    assert service.fit.fits
    notes = " ".join(service.notes)
    assert ("has no model class AcmeForCausalLM" in notes) == (architecture == "AcmeForCausalLM")
    assert "--new-flag" in notes and "of engine_args: not in the snapshot of" in notes
    assert " ".join(service.replicas[0].nodes[0].container.command).endswith(flags)
    with pytest.raises(InputError, match="Set tensor_parallel in the inventory"):
        plan(tmp_path, architecture, f"{lines}\nengine_args=--tp 4")


@pytest.mark.parametrize(
    "lines",
    [
        f"engine_env={PACKAGE}",  # the engine's own image has no such package
        f"{IMAGE}:v0.5.23",
        MOUNTED.format("VLLM_PLUGINS=register_acme"),  # of another engine
        "engine=vllm\n" + MOUNTED.format("VLLM_PLUGINS="),  # no plugin at all
    ],
)
def test_without_a_package_it_is_refused(tmp_path: Path, lines: str) -> None:
    with pytest.raises(InputError, match="AcmeForCausalLM"):
        plan(tmp_path, "AcmeForCausalLM", lines)


def test_a_known_architecture_has_no_note(tmp_path: Path) -> None:
    service = plan(tmp_path, "LlamaForCausalLM", f"engine_image={OWN}\nengine_env={PACKAGE}")
    assert not any("does not check" in note and "LlamaForCausalLM" in note for note in service.notes)


def test_what_does_not_depend_on_the_class_is_refused_all_the_same(tmp_path: Path) -> None:
    lines = f'engine_image={OWN}\nengine_env={PACKAGE}\nengine_args="--quantization awq"'
    with pytest.raises(InputError, match="needs a checkpoint that is quantised"):
        plan(tmp_path, "AcmeForCausalLM", lines)
