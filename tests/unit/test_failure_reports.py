"""Logs of public reports: their cause is named, whatever the engine writes after it and when."""

from __future__ import annotations

from ansible_collections.headfirst.serving.plugins.plugin_utils import failure_causes
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line, Symptom
from failure_lines import DATA, PROFILES, sections
from together import together

REPORTS = [(*heading.split(" | "), lines) for heading, lines in sections(DATA / "reports.txt")]
# What an engine adds to every crash.
LAST_WORDS = {
    "generic": [],
    "sglang": [
        "[2026-01-01 10:00:20] Received sigquit from a child process. It usually means the child failed.",
        "./run.sh: line 19: 867080 Killed                  python -m sglang.launch_server --tp-size 4",
    ],
    "vllm": [
        "(EngineCore pid=9) ERROR [core.py:946] EngineCore failed to start.",
        "(EngineCore pid=9) ERROR [core.py:946] Exception: WorkerProc initialization failed due to an "
        "exception in a background process. See stack trace for root cause.",
        "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed "
        "core proc(s): {}",
    ],
    "lmdeploy": ["ERROR:    Application startup failed. Exiting."],
}


def cause(engine: str, texts: list[str], step_s: float) -> Symptom | None:
    """The cause in the log of a rank that has ended, its lines `step_s` apart."""
    log = PROFILES[engine]
    lines = [Line(1000 + number * step_s, text) for number, text in enumerate(texts)]
    symptoms = failure_causes.in_log(log, lines)
    ended = 1000 + len(lines) * step_s
    end = failure_causes.end_of(log, lines, symptoms, rank=0, ended=ended, exit_code=1)
    return failure_causes.decisive([*symptoms, *([end] if end else [])])


@together("step_s", [0.0, 0.01, 1.0])
@together("more", [False, True])
@together("report", REPORTS)
def test_the_cause_of_a_report_is_named(report: tuple[str, ...], more: bool, step_s: float) -> None:
    _, engine, rule, *words, lines = report
    found = cause(engine, [*lines, *(LAST_WORDS[engine] if more else [])], step_s)
    assert found and found.rule == rule
    assert [
        word for word in (words[0].split(", ") if words else []) if word not in found.means + found.fix
    ] == []
