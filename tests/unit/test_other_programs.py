"""Images of other programs, and variables beside the plan's: refused with what to write, or noted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clusters import catalogued
from command import deploy
from headfirst.common.errors import InputError
from headfirst.control.inventory.inventory import load
from headfirst.decide import engines
from headfirst.decide.plan.images import PROGRAMS
from headfirst.decide.plan.types import Plan

pytestmark = pytest.mark.usefixtures("no_hub")

MODEL = "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"
HOSTS = "[head]\nn1 ansible_host=192.0.2.1\n[workers]\nn2 ansible_host=192.0.2.2\n[monitoring]\nn1\n"
SETTINGS = f"[all:vars]\ngpus=8\ngpu=A100-80G\nnic=eth0\nhca=mlx5_0\nproxy=true\nreplicas=2\nmodel={MODEL}\n"


def written(folder: Path, *lines: str) -> Path:
    path = folder / "mine.ini"
    path.write_text(HOSTS + SETTINGS + "".join(f"{line}\n" for line in lines))
    return path


def planned(folder: Path, *lines: str) -> Plan:
    return catalogued(load([written(folder, *lines)]))


OWN = {"engine_image": ("SGLang", engines.get("sglang").images["cuda"]), **PROGRAMS}


@pytest.mark.parametrize("setting", OWN)
@pytest.mark.parametrize("form", ["{}", "registry.example.org:5000/mirror/{}"])
def test_an_image_of_another_known_program_is_refused(setting: str, form: str, tmp_path: Path) -> None:
    for other, (title, image, *_) in OWN.items():
        name = image.partition("/")[2] if form != "{}" and "." in image.partition("/")[0] else image
        lines = [f"{setting}={form.format(name)}", *([f"{other}={image}"] if other != setting else [])]
        if other == setting:
            assert planned(tmp_path, *lines).notes == []
            continue
        with pytest.raises(InputError, match=f"{setting}=.* is {title}'s") as refused:
            planned(tmp_path, *lines)
        assert refused.value.where == f"{tmp_path}/mine.ini:{len((HOSTS + SETTINGS).splitlines()) + 1}"


@pytest.mark.parametrize("setting", PROGRAMS)
@pytest.mark.parametrize(
    "image", ["python:3.11-slim", "docker.io/library/ubuntu:24.04", "mine.example/app:v1"]
)
def test_an_image_of_an_unknown_program_is_noted(setting: str, image: str, tmp_path: Path) -> None:
    [note] = planned(tmp_path, f"{setting}={image}").notes
    assert f"{setting}={image} is not named as an image of {PROGRAMS[setting][0]}" in note


def test_a_tag_of_another_program_is_no_version_of_the_engine(tmp_path: Path) -> None:
    [note] = [
        note for note in planned(tmp_path, "engine_image=python:3.11.4").services[0].notes if "python" in note
    ]
    assert "a tag without a version" in note and "deploy plan --image" in note


@pytest.mark.parametrize(
    "image",
    [
        "open-webui/open-webui:v0.12.4",
        "mine.example/open-webui-patched:1",
        "ghcr.io/open-webui/open-webui:main",
    ],
)
def test_an_image_of_ones_own_with_the_programs_name_needs_no_note(image: str, tmp_path: Path) -> None:
    assert planned(tmp_path, f"webui_image={image}").notes == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "webui_env=OPENAI_API_BASE_URL=http://192.0.2.9",
            "URL may have no effect beside OPENAI_API_BASE_URLS",
        ),
        ("webui_env=OPENAI_API_KEY=sk-mine", "OPENAI_API_KEY may have no effect beside OPENAI_API_KEYS"),
        ("webui_env=OPENAI_API_BASE_URLS=http://192.0.2.9/v1", "OPENAI_API_BASE_URLS replaces the plan"),
        ("webui_env=WEBUI_SECRET_KEY=sk-mine", "WEBUI_SECRET_KEY replaces the plan"),
        (
            "webui_env=WEBUI_JWT_SECRET_KEY=sk-mine",
            "WEBUI_JWT_SECRET_KEY may have no effect beside WEBUI_SECRET_KEY",
        ),
        (
            "webui_env=OLLAMA_BASE_URL=http://192.0.2.9",
            "OLLAMA_BASE_URL may have no effect beside ENABLE_OLLAMA_API",
        ),
        ("webui_env=ENABLE_SIGNUP=True", "ENABLE_SIGNUP replaces the plan"),
        ("webui_env=ENABLE_SIGNUP=False", ""),  # what the plan has
        ("webui_env=WEBUI_NAME=mine", ""),
    ],
)
def test_a_variable_of_the_page_beside_the_plans_is_noted(line: str, said: str, tmp_path: Path) -> None:
    notes = planned(tmp_path, line).notes
    assert [said in note for note in notes] == ([True] if said else [])
    assert not any("sk-mine" in note or "192.0.2.9" in note for note in notes)


@pytest.mark.parametrize("name", ["HOST", "PORT", "DATA_DIR"])
def test_a_variable_that_the_plan_follows_is_refused_with_its_setting(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"webui_env: {name} is the plan's own") as refused:
        planned(tmp_path, f"webui_env={name}=1")
    assert refused.value.where and refused.value.where.endswith(":15")


MANY = ("replicas=1", "tensor_parallel=8", "pipeline_parallel=2")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("engine_env=NCCL_IB_HCA=mlx5_9", *MANY), "NCCL_IB_HCA replaces the plan"),
        (("engine_env=NCCL_DEBUG=INFO", *MANY), ""),
        (("engine_env=NCCL_DEBUG=WARN",), ""),  # one host: the plan sets none
        (("engine_env=HOST_IP=192.0.2.9", *MANY), "HOST_IP may have no effect beside SGLANG_HOST_IP"),
        (("engine=vllm", "engine_env=VLLM_HOST_IP=192.0.2.9", *MANY), "VLLM_HOST_IP replaces the plan"),
        (
            ("engine=vllm", "engine_env=VLLM_API_KEY=sk-mine"),
            "VLLM_API_KEY may have no effect beside the API key",
        ),
        (("engine=vllm", "engine_env=VLLM_NO_USAGE_STATS=0"), "VLLM_NO_USAGE_STATS replaces the plan"),
        (("engine_env=MY_OWN=1",), ""),
    ],
)
def test_a_variable_of_the_ranks_beside_the_plans_is_noted(lines: Any, said: str, tmp_path: Path) -> None:
    plan = planned(tmp_path, *lines)
    notes = [note for note in plan.services[0].warnings if note.startswith("engine_env")]
    assert [said in note for note in notes] == ([True] if said else [])
    assert not any("sk-mine" in note or "192.0.2.9" in note for note in notes)


@pytest.mark.parametrize("words", [["plan"], ["plan", "--json"], ["render", "--to", "compose"]])
def test_plan_and_render_print_the_notes(words: list[str], tmp_path: Path) -> None:
    path = written(tmp_path, "webui_image=python:3.11-slim")
    done = deploy(words[0], str(path), *words[1:], "-e", "proxy=false")
    assert done.returncode == 0, done
    assert "note: webui_image=python:3.11-slim is not named" in done.stderr
