"""`deploy models` on a narrow terminal: nothing of a row is cut off."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from command import deploy
from headfirst.control.cli.shown.models import SHOWN, print_models
from headfirst.decide.hardware import gpus
from headfirst.decide.model import catalogue
from headfirst.decide.plan.sizing.models import Models, Offer, Refusal, group_of
from headfirst.decide.plan.sizing.sizes import Fleet
from known_models import model
from trials import offered

ROOT = Path(__file__).parents[2]


def surveyed(gpu: str, ids: Iterable[str]) -> Models:
    fleet = Fleet(gpus.find(gpu), 4, 8)
    return offered([model(id) for id in ids], fleet)


@pytest.fixture(scope="module")
def models() -> Models:
    """The longest ids of the catalogue, and one of each precision."""
    by_precision = {model(id).quantization_name: id for id in catalogue.ids()}
    longest = sorted(catalogue.ids(), key=len)[-5:]
    return surveyed("A100-80G", {*longest, *by_precision.values(), "moonshotai/Kimi-K2.5"})


def name(offer: Offer) -> str:
    return f"{offer.model} (images)" if offer.task == "vision" else offer.model


Printed = Callable[..., list[str]]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Printed:
    def lines(models: Models, *, columns: int = 80, whole: bool = True) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        print_models(models, whole=whole)
        return capsys.readouterr().out.splitlines()

    return lines


def test_every_id_and_precision_is_whole_at_80_columns(models: Models, printed: Printed) -> None:
    lines = printed(models)
    table = lines[1 : next(number for number, line in enumerate(lines) if line.startswith("The order"))]
    assert all(len(line) <= 80 for line in table) and "…" not in "".join(table)
    assert len({offer.precision for offer in models.offers}) >= 4
    for offer in models.offers:
        below = table[table.index(name(offer)) + 1].split()
        assert offer.precision in below and f"{offer.kv_tokens:,}" in below


def test_a_wide_terminal_has_a_line_a_model(models: Models, printed: Printed) -> None:
    lines = printed(models, columns=160)
    assert lines[2] == "chat:"
    titles = lines[1]
    table = lines[2 : next(number for number, line in enumerate(lines) if line.startswith("The order"))]
    rows = [line for line in table if line and not line.endswith(":")]
    for offer, line in zip(models.offers, rows, strict=True):
        assert line.split()[0] == offer.model
        assert ("(images)" in line) == (offer.task == "vision")
        assert line[titles.index("precision") :].startswith(offer.precision)


@pytest.mark.parametrize(
    ("id", "gpu", "precision"),
    [
        ("moonshotai/Kimi-K2.5", "A100-80G", "INT4"),
        ("meituan/DeepSeek-R1-Block-INT8", "A100-80G", "INT8"),
        ("Qwen/Qwen3-32B-AWQ", "A100-80G", "INT4"),
        ("deepseek-ai/DeepSeek-R1", "A100-80G", "FP8→BF16"),
        ("deepseek-ai/DeepSeek-R1", "H100-80G", "FP8"),
        ("Qwen/QwQ-32B", "A100-80G", "BF16"),
    ],
)
def test_precision_is_what_the_weights_are(id: str, gpu: str, precision: str) -> None:
    assert [offer.precision for offer in surveyed(gpu, [id]).offers] == [precision]


def test_the_reason_of_the_order_is_printed(models: Models, printed: Printed) -> None:
    lines = printed(models)
    assert any(line.startswith("The order: the task") for line in lines)
    kimi = lines[lines.index("moonshotai/Kimi-K2.5 (images)") + 1].split()
    assert "2026-01" in kimi and "1,027B" in kimi
    assert all(len(line) <= 80 for line in lines)


def test_the_lines_come_last_and_refusals_are_by_reason(models: Models, printed: Printed) -> None:
    ids = ("Qwen/Qwen3.5-397B-A17B", "Qwen/Qwen3.5-122B-A10B", "Qwen/Qwen3-VL-235B-A22B-Thinking")
    refused = [
        Refusal(model=ids[0], task="chat", reason="It needs 12 nodes."),
        Refusal(model=ids[1], task="chat", reason="It needs 2 nodes."),
        Refusal(model=ids[2], task="chat", reason="It needs 12 nodes."),
    ]
    lines = printed(models.model_copy(update={"refused": refused}))
    below = lines[lines.index("3 models are not served, by reason:") + 1 :]
    assert below[:2] == [f"It needs 2 nodes: {ids[1]}", f"It needs 12 nodes: {ids[0]}, {ids[2]}"]
    assert lines[-1].startswith("The lines of another model")


def test_the_best_of_each_task_are_on_two_screens(printed: Printed) -> None:
    """Of the whole catalogue."""
    models = surveyed("H100-80G", catalogue.ids())
    lines = printed(models, whole=False)
    assert len(lines) <= 2 * 50
    kinds = [group_of(offer.task) for offer in models.offers]
    for kind in dict.fromkeys(kinds):
        table = lines[lines.index(f"{kind}:") + 1 :]
        assert table[0] == name(models.offers[kinds.index(kind)])
    left_out = f"{kinds.count('chat') - SHOWN} more for chat: deploy models INVENTORY --all"
    assert left_out in lines
    assert f"{len(models.refused)} models are not served: --all has the reasons." in lines


HOSTS = "[head]\nn1 ansible_host=192.0.2.1\n[all:vars]\ngpus=8\ngpu=H100-80G\n"
INVENTORIES = {
    **{
        name: (ROOT / f"inventories/{name}.ini").read_text()
        for name in ("lab", "lab-vllm", "h100x2-services")
    },
    "no model": HOSTS,
    "the demo on GPUs": HOSTS + "model_source=demo\n",
    "another demo": HOSTS + "model_source=demo\nmodel=headfirst-demo-embedding\n",
    "a folder": HOSTS + "model_source=path\nmodel=/data/a\nserved_model_name=mine\n",
    "a hub": HOSTS + "model_source=huggingface\n",
}


@pytest.mark.parametrize("name", INVENTORIES)
def test_every_inventory_is_listed_for_or_refused_by_what_it_states(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "ids", lambda: ["Qwen/Qwen3-8B"])
    path = tmp_path / "mine.ini"
    path.write_text(INVENTORIES[name])
    done = deploy("models", str(path))
    if "engine_device=cpu" in INVENTORIES[name]:
        assert (done.returncode, "engine_device=cpu" in done.stderr) == (2, True), done
    else:
        assert (done.returncode, done.stderr) == (0, ""), done
    assert "-e" not in done.stderr and "any" not in done.stderr
