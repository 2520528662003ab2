"""docs/weights-protocol.md describes what the listener does: its example works, its numbers are right."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import fields
from http import HTTPStatus
from pathlib import Path

import pytest
from headfirst.node.peers import authentication, server
from headfirst.node.weights.proof.hashing import PIECE
from headfirst.node.weights.transfer import chain, link, listener, messages, receiver
from headfirst.node.weights.transfer.board import Member, Overview
from together import together
from transfer_hosts import PORT, TOKEN, Source, hosts, serving

__all__ = ["hosts"]  # a fixture

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "weights-protocol.md").read_text()
PROSE = " ".join(TEXT.split())
EXAMPLE = re.findall(r"^```bash\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("token", [TOKEN, "guess"])
def test_the_example_gets_the_bytes_with_the_token(hosts: list[str], tmp_path: Path, token: str) -> None:
    source = Source(tmp_path, **{"a name": 2 * PIECE})
    [script] = EXAMPLE
    variables = {
        "ADDRESS": hosts[0],
        "PORT": str(PORT),
        "TOKEN": token,
        "VERSION": source.proofs["sub/a name"].version,
        "NAME": "sub/a%20name",
        "FIRST": str(PIECE - 3),
        "LAST": str(PIECE + 4),
        "no_proxy": "*",
    }
    with serving(source, hosts[0], ["127.0.0.1"]):
        done = subprocess.run(
            ["bash", "-c", script], env=os.environ | variables, capture_output=True, timeout=20, check=False
        )
    if token == TOKEN:
        assert done.stdout == (tmp_path / "sub/a name").read_bytes()[PIECE - 3 : PIECE + 5]
        assert done.returncode == 0
    else:
        assert (done.stdout, done.returncode) == (b"", 22), "curl's code for a status of 400 and more"


@together(
    "statement",
    [
        f"A piece has {PIECE >> 20} MiB",
        f"before the answer up to {listener.BYTES_WAIT_S:.0f} s, then 503",
        f"the bytes did not come within {listener.BYTES_WAIT_S:.0f} s",
        f"waits up to {listener.NEWS_WAIT_S:.0f} s for news",
        f"after {link.SILENCE_LIMIT_S:.0f} s without a byte",
        f"{link.PIECE_LIMIT_S:.0f} s for one piece",
        f"and {link.ANSWER_LIMIT_S:.0f} s for news",
        f"authentic request for {server._UNPROVEN_LIMIT_S:.0f} s at first",
        f"for {server._IDLE_LIMIT_S:.0f} s later",
        f"takes nothing for {listener._SEND_LIMIT_S} s",
        f"a message of more than {messages.LONGEST >> 20} MiB",
        f"up to {receiver._SPAN} pieces in one request",
        f"at most {messages._FILES_AT_ONCE}, those",
        f"does not answer for {chain._GRACE_S:.0f} s is passed over",
        f"are tried every {chain._TRY_NEARER_EVERY_S:.0f} s",
    ],
)
def test_its_numbers_are_the_codes(statement: str) -> None:
    assert statement in PROSE


def test_it_names_each_field_of_the_news() -> None:
    row = {
        cells[1].strip(" `"): cells[2]
        for cells in (line.split("|") for line in TEXT.splitlines())
        if cells[2:]
    }
    for kind, where in ((Member, "members"), (Overview, "overview")):
        for field in fields(kind):
            assert f"`{field.name}`" in row[where], f"{where}: {field.name}"
    for field in fields(messages.TransferMessage):
        assert field.name in row


def test_it_lists_each_status_that_a_listener_sends() -> None:
    code = "".join(Path(str(module.__file__)).read_text() for module in (listener, server, authentication))
    sent = {HTTPStatus[name] for name in re.findall(r"HTTPStatus\.([A-Z_]+)", code)} | {HTTPStatus.FORBIDDEN}
    listed = {int(number) for number in re.findall(r"^\| (\d{3}) \|", TEXT, re.MULTILINE)}
    assert listed == sent - {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT}
