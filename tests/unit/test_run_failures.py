"""Failed results, as ansible-core 2.19 gives them, become one error; secrets and old logs go."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.control.cli.up import timing_table
from headfirst.control.run.cancel import Canceller
from headfirst.control.run.events import Finding, HostFailed
from headfirst.control.run.failures import to_error
from headfirst.control.run.messages import failure_message
from headfirst.control.run.result import RunResult, StageTime
from headfirst.control.run.runner import KEEP, new_log_file, open_log
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.scrub import MASK, Scrubber, url_credentials

UNREACHABLE = (
    'Task failed: Data could not be sent to remote host "10.0.0.2". '
    "Make sure this host can be reached over ssh: "
)


def run_result(**changes: Any) -> RunResult:
    values: dict[str, Any] = {
        "ok": False,
        "cancelled": False,
        "changed": {},
        "failed": [],
        "unreachable": [],
        "findings": [],
        "stages": [],
        "seconds": 1.0,
        "log_file": Path("/log/x.log"),
    }
    return RunResult(**{**values, **changes})


def failure(result: dict[str, Any], host: str = "node1", unreachable: bool = False) -> HostFailed:
    return HostFailed("weights", host, "Copy", failure_message(result), unreachable, result)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"msg": "Task failed: Action failed: Set x instead."}, "Set x instead."),
        ({"censored": "the output has been hidden", "changed": False}, "hidden because it may hold a secret"),
        (
            {"msg": "non-zero return code", "rc": 2, "cmd": ["ls", "/x"], "stderr": "a\nls: no /x\n"},
            "`ls /x` ended with code 2: a\nls: no /x",
        ),
        (
            {"msg": "non-zero return code", "rc": 1, "cmd": "false", "stderr": "", "stdout": "out"},
            "`false` ended with code 1: out",
        ),
        (
            {
                "msg": "One or more items failed",
                "results": [{"failed": False, "msg": "fine"}, {"failed": True, "msg": "no disk"}],
            },
            "no disk",
        ),
        (
            {
                "msg": "Task failed: Module result deserialization failed: No start of json char found",
                "module_stderr": "ControlSocket /tmp/x already exists, disabling multiplexing\nKilled\n",
            },
            "Killed",
        ),
        (
            {"argument_errors": ["a is required", "b is not an int"], "msg": "x"},
            "a is required; b is not an int",
        ),
        (
            {"headfirst_findings": [{"severity": "error"}, {"severity": "warning"}], "msg": "very long"},
            "1 not ready",
        ),
        ({}, "the task failed without a reason"),
    ],
)
def test_message_says_why(result: dict[str, Any], message: str) -> None:
    assert message in failure_message(result)


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ("ssh: connect to host 10.0.0.2 port 2222: Connection refused", "port 2222: connection refused"),
        ("ssh: connect to host 10.0.0.2 port 22: Connection timed out", "does not answer on SSH (port 22)"),
        ("ssh: connect to host 10.0.0.2 port 22: No route to host", "does not answer on SSH"),
        ("ubuntu@10.0.0.2: Permission denied (publickey,password).", "refuses the login"),
        (
            'Load key "/k/id": bad permissions\r\nubuntu@10.0.0.2: Permission denied (publickey).',
            "does not use the key /k/id",
        ),
        ("kex_exchange_identification: read: Connection reset by peer", "kex_exchange_identification"),
    ],
)
def test_unreachable_is_not_ready(said: str, what: str) -> None:
    silent = failure({"msg": UNREACHABLE + said, "unreachable": True}, unreachable=True)
    error = to_error(run_result(unreachable=[silent]), {"node1": HostAccess("node1", "10.0.0.2")})
    assert isinstance(error, NotReadyError)
    assert what in error.what
    assert error.where == "node1"
    assert "/log/x.log" in (error.hint or "")


@pytest.mark.parametrize(
    ("result", "what"),
    [
        ({"msg": "Task failed: Missing sudo password"}, "needs a password for sudo"),
        ({"msg": "Failed: [Errno 28] No space left on device: '/x'"}, "a disk of node1 is full"),
        ({"rc": 1, "msg": "non-zero return code", "stderr": "tar: No space left on device"}, "disk"),
        ({"msg": "The module interpreter '/usr/bin/python3' was not found."}, "has no Python 3"),
    ],
)
def test_host_that_is_not_ready(result: dict[str, Any], what: str) -> None:
    error = to_error(run_result(failed=[failure(result)]))
    assert isinstance(error, NotReadyError)
    assert what in error.what


def test_hint_names_the_login_that_was_tried() -> None:
    access = HostAccess("node1", "10.0.0.2", "ubuntu", 2222, Path("/k/id rsa"), Path("/k/known"))
    silent = failure({"msg": UNREACHABLE + "Permission denied (publickey)."}, unreachable=True)
    error = to_error(run_result(unreachable=[silent]), {"node1": access})
    command = "ssh -i '/k/id rsa' -p 2222 -o UserKnownHostsFile=/k/known ubuntu@10.0.0.2 true"
    assert command in (error.hint or "")


def test_several_hosts_are_told_together() -> None:
    refused = failure({"msg": UNREACHABLE + "Connection refused"}, "node2", unreachable=True)
    late = failure({"msg": UNREACHABLE + "Connection timed out"}, "node3", unreachable=True)
    error = to_error(run_result(unreachable=[refused, late], failed=[failure({"msg": "because of it"})]))
    assert error.where == "node2"
    assert "node3: node3 does not answer on SSH" in (error.hint or "")


@pytest.mark.parametrize(("stage", "points"), [("engine", True), ("weights", False)])
def test_ranks_that_fail_point_to_the_diagnosis(stage: str, points: bool) -> None:
    failed = HostFailed(stage, "node1", "Wait", "Rank 1 on node2: it ran out of memory.", False, {})
    error = to_error(run_result(failed=[failed]), inventory=Path("my/lab.ini"))
    assert ("deploy diagnose my/lab.ini\n" in (error.hint or "")) is points


@pytest.mark.parametrize(
    ("said", "outside"),
    [
        ("Failed to update apt cache after 5 retries: ", True),
        ("Failed to fetch http://mirror.example/x  Could not connect to mirror.example:80", True),
        ('Get "https://registry-1.docker.io/v2/": dial tcp 192.0.2.1:443: i/o timeout', True),
        ("the hub cannot be used now: [Errno 101] Network is unreachable", True),
        ("Tunnel connection failed: 407 Proxy Authentication Required", True),
        ("E: Unable to locate package x", False),
    ],
)
def test_sources_that_do_not_answer_name_the_proxy(said: str, outside: bool) -> None:
    hint = to_error(run_result(failed=[failure({"msg": said})])).hint or ""
    assert ("set http_proxy, and http_proxy_login_file" in hint) is outside


def test_findings_are_listed_with_their_fixes() -> None:
    findings = [
        Finding("disk", "error", "node1", "3 GB free of 20 GB", "weights go there", "Free some."),
        Finding("clock", "warning", "node1", "clock is off"),
        Finding("port", "error", "node2", "port 30000 is in use", fix="Stop it."),
    ]
    error = to_error(run_result(findings=findings, failed=[failure({"msg": "2 findings"})]))
    assert isinstance(error, NotReadyError)
    assert error.what == "2 things are not ready"
    assert (error.hint or "").splitlines()[:4] == [
        "node1: 3 GB free of 20 GB (weights go there)",
        "  → Free some.",
        "node2: port 30000 is in use",
        "  → Stop it.",
    ]
    assert "clock" not in (error.hint or "")


def test_finding_about_a_silent_host_names_its_login() -> None:
    silent = failure({"msg": UNREACHABLE + "Permission denied (publickey)."}, "node2", unreachable=True)
    found = Finding("ssh", "error", "node2", "it does not answer", fix="Try: ssh USER@ADDRESS true")
    access = {"node2": HostAccess("node2", "10.0.0.2", "ubuntu", private_key=Path("/k/id"))}
    result = run_result(findings=[found], failed=[failure({"headfirst_findings": []})], silent=[silent])
    hint = to_error(result, access).hint or ""
    assert "node2: 10.0.0.2 refuses the login: wrong user or wrong SSH key" in hint
    assert "Try: ssh -i /k/id ubuntu@10.0.0.2 true" in hint
    assert "USER@ADDRESS" not in hint


def test_other_failures() -> None:
    wrong = failure({"argument_errors": ["x is required"], "msg": "Validation failed"})
    assert isinstance(to_error(run_result(failed=[wrong])), InputError)
    plain = to_error(run_result(failed=[failure({"msg": "the rank died"})]))
    assert (type(plain), plain.what, plain.exit_code) == (HeadfirstError, "the rank died", 1)
    assert "Copy" in (plain.hint or "")
    cancelled = to_error(run_result(cancelled=True, failed=[failure({"msg": "half way"})]))
    assert cancelled.what == "stopped before the end"
    assert to_error(run_result(ansible_error="ERROR! no play")).what == "ERROR! no play"


def test_scrubber() -> None:
    scrub = Scrubber(["", 'pa"ss', "pa", "long-pa-longer"])
    assert scrub.text('x pa"ss y') == f"x {MASK} y"
    assert scrub.text(r'{"a": "pa\"ss"}') == f'{{"a": "{MASK}"}}'
    assert scrub.text("long-pa-longer") == MASK
    assert Scrubber(["it's"]).text("msg: 'it''s'") == f"msg: '{MASK}'"
    assert scrub.value({"k": ["pa", 1, None], "pa": {"x": "no"}}) == {"k": [MASK, 1, None], MASK: {"x": "no"}}
    assert Scrubber([]).text("anything") == "anything"
    assert Scrubber(["p@ss/1"]).text("at p%40ss%2F1!") == f"at {MASK}!"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see https://user:token@host/simple now", f"see https://{MASK}@host/simple now"),
        ("https://token@host", f"https://{MASK}@host"),
        ("http://u:p@ss:w@proxy:3128 https://a:b@c", f"http://{MASK}@proxy:3128 https://{MASK}@c"),
        ("http://u:p%40ss@proxy", f"http://{MASK}@proxy"),
        ("ssh://root@node1", "ssh://root@node1"),
        ("ssh://root:secret@node1", f"ssh://{MASK}@node1"),
        ("https://host/@scope/a:b@c", "https://host/@scope/a:b@c"),
        ("mail user@host, see https://host", "mail user@host, see https://host"),
    ],
)
def test_passwords_in_urls_are_masked_without_being_known(text: str, expected: str) -> None:
    assert Scrubber([]).text(text) == expected
    assert Scrubber([]).value({"result": [text]}) == {"result": [expected]}


def test_passwords_of_the_settings_urls_are_known() -> None:
    settings = {
        "node_tools_index_url": "https://user:to%2Fken@host/simple",
        "docker_engine_daemon_config": {"proxies": {"http-proxy": "http://me:secret@proxy"}},
        "mirrors": ["https://bearer@mirror", "ssh://root@host", "http://u:abc@short"],
    }
    assert url_credentials(settings) == {"to%2Fken", "to/ken", "secret", "bearer"}
    assert Scrubber(sorted(url_credentials(settings))).text("denied: to/ken") == f"denied: {MASK}"


def test_nohup_is_respected() -> None:
    canceller = Canceller()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with canceller.on_signals():
            signal.raise_signal(signal.SIGHUP)
            assert not canceller.requested
            signal.raise_signal(signal.SIGTERM)
            assert canceller.requested
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_logs_are_private_and_the_last_twenty_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = []
    for number in range(KEEP + 3):
        path = new_log_file("lab")
        path = path.with_name(f"{path.stem}-{number}.log")
        with open_log(path) as log:
            log.write("x")
        os.utime(path, (number, number))
        made.append(path)
    newest = new_log_file("lab")
    assert newest.parent == tmp_path / "headfirst" / "logs"
    left = sorted(newest.parent.glob("*.log"))
    assert left == sorted(made[-KEEP + 1 :])
    assert left[0].stat().st_mode & 0o777 == 0o600
    assert newest.parent.stat().st_mode & 0o777 == 0o700


def test_timing_table() -> None:
    table = timing_table(
        run_result(stages=[StageTime("check", 30.0), StageTime("host", 90.0)], seconds=120.0)
    )
    columns = [list(column.cells) for column in table.columns]
    assert columns[0] == ["check", "host", "[bold]total"]
    assert columns[1] == ["30s", "1m 30s", "[bold]2m 00s"]
    assert columns[2] == ["25 %", "75 %", ""]
