"""Runs evalscope's load generator; the Python of the load tool's own environment executes this file.

It imports nothing of Headfirst. Jobs come as JSON lines on standard input, events go as JSON lines to the
file descriptor that the first argument names: `{"ready": true}` first, `{"done": n}` as requests end,
`{"samples": […]}` at the end of a job, `{"failed": text}` where the tool refuses it. What the tool prints
itself goes to standard error. The API key comes with the job: it is in no argument and in no environment.

A job: `url` of the chat API, `key`, `requests` (a file with one request body a line, warm-up first), `folder`
for the tool's own files, `warmup` and `number` of requests, `concurrency` or `rate` (a second), `seconds`
after which no request is sent, `timeout` of one request in seconds, `seed` of the arrival times.
A sample: `start` and `end` in seconds of one clock, `first` (seconds to the first token), `prompt` and
`answer` in tokens, `status` and `error` where it failed.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any, ClassVar

REPORT_EVERY_S = 0.2
ERROR_CHARACTERS = 4000


def main() -> None:
    """Until standard input ends."""
    with os.fdopen(int(sys.argv[1]), "w") as events:
        os.dup2(2, 1)  # the tool prints its tables there
        plugin = _recorder()
        _send(events, {"ready": True})
        for line in sys.stdin:
            try:
                answer = _run(json.loads(line), plugin, events)
            except Exception:
                traceback.print_exc()
                answer = {"failed": traceback.format_exc(limit=0).strip()[-ERROR_CHARACTERS:]}
            _send(events, answer)


def _send(events: Any, event: dict[str, Any]) -> None:
    events.write(json.dumps(event) + "\n")
    events.flush()


def _recorder() -> Any:
    """evalscope's API plugin for chat completions, which keeps what each request gave."""
    import time

    from evalscope.perf.plugin.api.openai_api import OpenaiPlugin
    from evalscope.perf.plugin.registry import register_api

    class Recorder(OpenaiPlugin):  # type: ignore[misc]
        seen: ClassVar[list[Any]] = []
        events: ClassVar[Any] = None
        reported: ClassVar[float] = 0.0

        async def process_request(self, *words: Any) -> Any:
            output = await super().process_request(*words)
            if not output.success and output.completed_time < output.start_time:
                output.completed_time = time.perf_counter()
            if output.success and None in (output.prompt_tokens, output.completion_tokens):
                output.success, output.error = False, "the answer has no count of its tokens (usage)"
            output.response_messages = []  # a dict for each token
            Recorder.seen.append(output)
            if time.monotonic() > Recorder.reported + REPORT_EVERY_S:
                Recorder.reported = time.monotonic()
                _send(Recorder.events, {"done": len(Recorder.seen)})
            return output

    register_api("headfirst")(Recorder)
    return Recorder


def _run(job: dict[str, Any], plugin: Any, events: Any) -> dict[str, Any]:
    import numpy
    from evalscope.perf.arguments import Arguments
    from evalscope.perf.main import run_one_benchmark

    plugin.seen, plugin.events = [], events
    numpy.random.seed(job["seed"])  # of the tool's Poisson arrivals
    load = {"open_loop": True, "rate": job["rate"]} if job.get("rate") else {"parallel": job["concurrency"]}
    arguments = Arguments(
        url=job["url"],
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
    return {"samples": [_sample(output) for output in plugin.seen if not output.is_warmup]}


def _sample(output: Any) -> dict[str, Any]:
    """The times of one request; tokens are those of the API's `usage`."""
    times = {"start": output.start_time, "end": output.completed_time}
    if not output.success:
        # The last line of a traceback has the reason.
        lines = (output.error or "").strip().splitlines() or ["no answer"]
        return {**times, "status": output.status_code, "error": lines[-1][:ERROR_CHARACTERS]}
    return {
        **times,
        "first": output.first_chunk_latency,
        "prompt": output.prompt_tokens,
        "answer": output.completion_tokens,
    }


if __name__ == "__main__":
    main()
