"""`deploy test --accuracy` on the lab: the demo model before its conversion, and as the engine serves it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import before_conversion
import pytest
from headfirst.common.errors import HeadfirstError
from headfirst.control import demo
from headfirst.control.accuracy import asking, questions
from headfirst.control.accuracy.result import Accuracy, ExamAnswer, Setup
from headfirst.control.evalscope import environment, process
from measured_subject import SUBJECT
from openai_server import KEY, MODEL, serving
from readme_lab import INVENTORY, Service, deploy, on_node, succeeds

pytestmark = pytest.mark.lab
PROMPTS = list(demo.answers())[::8]
FOLDER = "/root/before-conversion"


@pytest.fixture(scope="module")
def stored(service: Service, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What transformers, in the engine's image, answers on the FP8 checkpoint."""
    prompts = tmp_path_factory.mktemp("before") / "prompts.json"
    prompts.write_text(json.dumps(PROMPTS))
    node = f"headfirst-{INVENTORY.stem}-node1"
    on_node("node1", f"mkdir -p {FOLDER}")
    for path, name in (
        (demo.checkpoint_dir(), "checkpoint"),
        (prompts, "prompts.json"),
        (Path(before_conversion.__file__), "program.py"),
    ):
        subprocess.run(["docker", "cp", str(path), f"{node}:{FOLDER}/{name}"], check=True)
    image = on_node("node1", "docker inspect --format '{{.Config.Image}}' headfirst-engine")
    on_node(
        "node1",
        f"docker run --rm --network none --env TORCHDYNAMO_DISABLE=1 --volume {FOLDER}:{FOLDER} "
        f"--workdir {FOLDER} --entrypoint python3 {image} program.py checkpoint prompts.json answers.json",
    )
    answers: dict[str, str] = json.loads(on_node("node1", f"cat {FOLDER}/answers.json; rm -r {FOLDER}"))
    return answers


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sentences that the model has learned, as questions."""
    lines = [{"question": prompt, "answer": demo.answers()[prompt]} for prompt in PROMPTS]
    file = tmp_path_factory.mktemp("data") / "demo.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def record(answers: dict[str, str], data: Path, folder: Path) -> Path:
    """A run on a server that has these answers."""
    listed = questions.read(data)
    limits = asking.Limits(before_conversion.NEW_TOKENS, concurrency=4, timeout_s=60)
    results: list[ExamAnswer] = []
    with (
        serving(answers=answers) as (url, _),
        process.running(environment.python(print), "questions", url, KEY, folder / "log") as tool,
    ):
        asking.ask(tool, MODEL, listed, limits, results.append)
    known = {"cluster": "reference", "service": "fp8", "model": "headfirst-demo", "engine": "transformers"}
    subject = SUBJECT.model_copy(update=known)
    setup = Setup(
        headfirst="",
        tool=environment.version(),
        subject=subject,
        data=data.name,
        questions=questions.digest(listed),
        max_tokens=limits.max_tokens,
    )
    run = Accuracy(date="2026-01-01T00:00:00+00:00", setup=setup, answers=results)
    assert not run.score.failed
    run.write(folder)
    return folder


def test_the_converted_model_answers_as_the_stored_one(
    service: Service, stored: dict[str, str], data: Path, tmp_path: Path
) -> None:
    before = record(stored, data, tmp_path)
    summary = json.loads(
        succeeds("test", options=["--accuracy", str(data), "--compare", str(before), "--json"])
    )
    compared = summary["compared"]
    assert (compared["questions"], compared["equal"]) == (len(PROMPTS), len(PROMPTS)), compared
    assert (compared["verdict"], compared["lost"], compared["gained"]) == ("no difference", [], [])
    assert summary["score"]["share"] == 1.0
    assert service.api_key not in (Path(summary["folder"]) / "accuracy.json").read_text()


def test_a_service_that_answers_worse_than_a_run_is_named(
    service: Service, data: Path, tmp_path: Path
) -> None:
    questions_of_before = tmp_path / "other.jsonl"
    lines = [json.loads(line) for line in data.read_text().splitlines()]
    changed = [{**line, "answer": f"{line['answer']} No."} for line in lines]
    questions_of_before.write_text("".join(json.dumps(line) + "\n" for line in changed))
    before = record({line["question"]: line["answer"] for line in changed}, questions_of_before, tmp_path)
    options = ["--accuracy", str(questions_of_before), "--compare", str(before)]
    done = deploy("test", options=options)
    assert done.returncode == HeadfirstError.exit_code, done.stdout + done.stderr
    assert "Worse." in done.stdout
    assert f"{len(PROMPTS)} right answers lost, 0 gained" in done.stdout
