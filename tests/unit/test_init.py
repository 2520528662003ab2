"""`deploy init` writes an inventory that `deploy plan` takes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from command import refused, succeeds
from headfirst.common.errors import InputError, NotReadyError
from headfirst.control.cli import init as init_verb
from headfirst.control.deployment.prepare import prepare
from headfirst.control.inventory.inventory import load
from headfirst.decide.plan.types import PlannedService

pytestmark = pytest.mark.usefixtures("no_hub")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the inventory is written."""
    return tmp_path / "mine.ini"


FLAGS = ["--host", "192.0.2.11", "--host", "big=192.0.2.12", "--user", "ubuntu", "--gpus", "8",
         "--gpu", "A100-80G", "--nic", "eth0",
         "--model", "deepseek-ai/DeepSeek-R1-Distill-Llama-70B"]  # fmt: skip


def test_flags_alone_are_enough(path: Path) -> None:
    succeeds("init", path, *FLAGS)
    cluster = load([path])
    assert [(host.name, host.address) for host in cluster.ranks] == [
        ("node1", "192.0.2.11"),
        ("big", "192.0.2.12"),
    ]
    assert (cluster.head.gpus, cluster.head.gpu, cluster.head.nic) == (8, "A100-80G", "eth0")
    assert cluster.head.hca is None
    assert cluster.services[0].settings.model == "deepseek-ai/DeepSeek-R1-Distill-Llama-70B"
    assert cluster.head.login.user == "ubuntu"


def test_a_file_is_not_overwritten_unasked(path: Path) -> None:
    path.write_text("precious")
    assert isinstance(refused("init", path, *FLAGS), InputError)
    assert path.read_text() == "precious"
    succeeds("init", path, *FLAGS, "--force")
    assert "precious" not in path.read_text()


def test_without_a_terminal_all_missing_answers_are_one_error(path: Path) -> None:
    error = refused("init", path, "--host", "192.0.2.11")
    assert isinstance(error, InputError)
    assert error.what == "there is no terminal to ask for --user, --gpus, --gpu"


SERVERS = ["--host", "192.0.2.11", "--host", "192.0.2.12", "--user", "ubuntu", "--gpus", "8"]
H100 = [*SERVERS, "--gpu", "H100-80G", "--nic", "eth0"]


def planned(path: Path) -> list[PlannedService]:
    return prepare([path], (), probe=False).plan.services


def test_a_model_that_fits_a_part_of_a_host_becomes_replicas(path: Path) -> None:
    printed = succeeds("init", path, *H100, "--model", "Qwen/Qwen3-32B")
    settings = load([path]).services[0].settings
    assert (settings.tensor_parallel, settings.replicas, settings.gpus_per_replica) == (2, 8, 2)
    assert "8 replicas" in printed and "TP 2" in printed
    (service,) = planned(path)
    assert len(service.replicas) == 8 and service.fit.fits


def test_the_engine_that_limits_the_context_gets_the_flag(path: Path) -> None:
    servers = ["--host", "192.0.2.11", "--user", "ubuntu", "--gpus", "1", "--gpu", "A10", "--engine", "vllm"]
    succeeds("init", path, *servers, "--model", "Qwen/Qwen3-8B")
    text = path.read_text()
    assert "engine=vllm\n" in text and 'engine_args="--max-model-len ' in text
    assert planned(path)[0].fit.fits


def test_without_a_layout_the_plan_decides(path: Path) -> None:
    succeeds("init", path, *H100, "--model", "Qwen/Qwen3-32B", "--no-layout")
    assert load([path]).services[0].settings.tensor_parallel is None


def test_several_models_become_services(path: Path) -> None:
    models = ["--model", "chat=Qwen/Qwen3-32B", "--model", "vectors=Qwen/Qwen3-Embedding-8B"]
    succeeds("init", path, *H100, *models)
    chat, vectors = planned(path)
    assert (chat.name, len(chat.replicas), len(vectors.replicas)) == ("chat", 7, 1)
    assert [service.fit.fits for service in (chat, vectors)] == [True, True]
    assert vectors.task == "embedding"
    cluster = load([path])
    assert [host.name for host in cluster.services[1].hosts] == ["node2"]
    assert {host.address for host in cluster.ranks} == {"192.0.2.11", "192.0.2.12"}


@pytest.mark.parametrize(
    ("models", "what"),
    [
        (["Qwen/Qwen3-32B", "chat=Qwen/Qwen3-8B"], "has no name"),
        (["a=Qwen/Qwen3-32B", "a=Qwen/Qwen3-8B"], "two models are called a"),
        (["head=Qwen/Qwen3-32B", "b=Qwen/Qwen3-8B"], "head"),
        (["Chat=Qwen/Qwen3-32B", "b=Qwen/Qwen3-8B"], "Chat"),
        (["a=Qwen/Qwen3-32B", "b=team/unknown"], "team/unknown"),
        (["a=Qwen/Qwen3-235B-A22B", "b=Qwen/Qwen3-235B-A22B-Instruct-2507", "c=Qwen/Qwen3-8B"], "no room"),
    ],
)
def test_services_that_cannot_be_written(path: Path, models: list[str], what: str) -> None:
    error = refused("init", path, *H100, *(word for model in models for word in ("--model", model)))
    assert isinstance(error, (InputError, NotReadyError))
    assert what in str(error)
    assert not path.exists()


def test_a_model_can_be_chosen_later(path: Path) -> None:
    printed = succeeds("init", path, *H100)
    assert f"Next: deploy models {path}" in printed
    succeeds("models", path)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "replicas"), [("y", 8), ("n", None)])
def test_the_questions_write_what_the_options_write(
    path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, replicas: int | None
) -> None:
    typed = ["192.0.2.11 192.0.2.12", "ubuntu", "8", "H100-80G", "Qwen/Qwen3-32B", answer]
    monkeypatch.setattr(init_verb.sys, "stdin", _Terminal("".join(f"{line}\n" for line in typed)))
    monkeypatch.setattr("builtins.input", lambda *_: typed.pop(0))
    init_verb.init(path)
    assert not typed
    assert load([path]).services[0].settings.replicas == replicas


def test_a_model_that_fits_nowhere_is_refused_with_what_would(path: Path) -> None:
    succeeds("init", path, *SERVERS, "--gpu", "T4", "--model", "Qwen/QwQ-32B")
    words = ["init", path, *SERVERS, "--gpu", "T4", "--model", "deepseek-ai/DeepSeek-R1", "--force"]
    error = refused(*words)
    assert isinstance(error, InputError) and "deploy models" in str(error)


def test_code_of_a_model_is_allowed_by_the_user_alone(path: Path) -> None:
    servers = ["--host", "192.0.2.11", "--user", "ubuntu", "--gpus", "8", "--gpu", "H200"]
    words = ["init", path, *servers, "--model", "moonshotai/Kimi-K2.5"]
    error = refused(*words)
    assert isinstance(error, InputError)
    assert "--trust-remote-code" in str(error)
    assert not path.exists()
    succeeds(*words, "--trust-remote-code")
    assert path.read_text().count("\ntrust_remote_code=true\n") == 1
    assert planned(path)[0].trust_remote_code


def test_a_file_that_is_overwritten_stays_a_link_with_its_mode(tmp_path: Path, path: Path) -> None:
    file = tmp_path / "real.ini"
    file.write_text("before")
    file.chmod(0o640)
    path.symlink_to("real.ini")
    succeeds("init", path, *FLAGS, "--force")
    assert (path.is_symlink(), file.stat().st_mode & 0o777) == (True, 0o640)
    assert "before" not in file.read_text()
