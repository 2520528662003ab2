"""run_playbook with the real ansible-runner, over connection local."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from collecting import Collector
from headfirst.common.errors import NotReadyError
from headfirst.control.run import runner
from headfirst.control.run.events import (
    Event,
    HostFailed,
    Progress,
    RunDone,
    RunStarted,
    StageDone,
    StageStarted,
)
from headfirst.control.run.failures import to_error
from headfirst.control.run.result import RunResult
from headfirst.control.run.runner import run_playbook
from headfirst.control.run.translate import Translator
from headfirst.decide.scrub import Scrubber

SECRET = 'tok"en-5f2e'
INVENTORY = """\
[all]
node1
node2
[all:vars]
ansible_connection=local
ansible_python_interpreter=/usr/bin/python3
"""


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for the runs of the test, to see what they leave behind."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        monkeypatch.setattr("tempfile.tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def play(tmp_path: Path, text: str, collector: Collector | None = None, **options: Any) -> RunResult:
    (tmp_path / "hosts.ini").write_text(INVENTORY)
    (tmp_path / "play.yml").write_text(textwrap.dedent(text))
    return run_playbook(
        tmp_path / "play.yml",
        [tmp_path / "hosts.ini"],
        reporter=collector or Collector(),
        log_file=tmp_path / "run.log",
        **options,
    )


def test_an_event_of_a_host_cannot_fill_the_log() -> None:
    run = object.__new__(runner._Run)
    run.scrubber, run.log, run.translator = Scrubber([]), io.StringIO(), Translator()
    run.complaints, run.published = [], {}
    run._handle({"event": "verbose", "stdout": "x" * (3 << 20)})
    assert len(run.log.getvalue()) <= (1 << 20) + 1


def test_stages_changes_and_secrets(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", SECRET)
    collector = Collector()
    result = play(
        tmp_path,
        """
        - name: check | Look
          hosts: all
          gather_facts: false
          tasks:
            - name: Show the secret and the environment
              ansible.builtin.debug: {msg: "{{ token }} {{ lookup('env', 'SOME_TOKEN') }}"}
        - name: nobody | No host takes part
          hosts: localhost
          gather_facts: false
          tasks: []
        - name: host | First
          hosts: all
          gather_facts: false
          tasks:
            - name: Change
              ansible.builtin.command: {cmd: "true"}
            - name: Fail and be fixed
              block:
                - ansible.builtin.command: {cmd: "false"}
              rescue:
                - ansible.builtin.debug: {msg: fixed}
        - name: host | Second
          hosts: node1
          gather_facts: false
          tasks:
            - name: Publish
              ansible.builtin.set_stats: {data: {answer: 42}}
        """,
        collector,
        extra_vars=[json.dumps({"token": SECRET})],
        secrets=[SECRET],
    )
    assert result.ok
    assert not result.cancelled
    assert result.failed == []
    assert result.changed == {"node1": 1, "node2": 1}
    assert result.stats == {"answer": 42}
    assert [stage for stage, _ in result.stages] == ["check", "host"]
    assert 0 < sum(seconds for _, seconds in result.stages) <= result.seconds
    assert isinstance(collector.events[0], RunStarted)
    assert isinstance(collector.events[-1], RunDone)
    stages = [event for event in collector.events if isinstance(event, (StageStarted, StageDone))]
    assert [event.stage for event in stages] == ["check", "check", "host", "host"]
    log = (tmp_path / "run.log").read_text()
    assert "TASK [Change]" in log
    assert "********" in log
    for text in (log, repr(collector.events), repr(result)):
        assert "5f2e" not in text
    assert (tmp_path / "run.log").stat().st_mode & 0o777 == 0o600
    assert list(scratch.glob("hf-*")) == []


def test_secrets_are_gone_from_disk_while_the_run_lasts(tmp_path: Path) -> None:
    result = play(
        tmp_path,
        """
        - name: check | Look for the secret in the run's own folder
          hosts: node1
          gather_facts: false
          tasks:
            - name: Search
              ansible.builtin.command:
                cmd: grep -rl {{ token }} {{ lookup('env', 'HEADFIRST_PROGRESS') | dirname }}
              register: search
              failed_when: search.rc != 1
        """,
        extra_vars=["token=plain-7be1"],
    )
    assert result.ok, result


def test_check_mode_and_limit_reach_ansible(tmp_path: Path) -> None:
    result = play(
        tmp_path,
        """
        - name: host | Write
          hosts: all
          gather_facts: false
          tasks:
            - name: Copy
              ansible.builtin.copy:
                dest: "{{ playbook_dir }}/made-{{ inventory_hostname }}"
                content: "new\\n"
                mode: "0644"
        """,
        check=True,
        diff=True,
        limit="node2",
    )
    assert result.ok
    assert result.changed == {"node2": 1}
    assert list(tmp_path.glob("made-*")) == []
    assert "+new" in (tmp_path / "run.log").read_text()


def test_failure_names_host_task_and_reason(tmp_path: Path) -> None:
    collector = Collector()
    result = play(
        tmp_path,
        """
        - name: serve | Start
          hosts: all
          gather_facts: false
          tasks:
            - name: Try each
              ansible.builtin.command: {cmd: "ls {{ item }}"}
              loop: [/, /not/there]
              when: inventory_hostname == 'node2'
        """,
        collector,
    )
    assert not result.ok
    (failure,) = result.failed
    assert (failure.host, failure.stage, failure.task) == ("node2", "serve", "Try each")
    assert "/not/there" in failure.message
    assert [event.host for event in collector.events if isinstance(event, HostFailed)] == ["node2"]
    error = to_error(result)
    assert (error.exit_code, error.where) == (1, "node2")
    assert "serve" in (error.hint or "")
    assert str(result.log_file) in (error.hint or "")


def test_closed_port_is_not_ready(tmp_path: Path) -> None:
    (tmp_path / "ssh.ini").write_text("node1 ansible_connection=ssh ansible_host=127.0.0.1 ansible_port=1\n")
    (tmp_path / "play.yml").write_text(
        "- name: check | Reach\n  hosts: all\n  gather_facts: false\n"
        "  tasks: [{name: Ping, ansible.builtin.ping: }]\n"
    )
    result = run_playbook(
        tmp_path / "play.yml", [tmp_path / "ssh.ini"], reporter=Collector(), log_file=tmp_path / "run.log"
    )
    assert [failure.host for failure in result.unreachable] == ["node1"]
    error = to_error(result)
    assert isinstance(error, NotReadyError)
    assert "port 1" in error.what
    assert "refused" in error.what


def test_host_that_may_be_silent(tmp_path: Path) -> None:
    result = play(
        tmp_path,
        """
        - name: check | Reach
          hosts: all
          gather_facts: false
          tasks:
            - name: Ping
              ansible.builtin.ping:
              ignore_unreachable: true
              vars:
                ansible_connection: "{{ 'ssh' if inventory_hostname == 'node2' else 'local' }}"
                ansible_host: 127.0.0.1
                ansible_port: 1
                # Else the task's data may meet a closed pipe before the refusal is read.
                ansible_pipelining: false
        """,
    )
    assert result.ok
    assert result.unreachable == []
    assert [failure.host for failure in result.silent] == ["node2"]
    assert "refused" in result.silent[0].message


def test_broken_playbook_says_so(tmp_path: Path) -> None:
    result = play(tmp_path, "- name: x | y\n  hosts: all\n  roles: [no_such_role]\n")
    assert not result.ok
    assert "no_such_role" in (result.ansible_error or "")
    assert "no_such_role" in to_error(result).what


LIAR = """\
#!/usr/bin/python3
import json
print(json.dumps({"changed": False, "ansible_facts": {"wheel": "/root/.ssh/id_ed25519"}}))
"""


def test_facts_in_a_result_of_a_node_do_not_replace_variables(tmp_path: Path) -> None:
    """A node may answer any task with such a result; roles copy files that variables name to the node."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "liar.py").write_text(LIAR)
    (tmp_path / "host_vars").mkdir()
    (tmp_path / "host_vars" / "node1.yml").write_text("wheel: /srv/tools.whl\n")
    result = play(
        tmp_path,
        """
        - name: host | Install
          hosts: node1
          gather_facts: false
          tasks:
            - name: Ask the node
              liar:
            - name: Publish
              ansible.builtin.set_stats:
                data:
                  wheel: "{{ wheel }}"
        """,
    )
    assert result.stats == {"wheel": "/srv/tools.whl"}


SPEAKER = """\
#!/usr/bin/python3
import json
stats = {"data": {"node2": {"cores": 1}, "answer": 1}, "per_host": False, "aggregate": False}
finding = {"id": "x", "severity": "error", "host": "node2", "what": "broken"}
print(json.dumps({"changed": False, "ansible_stats": stats, "headfirst_findings": [finding]}))
"""


def test_a_node_does_not_speak_for_another(tmp_path: Path) -> None:
    """Statistics and findings come from tasks on the controller, not from what a node prints."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "speaker.py").write_text(SPEAKER)
    collector = Collector()
    result = play(
        tmp_path,
        """
        - name: check | Probe
          hosts: all
          gather_facts: false
          tasks:
            - name: Publish
              ansible.builtin.set_stats:
                data: "{{ {inventory_hostname: {'cores': 8}} }}"
            - name: Ask the node
              speaker:
              when: inventory_hostname == 'node1'
        """,
        collector,
    )
    assert result.ok
    assert result.stats == {"node1": {"cores": 8}, "node2": {"cores": 8}}
    assert result.findings == []


def test_facts_that_a_node_returns_are_no_variables(tmp_path: Path) -> None:
    """As variables they would win over the inventory's: a file to upload, the name of the host itself."""
    (tmp_path / "library").mkdir()
    facts = {"tarball": "/root/.ssh/id_rsa", "inventory_hostname": "node2"}
    answer = json.dumps({"changed": False, "ansible_facts": facts})
    (tmp_path / "library" / "speaker.py").write_text(f"#!/usr/bin/python3\nprint({answer!r})\n")
    result = play(
        tmp_path,
        """
        - name: image | Ask
          hosts: node1
          gather_facts: false
          tasks:
            - name: Ask the node
              speaker:
            - name: Publish what a task would use
              ansible.builtin.set_stats:
                data: {name: "{{ inventory_hostname }}", tarball: "{{ tarball | default('') }}"}
        """,
    )
    assert result.stats == {"name": "node1", "tarball": ""}


def test_progress_lines_become_events(tmp_path: Path) -> None:
    collector = Collector()
    lines = [
        json.dumps({"host": "node1", "what": "copy", "done": n, "total": 2, "unit": "files"}) for n in (1, 2)
    ]
    result = play(
        tmp_path,
        f"""
        - name: weights | Copy
          hosts: node1
          gather_facts: false
          tasks:
            - name: Report
              ansible.builtin.shell: |
                echo '{lines[0]}' >> "$HEADFIRST_PROGRESS"
                sleep 0.5
                echo broken >> "$HEADFIRST_PROGRESS"
                echo '{lines[1]}' >> "$HEADFIRST_PROGRESS"
        """,
        collector,
    )
    states = [event for event in collector.events if isinstance(event, Progress)]
    assert [(state.stage, state.host, state.done) for state in states] == [
        ("weights", "node1", 1),
        ("weights", "node1", 2),
    ]
    assert states[-1].rate is not None
    assert states[-1].rate > 0
    assert "not a progress line: broken" in result.log_file.read_text()


def test_reporter_that_breaks_stops_ansible(tmp_path: Path) -> None:
    class Broken(Collector):
        def handle(self, event: Event) -> None:
            if isinstance(event, StageStarted):
                raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        play(tmp_path, SLEEPER.format(command="sleep 297.31"), Broken())
    assert running("297.31") == []


SLEEPER = """
- name: weights | Wait
  hosts: all
  gather_facts: false
  tasks:
    - name: Sleep
      ansible.builtin.shell: {command}
"""
PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_run_playbook import Collector, StageDone, play
from headfirst.control.run import cancel
from headfirst.control.run.failures import to_error
cancel.GRACE_S = 600  # Ansible ends its workers itself
collector = Collector()
result = play(Path({folder!r}), {playbook!r}, collector)
print(result.cancelled, result.ok, to_error(result).what, sep=";")
print([(event.stage, event.completed) for event in collector.events if isinstance(event, StageDone)])
"""


def running(words: str) -> list[str]:
    """Command lines of living processes that contain `words`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if words in command and "test_run_playbook" not in command:
                found.append(command)
    return found


@pytest.mark.parametrize(
    ("number", "command", "times"),
    [
        (signal.SIGINT, "sleep 298.11", 1),
        (signal.SIGTERM, "sleep 298.12", 1),
        (signal.SIGINT, "trap '' INT TERM; sleep 298.13; sleep 298.13", 1),
        (signal.SIGINT, "sleep 298.14", 2),
    ],
    ids=["ctrl-c", "sigterm", "task-ignores-it", "ctrl-c-twice"],
)
def test_cancel_ends_what_was_started(
    tmp_path: Path, scratch: Path, number: signal.Signals, command: str, times: int
) -> None:
    program = PROGRAM.format(
        tests=str(Path(__file__).parent),
        folder=str(tmp_path),
        playbook=SLEEPER.format(command=f'"{command}"'),
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    marker = command.split()[-1]
    assert running(marker) == [], "an earlier run left something behind"
    with (
        subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
        ) as child,
        ExitStack() as ends,
    ):
        ends.callback(child.terminate)  # a failure below would wait for it
        deadline = time.monotonic() + 120
        while len(running(f"sleep {marker}")) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert running(f"sleep {marker}"), "the task never started"
        for _ in range(times):
            child.send_signal(number)
            time.sleep(0.05)
        out, _ = child.communicate(timeout=60)
    assert out.splitlines() == ["True;False;stopped before the end", "[('weights', False)]"]
    assert running(marker) == []
    assert list(scratch.glob("hf-*")) == []
