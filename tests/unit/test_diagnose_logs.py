"""`deploy diagnose --log`: where it began, why and what to type, from logs alone."""

from __future__ import annotations

import io
import json
import re
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import conditions, profile
from failure_lines import DATA, PROFILES, matched, unmatched
from headfirst.common.errors import InputError
from headfirst.control.cli.app import app
from headfirst.control.deployment.verbs.diagnose import of_logs
from headfirst.control.evidence import log_files
from headfirst.decide import engines
from headfirst.decide.diagnose import logs
from headfirst.decide.diagnose.log_lines import log_line
from headfirst.decide.diagnose.log_words import words_of
from headfirst.decide.diagnose.types import Diagnosis
from typer.testing import CliRunner

LOGS = DATA / "logs"
CASES = [pytest.param(case, id=case["files"][0]) for case in yaml.safe_load((LOGS / "cases.yml").read_text())]
# What a person without an inventory does not have.
OURS = re.compile(
    r"engine_(args|env|image|version|port|volumes|runtime)|`deploy\b|\bdeploy (up|logs)|inventory"
    r"|\b(nic|hca)\b|ib_gid_index|dist_port|model_(source|revision)|(tensor|pipeline)_parallel\b|ready_timeout|gpu_devices"
    r"|shm_size|kv_transfer|weights stage|[<>]"
)
STATES = ("unknown-error", "hang-rendezvous", "hang-after-nccl", "nccl-differs")  # that a log can show


@pytest.mark.parametrize("case", CASES)
def test_where_it_began_and_what_to_type(case: dict[str, object]) -> None:
    found = of_logs([str(LOGS / name) for name in case["files"]]).decisive
    assert found
    assert (found.rule, f"{Path(found.file).name}:{found.line}") == (case["cause"], case["at"])
    assert case["step"] in found.fix


def test_the_steps_need_no_inventory() -> None:
    fixes = {
        rule.fix for name in engines.names() for rule in profile(engines.get(name).log(), by_hand=True).rules
    }
    fixes |= {rule.fix for rule in profile({}, by_hand=True).rules}
    fixes |= {conditions(by_hand=True)[name].fix for name in STATES}
    assert len(fixes) > 100
    assert [fix for fix in fixes if OURS.search(fix)] == []


def test_flags_of_the_steps_are_the_engines_own() -> None:
    for name in engines.names():
        known = set(engines.get(name).specification.options)
        generic = {rule.fix for rule in profile({}, by_hand=True).rules}
        rules = profile(engines.get(name).log(), by_hand=True).rules
        flags = {
            flag
            for rule in rules
            if rule.fix not in generic
            for flag in re.findall(r"(?<![\w-])--[a-z][\w-]+", rule.fix)
        }
        assert flags - known - {"--query-compute-apps", "--format", "--gpus"} == set(), name


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_no_line_of_a_rule_is_passed_over(name: str) -> None:
    log = PROFILES[name]
    lines = [line for rule in log.rules for line in (*matched(name, rule.id), *unmatched(name, rule.id))]
    assert len(lines) > 100
    quick = logs._QuickProfile(**vars(log))
    for line in lines:
        rule = log.match(line)
        assert quick.match(line) == rule
        above = logs._explained(line).get(0)
        assert rule is None or above is not None, line
        assert not log.any_error.search(line) or above == logs._ABOVE, line


def test_a_pattern_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match="need not have any text"):
        words_of(re.compile(r"\d+|x"))
    assert words_of(re.compile(r"(ab|cd)e*(long|words) text")) == (" text",)


JOURNAL = {"__REALTIME_TIMESTAMP": "1772000001500000", "_HOSTNAME": "n1", "CONTAINER_NAME": "vllm"}


@pytest.mark.parametrize(
    ("line", "source", "rank", "clock"),
    [
        ("2026-02-25T06:13:21.123456789Z hello", "", "", "zoned"),
        ("vllm_server  | hello", "vllm_server", "", ""),
        ("sglang-1  | 2026-02-25T06:13:21.5Z hello", "sglang-1", "", "zoned"),
        ("[pod/llm-0/vllm] 2026-02-25T06:13:21+00:00 hello", "pod/llm-0/vllm", "", "zoned"),
        ("2026-02-25T06:13:21.5+00:00 stderr F hello", "", "", "zoned"),
        ("llm-7d9-x2lqp sgl [2026-02-25 06:13:21 TP1 PP0] hello", "llm-7d9-x2lqp sgl", "TP1 PP0", "local"),
        ("Feb 25 06:13:21 n1 vllm[77]: hello", "n1 vllm[77]", "", "short"),
        ("2026-02-25T06:13:21+0000 n1 kernel: hello", "n1 kernel", "", "zoned"),
        (json.dumps({**JOURNAL, "MESSAGE": "hello"}), "n1 vllm", "", "zoned"),
        (json.dumps({**JOURNAL, "MESSAGE": list(b"\x1b[31mhello")}), "n1 vllm", "", "zoned"),
        (json.dumps({"log": "hello\n", "time": "2026-02-25T06:13:21.5Z"}), "", "", "zoned"),
        (" 3: (Worker_TP3 pid=9) ERROR 02-25 06:13:21 [core.py:1] hello", "task 3", "Worker_TP3", "engine"),
        ("(RayWorkerWrapper pid=9, ip=10.0.0.2) hello", "", "RayWorkerWrapper, ip=10.0.0.2", ""),
        ("[rank3]: hello", "", "rank3", ""),
        ("[rank4]:[E225 06:13:21.104512039 ProcessGroupNCCL.cpp:616] hello", "", "rank4", "engine"),
        ("W0225 06:13:21.778028 2548307 transport.cpp:820] hello", "", "", "engine"),
        ("[TM][FATAL][0225.06:13:21.807188][cast.cu:264] hello", "", "", "engine"),
        ("gpu-b:411:980 [2] NCCL WARN hello", "", "gpu-b", ""),
        ("10%\r 90%\rhello\r", "", "", ""),
        ('{"not": "a log"} hello', "", "", ""),
        ("\xff\x1b]0;title\x07hello", "", "", ""),
    ],
)  # fmt: skip
def test_what_collects_logs_is_recognised(line: str, source: str, rank: str, clock: str) -> None:
    read = log_line(line.encode("latin-1"), 1000)
    assert read.text.endswith("hello")
    assert (read.source, read.rank, read.clock) == (source, rank, clock)
    assert clock != "zoned" or 1771999999 < read.at < 1772000002.1
    assert "\x1b" not in read.text


def of_text(folder: Path, text: str) -> Diagnosis:
    file = folder / "engine.log"
    file.write_text(text)
    return of_logs([str(file)])


def test_standard_input_and_exit_codes(tmp_path: Path) -> None:
    text = (LOGS / "docker-memlock.log").read_bytes()
    done = CliRunner().invoke(app, ["diagnose", "--log", "-"], input=text)
    assert done.exit_code == 1
    assert "standard input:6 (gpu-b)" in done.output
    assert "--ulimit memlock=-1" in done.output
    done = CliRunner().invoke(
        app, ["diagnose", "--json", "--log", str(LOGS / "docker-rank0.log"), str(LOGS / "docker-rank1.log")]
    )
    found = json.loads(done.output)
    assert found["decisive"]["line"] == 4
    assert [event["rule"] for event in found["then"]] == ["collective-timeout"]
    serving = CliRunner().invoke(app, ["diagnose", "--log", str(DATA / "serving" / "vllm.log")])
    assert serving.exit_code == 0
    starting = tmp_path / "starting.log"
    starting.write_text(
        "[2026-01-01 00:00:00] server_args=ServerArgs()\n[2026-01-01 00:00:09] Load weight begin.\n"
    )
    done = CliRunner().invoke(app, ["diagnose", "--log", str(starting)])
    assert done.exit_code == 3
    assert "loading weights" in done.output
    starting.write_text("hello\n")
    done = CliRunner().invoke(app, ["diagnose", "--log", str(starting)])
    assert "1 line, no known step" in done.output


def test_a_rank_that_waits_for_the_others(tmp_path: Path) -> None:
    text = (
        "[2026-01-01 00:00:00 TP8] server_args=ServerArgs()\n"
        "[2026-01-01 00:00:01 TP8] Init torch distributed begin.\n"
        "[2026-01-01 00:09:00 TP8] still here\n"
    )
    found = of_text(tmp_path, text).decisive
    assert found and (found.rule, found.line) == ("hang-rendezvous", 2)
    assert "GLOO_SOCKET_IFNAME" in found.fix


def test_an_error_of_a_request_is_no_failure(tmp_path: Path) -> None:
    served = "(APIServer pid=1) INFO:     Application startup complete. vllm\n"
    error = "(APIServer pid=1) ERROR 01-01 00:00:00 [serving.py:1] ValueError: --max-model-len is 8 tokens\n"
    assert of_text(tmp_path, served + error).ready
    assert not of_text(tmp_path, f"{served}{error}CUDA out of memory. Tried to allocate 2.00 GiB\n").ready


def test_the_words_of_a_user_are_not_read(tmp_path: Path) -> None:
    text = "INFO vllm Received request chatcmpl-1: prompt: 'Why CUDA out of memory?', params: 1\n"
    assert of_text(tmp_path, text).decisive is None


def test_secrets_are_masked(tmp_path: Path) -> None:
    text = "vllm: ValueError: --api-key=sesame1234 or hf_abcdefghijkl at https://me:pw@host/ for --port\n"
    found = of_text(tmp_path, text)
    assert found.decisive
    for secret in ("sesame1234", "hf_abcdefghijkl", "pw@"):
        assert secret not in found.model_dump_json()


@pytest.mark.parametrize(
    ("content", "what"),
    [(None, "cannot be read"), (b"", "empty"), (b"\x1f\x8b\x08", "compressed"), (b"\xff\xfeE\0", "UTF-16")],
)
def test_what_is_no_log_is_refused(tmp_path: Path, content: bytes | None, what: str) -> None:
    file = tmp_path / "engine.log"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=what) as refused:
        of_logs([str(file)])
    assert refused.value.where == str(file)
    with pytest.raises(InputError, match="cannot be read"):
        of_logs([str(tmp_path)])


def test_an_inventory_and_logs_are_told_apart() -> None:
    for words in (["--log"], ["one.ini", "two.log"]):
        assert isinstance(CliRunner().invoke(app, ["diagnose", *words]).exception, InputError)


def test_broken_bytes_do_no_harm_and_little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "BLOCK_BYTES", 1 << 16)
    noise = b"\xff\xfe\0\x1b[2J\x1b]0;owned\x07\xe2\x80\xae" * 40 + b"\n"
    lines = [b"Error: %d \xc3( \x1b[31mValueError: request %x\n" % (at, at * 7919) for at in range(12_000)]
    text = b"sglang\n" + noise * 500 + b"x" * 300_000 + b"\n" + b"".join(lines)
    text += b"torch.OutOfMemoryError: CUDA out of memory.\n" + b"".join(lines)
    stdin = SimpleNamespace(buffer=io.BytesIO(text))
    monkeypatch.setattr(log_files, "sys", SimpleNamespace(stdin=stdin))
    monkeypatch.setattr(logs, "_KEPT", 500)
    tracemalloc.start()
    log = log_files.read("-")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 << 20
    assert log.lines == text.count(b"\n")
    found = logs.diagnose([log])
    assert found.decisive
    assert not re.search(
        r"[\x00-\x08\x0b-\x1f\x7f\u202e]", json.dumps(found.model_dump(), ensure_ascii=False)
    )


def test_without_the_name_of_an_engine_each_has_a_step(tmp_path: Path) -> None:
    text = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    found = of_text(tmp_path, text).decisive
    assert found and "SGLang: Lower --mem-fraction-static" in found.fix
    assert "vLLM: Lower --gpu-memory-utilization" in found.fix
    found = of_text(tmp_path, f"INFO vllm started\n{text}").decisive
    assert found and "SGLang" not in found.fix
