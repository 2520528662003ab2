"""What `up` and `plan --image` make of what images answer, with a function in place of the container."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from collecting import Warnings
from headfirst.common.errors import InputError, NotReadyError
from headfirst.control.deployment import asked_images
from headfirst.control.deployment.asked_images import answered, refuse_changes
from headfirst.control.deployment.hosts import running
from headfirst.control.deployment.prepare import Prepared, prepare
from headfirst.control.image_probe import container
from headfirst.control.image_probe.container import Answer
from headfirst.control.image_probe.kept import AskedCommand
from headfirst.decide.engines import answers

ID = "sha256:" + "c3" * 32
INVENTORY = """[head]
node1 ansible_host=192.0.2.11
[all:vars]
gpus=1
gpu=H100-80G
nic=eth0
hca=none
served_model_name=chat
model_source=path
model={model}
{more}
"""
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


Planned = Callable[..., Prepared]


class Images:
    """Hosts on which the image `there` is; `document` and `commands` are what it answers."""

    def __init__(self) -> None:
        self.there, self.asked = True, []
        path = Path(answers.__file__).parent / "sglang" / "snapshot.json"
        self.document: dict[str, Any] = json.loads(path.read_text("utf-8"))
        self.commands: Callable[[list[str]], AskedCommand] = lambda words: AskedCommand()

    def id(self, *_: Any) -> str:
        return ID if self.there else ""

    def ask(self, access: Any, connection: Any, engine: str, image: str, gpus: Any, question: Any) -> Answer:
        self.asked.append(question)
        read = tuple(self.commands(command["argv"]) for command in question["commands"])
        return Answer(self.document if question["answers"] else None, read)


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Images:
    hosts = Images()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(container, "image_id", hosts.id)
    monkeypatch.setattr(container, "ask", hosts.ask)
    for module in (asked_images, running):
        monkeypatch.setattr(module, "ssh", lambda access: contextlib.nullcontext())
    return hosts


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    header = json.dumps(
        {"model.embed_tokens.weight": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}
    )
    (model / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header.encode() + b"\0\0")

    def of(*lines: str) -> Prepared:
        path = tmp_path / "cluster.ini"
        path.write_text(INVENTORY.format(model=model, more="\n".join(lines)))
        return prepare([path], [], probe=False)

    return of


def test_an_image_is_asked_once_and_each_command_once(images: Images, planned: Planned) -> None:
    prepared = planned()
    told = answered(prepared, Warnings())
    assert [(each["answers"], len(each["commands"])) for each in images.asked] == [(True, 1)]
    files = images.asked[0]["files"]
    assert json.loads(next(text for path, text in files.items() if path.endswith("/config.json"))) == CONFIG
    assert any("probe" in text for path, text in files.items() if path.startswith("/etc/headfirst/"))
    assert told.prepared.plan.services[0].engine_described_by == "the image sha256:c3c3c3c3c3c3"
    answered(told.prepared, Warnings())
    assert len(images.asked) == 1
    answered(planned("engine_args=--max-running-requests 7"), Warnings())
    assert [(each["answers"], len(each["commands"])) for each in images.asked[1:]] == [(False, 1)]


def test_a_plan_without_hosts_knows_what_the_image_of_that_name_answered(
    images: Images, planned: Planned
) -> None:
    images.document["options"].append({"flags": ["--of-a-nightly"], "dest": "of_a_nightly", "type": "int"})
    with pytest.raises(InputError, match="has no --of-a-nightly"):
        planned("engine_args=--of-a-nightly 3")
    answered(planned(), Warnings())
    assert "--of-a-nightly" in shlex.join(
        planned("engine_args=--of-a-nightly 3").plan.services[0].replicas[0].nodes[0].container.command
    )


@pytest.mark.parametrize(
    ("arguments", "sentence", "line"),
    [
        ("--max-running-requests 7", "max_running_requests must be even", 12),
        ("--quantization fp8", "Cannot find the config file for FP8", 12),
        ("--max-running-requests 7", "the model has 3 heads", 10),
    ],
)
def test_what_the_engine_refuses_names_the_line(
    images: Images, planned: Planned, arguments: str, sentence: str, line: int
) -> None:
    images.commands = lambda words: AskedCommand(problem=sentence)
    with pytest.raises(InputError, match=f"SGLang 0.5.23 refuses rank 0: {sentence}") as caught:
        answered(planned("", f"engine_args={arguments}"), Warnings())
    assert str(caught.value.where).endswith(f"cluster.ini:{line}")


def test_a_command_that_was_not_read_is_a_warning_and_is_read_again(images: Images, planned: Planned) -> None:
    images.commands = lambda words: AskedCommand(why="no GPU here")
    warnings = Warnings()
    told = answered(planned(), warnings)
    assert [text for text in warnings.texts if "was not read" in text and "no GPU here" in text]
    answered(told.prepared, Warnings())
    assert len(images.asked) >= 2


def test_an_image_that_does_not_answer_is_not_refused(images: Images, planned: Planned) -> None:
    images.document = {"engine": "sglang", "version": "no version"}
    warnings = Warnings()
    told = answered(planned(), warnings)
    assert told.prepared.plan.services[0].engine_described_by == "the snapshot of SGLang 0.5.23"
    assert [text for text in warnings.texts if "did not answer" in text and "snapshot" in text]


def test_a_model_whose_files_cannot_be_read_here_is_a_warning(
    images: Images, planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise NotReadyError("the hub is away")

    monkeypatch.setattr(asked_images, "model_files", away)
    warnings = Warnings()
    answered(planned(), warnings)
    assert [text for text in warnings.texts if "did not read the commands of chat: the hub is away" in text]
    assert [each["commands"] for each in images.asked] == [[]]


def test_an_image_that_is_not_there_is_missing(images: Images, planned: Planned) -> None:
    images.there = False
    told = answered(planned(), Warnings())
    assert told.missing == ["lmsysorg/sglang:v0.5.23"]
    assert images.asked == []


@pytest.mark.parametrize(
    "error", [NotReadyError("no route to host"), InputError("another connection plugin")]
)
def test_a_host_that_cannot_be_asked_has_no_image(
    images: Images, planned: Planned, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: Any) -> str:
        raise error

    monkeypatch.setattr(container, "image_id", refuse)
    assert answered(planned(), Warnings()).missing == ["lmsysorg/sglang:v0.5.23"]


def test_a_plan_that_only_leaves_out_presets_goes_on(images: Images, planned: Planned) -> None:
    before = planned("preset=throughput")
    chosen = [argument.flag for argument in before.plan.services[0].chosen_arguments]
    assert chosen
    images.document["options"] = [
        option for option in images.document["options"] if chosen[0] not in option["flags"]
    ]
    warnings = Warnings()
    told = answered(before, warnings)
    assert chosen[0] not in told.prepared.plan.services[0].replicas[0].nodes[0].container.command
    assert [text for text in warnings.texts if f"without {chosen[0]}" in text]
    refuse_changes(told)


def test_a_plan_with_another_environment_stops(images: Images, planned: Planned) -> None:
    before = planned()
    service = before.plan.services[0]
    replica = service.replicas[0]
    node = replica.nodes[0]
    changed = node.container.model_copy(update={"environment": {"A": "1"}})
    nodes = [node.model_copy(update={"container": changed})]
    services = [service.model_copy(update={"replicas": [replica.model_copy(update={"nodes": nodes})]})]
    other = Prepared(
        before.cluster, before.plan.model_copy(update={"services": services}), before.checkpoints
    )
    with pytest.raises(InputError, match="the plan of chat differs: environment A"):
        refuse_changes(answered(other, Warnings()))
