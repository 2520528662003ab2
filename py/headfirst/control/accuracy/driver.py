"""Asks questions and scores the answers with evalscope; the Python of its own environment executes this file.

It imports nothing of Headfirst. Jobs come as JSON lines on standard input, events go as JSON lines to the
file descriptor that the first argument names: `{"ready": true}` first, `{"answer": {…}}` as each question
ends, `{"ended": true}` after the last, `{"failed": text}` where the tool refuses the job. What the tool
prints itself goes to standard error. The API key comes with the job: it is in no argument and in no
environment.

A job: `url` of the API with /v1, `key`, `model`, `kind` (a key of BENCHMARKS), `questions` (objects with
`question` and `answer`, and with `choices` for kind `choice`), `max_tokens`, `concurrency`, `timeout` of one
request in seconds, and `folder` for the tool's own files.
An answer: `number` of the question in the job, and `text`, `extracted` (what was compared), `right`, `cut`
(it ended at `max_tokens`) and `tokens`, or `error` alone.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

TEXT = "equal_text"
# The benchmark whose prompts and scoring are used for each kind of question: evalscope's, but for TEXT.
BENCHMARKS = {"number": "gsm8k", "choice": "general_mcq", "text": TEXT}
# The longest part of an answer that is kept, and of an error.
TEXT_CHARACTERS = 1 << 16
ERROR_CHARACTERS = 1000


def main() -> None:
    """Until standard input ends."""
    with os.fdopen(int(sys.argv[1]), "w") as events:
        os.dup2(2, 1)  # the tool prints its tables there
        _register_text()
        _send(events, {"ready": True})
        for line in sys.stdin:
            try:
                _run(json.loads(line), events)
                _send(events, {"ended": True})
            except Exception:
                traceback.print_exc()
                _send(events, {"failed": _one_line(traceback.format_exc(limit=0))})


def _register_text() -> None:
    """A benchmark of evalscope for short texts: the prompt is the question, the metric its `exact_match`.

    evalscope's own `general_qa` measures how alike texts are (ROUGE, BLEU), not which are right.
    """
    from evalscope.api.benchmark import BenchmarkMeta, DefaultDataAdapter
    from evalscope.api.dataset import Sample
    from evalscope.api.registry import register_benchmark

    class Text(DefaultDataAdapter):  # type: ignore[misc]
        def record_to_sample(self, record: dict[str, Any]) -> Any:
            return Sample(input=record["question"], target=record["answer"])

    register_benchmark(
        BenchmarkMeta(
            name=TEXT,
            dataset_id=TEXT,
            metric_list=["exact_match"],
            few_shot_num=0,
            eval_split="test",
            prompt_template="{question}",
        )
    )(Text)


def _send(events: Any, event: dict[str, Any]) -> None:
    events.write(json.dumps(event) + "\n")
    events.flush()


def _one_line(text: str) -> str:
    return (" ".join(text.split()) or "no answer")[:ERROR_CHARACTERS]


def _run(job: dict[str, Any], events: Any) -> None:
    from evalscope.api.model.model import get_model_with_task_config
    from evalscope.api.registry import get_benchmark

    config = _task(job)
    benchmark = get_benchmark(config.datasets[0], config)
    samples = _samples(benchmark, job)
    model = get_model_with_task_config(config)
    with ThreadPoolExecutor(job["concurrency"]) as pool:
        asked = {
            pool.submit(_answer, benchmark, model, sample, job["folder"]): number
            for number, sample in enumerate(samples)
        }
        for future in as_completed(asked):
            _send(events, {"answer": {"number": asked[future], **future.result()}})


def _task(job: dict[str, Any]) -> Any:
    from evalscope.config import TaskConfig
    from evalscope.utils.multi_choices import MultipleChoiceTemplate

    name = BENCHMARKS[job["kind"]]
    # Where the chat template opens the thinking, the answer has only its end. evalscope removes pairs.
    arguments: dict[str, Any] = {"few_shot_num": 0, "filters": {"remove_until": "</think>"}}
    if job["kind"] == "choice":  # in place of the Chinese one; evalscope's MMLU has it too
        arguments["prompt_template"] = MultipleChoiceTemplate.SINGLE_ANSWER_COT
    return TaskConfig(
        model=job["model"],
        api_url=job["url"],
        api_key=job["key"],
        eval_type="openai_api",
        datasets=[name],
        dataset_args={name: arguments},
        work_dir=job["folder"],
        generation_config={
            "temperature": 0.0,
            "max_tokens": job["max_tokens"],
            "timeout": job["timeout"],
            "retries": 1,  # the OpenAI client repeats on its own what may be repeated
        },
        judge={"strategy": "rule"},
    )


def _samples(benchmark: Any, job: dict[str, Any]) -> list[Any]:
    """The questions as the benchmark reads them, with its prompt around each."""
    from evalscope.api.dataset import DatasetDict, MemoryDataset

    samples = [benchmark.record_to_sample(_record(job["kind"], given)) for given in job["questions"]]
    benchmark.load = lambda: (DatasetDict({"default": MemoryDataset(samples)}), None)
    return list(benchmark.load_dataset()["default"])


def _record(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """A question in the form of the benchmark's own data set."""
    question, answer = given["question"], given["answer"]
    if kind == "number":
        return {"question": question, "answer": f"#### {answer}"}
    choices = dict(zip("ABCDEFGHIJ", given.get("choices") or [], strict=False))
    return {"question": question, "answer": answer, **choices}


def _answer(benchmark: Any, model: Any, sample: Any, folder: str) -> dict[str, Any]:
    try:
        state = benchmark.run_inference(model=model, sample=sample, output_dir=folder)
        reason = state.output.stop_reason
        if reason in ("model_length", "content_filter"):  # evalscope's form of a refused request
            return {"error": _one_line(state.output.completion)}
        score = benchmark.calculate_metrics(task_state=state).score
        if not score.value:
            return {"error": _one_line(f"the answer cannot be scored: {score.metadata}")}
    except Exception as error:
        traceback.print_exc()
        return {"error": _one_line(str(error))}
    return {
        "text": state.output.completion[:TEXT_CHARACTERS],
        "extracted": str(score.extracted_prediction)[:TEXT_CHARACTERS],
        "right": float(next(iter(score.value.values()))) == 1.0,
        "cut": reason == "max_tokens",
        "tokens": state.output.usage.output_tokens if state.output.usage else 0,
    }


if __name__ == "__main__":
    main()
