"""What is advised where the model does not fit into the GPUs of the prefill or of the decode replicas."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from clusters import catalogued
from headfirst.common.errors import InputError
from headfirst.control.cli.app import app
from headfirst.control.deployment.verbs.up_stages import refuse_unfit
from headfirst.control.inventory.inventory import load
from headfirst.decide.plan.types import Plan, PlannedService
from typer.testing import CliRunner

pytestmark = pytest.mark.usefixtures("no_hub")

PAIR = "prefill_replicas=1\ndecode_replicas=1\n"
SHARES = "prefill_gpus_per_replica={}\ndecode_gpus_per_replica={}\n"


def inventory(folder: Path, settings: str, *, hosts: int = 1, model: str = "Qwen/Qwen3-32B") -> Path:
    workers = "".join(f"node{n} ansible_host=192.0.2.{n}\n" for n in range(2, hosts + 1))
    path = folder / "cluster.ini"
    path.write_text(
        f"[head]\nnode1 ansible_host=192.0.2.1\n[workers]\n{workers}\n[all:vars]\ngpus=8\ngpu=A100-40G\n"
        f"model_source=huggingface\nmodel={model}\n{settings}\n"
    )
    return path


def plan(path: Path) -> Plan:
    return catalogued(load([path]))


def service_of(path: Path) -> PlannedService:
    (service,) = plan(path).services
    return service


def followed(path: Path, sentence: str) -> PlannedService:
    """The plan of the inventory with the settings that the sentence names."""
    named = re.findall(r'(?<![\w-])([a-z_]+)=("[^"]*"|\S+?)(?=[,:]? |[,:.]?$)', sentence)
    assert named, sentence
    text = path.read_text()
    for name, value in named:
        text = re.sub(rf"(?m)^{name}=.*\n", "", text) + f"{name}={shlex.quote(shlex.split(value)[0])}\n"
    changed = path.with_name("changed.ini")
    changed.write_text(text)
    return service_of(changed)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize(("role", "gpus"), [("decode", (4, 1)), ("prefill", (1, 4))])
def test_the_side_that_does_not_fit_is_advised_and_the_advice_fits(
    role: str, gpus: tuple[int, int], engine: str, tmp_path: Path
) -> None:
    path = inventory(tmp_path, f"{PAIR}engine={engine}\n{SHARES.format(*gpus)}")
    service = service_of(path)
    assert service.unfit_role == role
    assert (service.unfit or "").startswith(f"The {role} replicas: ")
    more = [text for text in service.alternatives if f"{role}_gpus_per_replica=" in text]
    assert len(more) == 1
    assert f"hold a {role} replica" in more[0]
    for sentence in service.alternatives:
        assert followed(path, sentence).unfit is None, sentence


@pytest.mark.parametrize(("role", "gpus"), [("decode", (4, 2)), ("prefill", (2, 4))])
def test_the_side_that_holds_short_requests_only_is_advised(
    role: str, gpus: tuple[int, int], tmp_path: Path
) -> None:
    path = inventory(tmp_path, PAIR + SHARES.format(*gpus))
    service = service_of(path)
    before = {replicas[0].role: sized.fit.longest_request or 0 for sized, replicas in service.pools}
    assert (service.unfit, service.smallest_role) == (None, role)
    (sentence,) = service.alternatives
    assert f"{role}_engine_args=" in sentence
    after = {
        replicas[0].role: sized.fit.longest_request or 0 for sized, replicas in followed(path, sentence).pools
    }
    assert after[role] > before[role]  # type: ignore[index]
    shown = CliRunner().invoke(app, ["plan", str(path)], terminal_width=1000).output
    assert sentence in shown


def test_two_sides_that_hold_a_long_request_need_no_advice(tmp_path: Path) -> None:
    assert service_of(inventory(tmp_path, PAIR + SHARES.format(4, 4))).alternatives == []


def test_a_size_that_the_inventory_sets_is_changed_with_the_gpus(tmp_path: Path) -> None:
    path = inventory(tmp_path, f"{PAIR}{SHARES.format(4, 1)}decode_tensor_parallel=1\n")
    (more,) = (text for text in service_of(path).alternatives if "decode_gpus_per_replica=" in text)
    assert "decode_tensor_parallel=" in more
    assert followed(path, more).unfit is None


def test_arguments_that_are_advised_are_of_the_side(tmp_path: Path) -> None:
    words = "--gpu-memory-utilization 0.86"
    text = f"{PAIR}{SHARES.format(4, 1)}engine=vllm\ndecode_engine_args='{words} --max-model-len 40960'\n"
    path = inventory(tmp_path, text)
    path.write_text(path.read_text().replace("A100-40G", "H100-80G"))
    service = service_of(path)
    assert service.unfit_role == "decode"
    (shorter,) = (text for text in service.alternatives if "--max-model-len" in text)
    assert f'decode_engine_args="{words} --max-model-len ' in shorter
    assert followed(path, shorter).unfit is None


def test_more_hosts_are_advised_where_the_present_ones_are_too_few(tmp_path: Path) -> None:
    service = service_of(inventory(tmp_path, PAIR, hosts=2, model="deepseek-ai/DeepSeek-V3"))
    assert service.unfit_role
    assert any(
        re.search(r"\d+ nodes with 8 × A100-40G each, \d for a replica", text)
        for text in service.alternatives
    )


def test_the_refusal_names_the_side_and_its_settings(tmp_path: Path) -> None:
    path = inventory(tmp_path, f"{PAIR}{SHARES.format(4, 1)}")
    done = CliRunner().invoke(app, ["plan", str(path)])
    assert isinstance(done.exception, InputError)
    assert "the GPUs of its decode replicas" in str(done.exception)
    service = service_of(path)
    whole = plan(path)
    with pytest.raises(InputError, match="The decode replicas: "):
        refuse_unfit(whole)
    bare = whole.model_copy(update={"services": [service.model_copy(update={"alternatives": []})]})
    with pytest.raises(InputError) as refused:
        refuse_unfit(bare)
    for name in ("decode_gpus_per_replica", "decode_tensor_parallel", "decode_engine_args"):
        assert name in (refused.value.hint or "")


def test_advice_stands_below_the_memory_of_its_side(tmp_path: Path) -> None:
    out = CliRunner().invoke(app, ["plan", str(inventory(tmp_path, f"{PAIR}{SHARES.format(4, 1)}"))]).output
    prefill, decode = out.index("Memory of the prefill replicas"), out.index("Memory of the decode replicas")
    assert prefill < decode < out.index("Instead: ")
