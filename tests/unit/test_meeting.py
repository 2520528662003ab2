"""Hosts of a task wait for each other after each step."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.headfirst.serving.plugins.plugin_utils.meeting import Meeting

HOSTS = ["node1", "node2", "node3"]


def at_once(folder: Path, *works: Any) -> dict[str, Any]:
    """Each host does its work with its place in the meeting; what each returns."""
    found: dict[str, Any] = {}

    def attend(host: str, work: Any) -> None:
        meeting = Meeting(folder, host, HOSTS)
        try:
            found[host] = work(meeting)
        finally:
            meeting.leave()

    threads = [threading.Thread(target=attend, args=pair) for pair in zip(HOSTS, works, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return found


def test_all_hear_the_same_in_each_step(tmp_path: Path) -> None:
    def work(number: int) -> Any:
        return lambda meeting: [meeting.exchange([number, step]) for step in range(20)]

    found = at_once(tmp_path / "m", *map(work, range(3)))
    expected = [{host: [number, step] for number, host in enumerate(HOSTS)} for step in range(20)]
    assert found == dict.fromkeys(HOSTS, expected)


def test_nobody_waits_for_a_host_that_left(tmp_path: Path) -> None:
    def stay(meeting: Meeting) -> list[dict[str, Any]]:
        return [meeting.exchange("here"), meeting.exchange("still here")]

    found = at_once(tmp_path / "m", stay, lambda meeting: meeting.exchange("bye"), stay)
    assert (
        found["node1"]
        == found["node3"]
        == [
            {"node1": "here", "node2": "bye", "node3": "here"},
            {"node1": "still here", "node2": None, "node3": "still here"},
        ]
    )


def test_a_task_with_a_loop_is_refused(tmp_path: Path) -> None:
    """Its files would be those of the first turn."""
    Meeting(tmp_path / "m", "node1", HOSTS).leave()
    with pytest.raises(AnsibleActionFail, match="remove its loop"):
        Meeting(tmp_path / "m", "node1", HOSTS)


def test_no_step_follows_ansible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = Meeting(tmp_path / "m", "node1", ["node1"])
    assert meeting.exchange("one") == {"node1": "one"}
    monkeypatch.setattr("os.getppid", lambda: 1)
    with pytest.raises(AnsibleActionFail, match="Ansible has ended"):
        meeting.exchange("two")
