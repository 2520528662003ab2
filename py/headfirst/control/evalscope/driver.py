"""Sends requests, or asks and scores questions; the Python of evalscope's environment executes this file.

It imports nothing of Headfirst. The first argument is a file descriptor for events, the second the kind of
jobs: `load` or `questions`. Jobs come as JSON lines on standard input, events go as JSON lines:
`{"ready": true}` first, `{"done": n}` as requests end (at most five a second), `{"result": {…}}` for each
request, `{"ended": true}` after the last, `{"failed": text}` where the tool refuses the job. What the tool
prints itself goes to standard error. The API key comes with the job: it is in no argument and in no
environment.

A job has `url` of the API with /v1, `key`, `folder` for the tool's own files, `timeout` of one request in
seconds, and:
- load: `requests` (a file with one request body a line, warm-up first), `warmup` and `number` of requests,
  `concurrency` or `rate` (a second), `seconds` after which no request is sent, `seed` of the arrival times. A
  result: `start` and `end` in seconds of one clock, `first` (seconds to the first token), `prompt` and
  `answer` in tokens; or `status` and `error` where it failed.
- questions: `model`, `kind` (a key of BENCHMARKS), `questions` (objects with `question` and `answer`, and
  with `choices` for kind `choice`), `max_tokens`, `concurrency`. A result: `number` of the question in the
  job, and `text`, `extracted` (what was compared), `right`, `cut` (it ended at `max_tokens`) and `tokens`,
  or `error`.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

Result = dict[str, Any]
Send = Callable[[dict[str, Any]], None]
REPORT_EVERY_S = 0.2
TEXT = "equal_text"
# The benchmark whose prompts and scoring are used for each kind of question: evalscope's, but for TEXT.
BENCHMARKS = {"number": "gsm8k", "choice": "general_mcq", "text": TEXT}
# The longest part of an answer that is kept, and of an error.
TEXT_CHARACTERS = 1 << 16
ERROR_CHARACTERS = 4000


def main() -> None:
    """Until standard input ends."""
    with os.fdopen(int(sys.argv[1]), "w") as events:
        os.dup2(2, 1)  # the tool prints its tables there

        def send(event: dict[str, Any]) -> None:
            events.write(json.dumps(event) + "\n")
            events.flush()

        run = {"load": _load, "questions": _questions}[sys.argv[2]](send)
        send({"ready": True})
        for line in sys.stdin:
            try:
                for result in run(json.loads(line)):
                    send({"result": result})
                send({"ended": True})
            except Exception:
                traceback.print_exc()
                send({"failed": _last_line(traceback.format_exc(limit=0))})


def _last_line(text: str) -> str:
    """Of a traceback: it has the reason."""
    return (text.strip().splitlines() or ["no answer"])[-1][:ERROR_CHARACTERS]


def _one_line(text: str) -> str:
    return (" ".join(text.split()) or "no answer")[:ERROR_CHARACTERS]


def _load(send: Send) -> Callable[[dict[str, Any]], Iterator[Result]]:
    """With evalscope's API plugin for chat completions, which keeps what each request gave."""
    import numpy
    from evalscope.perf.arguments import Arguments
    from evalscope.perf.main import run_one_benchmark
    from evalscope.perf.plugin.api.openai_api import OpenaiPlugin
    from evalscope.perf.plugin.registry import register_api

    seen: list[Any] = []
    reported = 0.0

    class RecordingPlugin(OpenaiPlugin):  # type: ignore[misc]
        async def process_request(self, *words: Any) -> Any:
            nonlocal reported
            output = await super().process_request(*words)
            if not output.success and output.completed_time < output.start_time:
                output.completed_time = time.perf_counter()
            if output.success and None in (output.prompt_tokens, output.completion_tokens):
                output.success, output.error = False, "the answer has no count of its tokens (usage)"
            output.response_messages = []  # a dict for each token
            seen.append(output)
            if time.monotonic() > reported + REPORT_EVERY_S:
                reported = time.monotonic()
                send({"done": len(seen)})
            return output

    register_api("headfirst")(RecordingPlugin)

    def run(job: dict[str, Any]) -> Iterator[Result]:
        seen.clear()
        numpy.random.seed(job["seed"])  # of the tool's Poisson arrivals
        load = (
            {"open_loop": True, "rate": job["rate"]} if job.get("rate") else {"parallel": job["concurrency"]}
        )
        arguments = Arguments(
            url=f"{job['url']}/chat/completions",
            model="",  # every body names it
            api="headfirst",
            headers={"Authorization": f"Bearer {job['key']}"},
            dataset="line_by_line",
            dataset_path=job["requests"],
            outputs_dir=job["folder"],
            number=job["number"],
            warmup_num=job["warmup"],
            duration=job.get("seconds"),
            total_timeout=job["timeout"],
            no_test_connection=True,
            num_workers=1,
            max_tokens=None,
            seed=None,
            log_every_n_query=1 << 30,
            **load,
        )
        run_one_benchmark(arguments, output_path=job["folder"])
        return map(_sample, [output for output in seen if not output.is_warmup])

    return run


def _sample(output: Any) -> Result:
    """The times of one request; tokens are those of the API's `usage`."""
    times = {"start": output.start_time, "end": output.completed_time}
    if not output.success:
        return {**times, "status": output.status_code, "error": _last_line(output.error or "")}
    tokens = {"prompt": output.prompt_tokens, "answer": output.completion_tokens}
    return {**times, **tokens, "first": output.first_chunk_latency}


def _questions(_: Send) -> Callable[[dict[str, Any]], Iterator[Result]]:
    """With a benchmark of ours for short texts: the prompt is the question, the metric its `exact_match`.

    evalscope's own `general_qa` measures how alike texts are (ROUGE, BLEU), not which are right.
    """
    from evalscope.api.benchmark import BenchmarkMeta, DefaultDataAdapter
    from evalscope.api.dataset import Sample
    from evalscope.api.registry import register_benchmark

    class TextBenchmark(DefaultDataAdapter):  # type: ignore[misc]
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
    )(TextBenchmark)
    return _answers


def _answers(job: dict[str, Any]) -> Iterator[Result]:
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
            yield {"number": asked[future], **future.result()}


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

    samples = [benchmark.record_to_sample(_record(job["kind"], question)) for question in job["questions"]]
    benchmark.load = lambda: (DatasetDict({"default": MemoryDataset(samples)}), None)
    return list(benchmark.load_dataset()["default"])


def _record(kind: str, item: dict[str, Any]) -> dict[str, Any]:
    """A question in the form of the benchmark's own data set."""
    question, answer = item["question"], item["answer"]
    if kind == "number":
        return {"question": question, "answer": f"#### {answer}"}
    choices = dict(zip("ABCDEFGHIJ", item.get("choices") or [], strict=False))
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
