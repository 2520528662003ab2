"""Module proxy_keys against a process that speaks HAProxy's admin protocol."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.modules import proxy_keys
from ansible_collections.headfirst.serving.plugins.modules.proxy_keys import (
    ProxyKeysError,
    ProxyProcess,
    records,
    write,
)

MAP = "/etc/headfirst-proxy/keys.map"
ALICE, BOB = "a" * 64, "b" * 64


def key(name: str, sha256: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "sha256": sha256, "service": "", "requests_per_minute": 0, **more}


class Admin:
    """One map with versions, and every command that arrived."""

    def __init__(self, path: Path) -> None:
        self.entries: dict[str, str] = {}
        self.next: dict[str, str] = {}
        self.commands: list[str] = []
        self.answers: dict[str, str] = {}
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                text = ""
                # A payload ends with an empty line.
                while not text.endswith("\n\n" if "<<" in text else "\n"):
                    text += connection.recv(65536).decode()
                self.commands.append(text)
                connection.sendall(self._answer(text).encode())

    def _answer(self, text: str) -> str:
        words = text.split()
        verb = words[0]
        if verb in self.answers:
            return self.answers[verb]
        if verb == "show":
            return "".join(f"0x5581 {k} {v}\n" for k, v in self.entries.items()) + "\n"
        if verb == "prepare":
            self.next = {}
            return "New version created: 7\n\n"
        if verb == "add":
            assert words[2] == "@7"
            pairs = words[5:]
            self.next |= dict(zip(pairs[::2], pairs[1::2], strict=True))
        if verb == "commit":
            self.entries = self.next
        return "\n"


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    found = Admin(tmp_path / "admin.sock")
    yield found
    found.close()


def test_all_entries_are_replaced_in_one_transaction(tmp_path: Path, admin: Admin) -> None:
    admin.entries = {"c" * 64: "carol||"}
    many = {f"{number:064x}": f"key-{number}||" for number in range(proxy_keys.AT_ONCE * 2 + 1)}
    ProxyProcess(str(tmp_path / "admin.sock"), MAP).replace(many)
    assert admin.entries == many
    assert [text.split()[0] for text in admin.commands] == ["prepare", "add", "add", "add", "commit", "show"]


def test_no_key_at_all_empties_the_map(tmp_path: Path, admin: Admin) -> None:
    admin.entries = {ALICE: "alice||"}
    ProxyProcess(str(tmp_path / "admin.sock"), MAP).replace({})
    assert admin.entries == {}


@pytest.mark.parametrize(("verb", "answer"), [("prepare", "Unknown map.\n"), ("add", "Wrong version.\n")])
def test_a_refusal_is_an_error(tmp_path: Path, admin: Admin, verb: str, answer: str) -> None:
    admin.answers[verb] = answer
    with pytest.raises(ProxyKeysError, match=answer.strip()):
        ProxyProcess(str(tmp_path / "admin.sock"), MAP).replace({ALICE: "alice||"})


def test_other_entries_than_were_sent_are_an_error(tmp_path: Path, admin: Admin) -> None:
    admin.answers["commit"] = "\n"
    with pytest.raises(ProxyKeysError, match="does not have the keys"):
        ProxyProcess(str(tmp_path / "admin.sock"), MAP).replace({ALICE: "alice||"})


def test_an_answer_that_is_no_list_is_an_error(tmp_path: Path, admin: Admin) -> None:
    admin.answers["show"] = "Permission denied\n"
    with pytest.raises(ProxyKeysError, match="Permission denied"):
        ProxyProcess(str(tmp_path / "admin.sock"), MAP).read()


def test_where_nothing_runs_there_are_no_entries(tmp_path: Path) -> None:
    assert ProxyProcess(str(tmp_path / "admin.sock"), MAP).read() is None


def test_records_carry_name_limit_and_service() -> None:
    keys = [key("alice", ALICE), key("bob", BOB, service="chat", requests_per_minute=60)]
    assert records(keys) == {ALICE: "alice||", BOB: "bob|60|chat"}


@pytest.mark.parametrize(
    "wrong",
    [
        key("eve|0|", ALICE),
        key("eve\nmallory", ALICE),
        key("", ALICE),
        key("eve", "A" * 64),
        key("eve", ALICE, service="chat other"),
        key("eve", ALICE, requests_per_minute=-1),
    ],
)
def test_what_would_be_another_record_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProxyKeysError):
        records([wrong])


def test_the_file_is_for_root_only_and_written_when_it_differs(tmp_path: Path) -> None:
    path = tmp_path / "keys.map"
    assert write(str(path), {ALICE: "alice||"}, check=True)
    assert not path.exists()
    assert write(str(path), {ALICE: "alice||"}, check=False)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == f"{ALICE} alice||\n"
    assert not write(str(path), {ALICE: "alice||"}, check=False)
