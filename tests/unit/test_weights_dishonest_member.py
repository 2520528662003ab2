"""A member with the transfer's token sends other bytes, digests and overviews: no other member takes them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dishonest_member
import pytest
from dishonest_member import KEPT_SIGNATURE, OTHER_BYTES, OWN_KEY, STATED
from fake_hub import MODEL, running
from headfirst.common.untrusted import UntrustedError
from headfirst.node.weights.files import list_files
from headfirst.node.weights.proof.hashing import FileHash
from headfirst.node.weights.proof.verify import verify
from headfirst.node.weights.transfer.board import Board, Claim, Overview
from headfirst.node.weights.transfer.messages import absorb, compose, parse, speak
from headfirst.node.weights.transfer.signing import Key
from together import together
from transfer_hosts import KEY
from transfers import LIMIT_S, Members, ended
from weights_checkpoints import SHARD_1, two_shards, write_checkpoint

HEAD, ATTACKER, VICTIM = range(3)
CODE = "modeling_tiny.py"


@dataclass
class Dishonest(Members):
    """Member 1 sends other bytes of `file` than it received."""

    attack: str = OWN_KEY
    file: str = SHARD_1

    def spawn(self, index: int, argv: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        if index == ATTACKER:
            argv = [sys.executable, dishonest_member.__file__, self.attack, self.file, *argv[3:]]
        return super().spawn(index, argv, environment)

    def note(self, index: int) -> str:
        path = self.home(index) / "progress.json"
        return str(json.loads(path.read_text()).get("note")) if path.is_file() else ""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "source", two_shards())
    (tmp_path / "source" / CODE).write_text("print('the model')\n")
    return tmp_path / "source"


def ends_well(members: Members, arguments: Sequence[str], **environment: str) -> None:
    """The head and the victim come to their end; the victim is started when the attacker has something."""
    with ExitStack() as stack:

        def start(index: int) -> subprocess.Popen[str]:
            return stack.enter_context(ended(iter([members.start(index, arguments, **environment)])))[0]

        head, _ = start(HEAD), start(ATTACKER)
        deadline = time.monotonic() + LIMIT_S
        while "received" not in members.note(ATTACKER):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        for process in (start(VICTIM), head):
            _, errors = process.communicate(timeout=LIMIT_S)
            assert process.returncode == 0, errors


def has_the_source(members: Members, index: int, source: Path) -> None:
    folder = members.home(index) / "fp8"
    for name in list_files(source):
        assert (folder / name).read_bytes() == (source / name).read_bytes(), name
    verify(folder, deep=True)


@pytest.mark.parametrize(("attack", "file"), [(OWN_KEY, CODE), (KEPT_SIGNATURE, SHARD_1)])
def test_a_relay_that_replaces_bytes_and_digests_is_named_and_passed_over(
    source: Path, tmp_path: Path, attack: str, file: str
) -> None:
    members = Dishonest(tmp_path, 3, attack=attack, file=file)
    ends_well(members, ["@/fp8", "--model", str(source), "--from", "path"])
    has_the_source(members, VICTIM, source)
    assert members.result(HEAD)["digest"] == members.result(VICTIM)["digest"]
    assert "passed over" in members.note(VICTIM)
    assert members.addresses[ATTACKER] in members.note(VICTIM)


@pytest.mark.parametrize(("fetch", "attack"), [("all", STATED), ("head", STATED), ("all", OTHER_BYTES)])
def test_the_head_fetches_what_a_member_that_fetches_sends_wrongly(
    source: Path, tmp_path: Path, fetch: str, attack: str
) -> None:
    """It has fetched files itself, or (`head`) only states so. Its other files are asked for by nobody."""
    members = Dishonest(tmp_path, 3, attack=attack)
    files = {name: (source / name).read_bytes() for name in list_files(source)}
    with running(files) as hub:
        hub.rate = 250_000.0  # so that members have their part in it
        environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "no_proxy": "*"}
        ends_well(members, ["@/fp8", "--model", MODEL, "--fetch", fetch], **environment)
    for index in (HEAD, VICTIM):
        has_the_source(members, index, source)
    assert members.result(HEAD)["digest"] == members.result(VICTIM)["digest"]


# What is signed, on boards alone.

PROOF = FileHash(1, "1" * 32, None, bytes(32))
OVERVIEW = Overview(5, {"model": "m"}, {"a": 1, "b": 1}, {"a": "1" * 32}, {"b": "2" * 64})


def news_of_the_head(key: Key = KEY, overview: Overview = OVERVIEW) -> dict[str, Any]:
    """The message by which a member hears of an overview and of file `a`."""
    head = Board(0, 3, key)
    head.describe(overview)
    head.announce({"a": PROOF})
    return dict(json.loads(speak(head, compose(Board(2, 3, key), None))))


CHANGES: dict[str, tuple[tuple[str, ...], Any]] = {
    "a further file": (("overview", "sizes", CODE), 9),
    "another size": (("overview", "sizes", "b"), 2),
    "a removed file": (("overview", "sizes"), {"a": 1}),
    "another xxh3 of what is known": (("overview", "known", "a"), "3" * 32),
    "what was not known": (("overview", "known", "b"), "3" * 32),
    "another sha256": (("overview", "sha256", "b"), "3" * 64),
    "a further sha256": (("overview", "sha256", "a"), "3" * 64),
    "another model": (("overview", "made_from"), {"model": "other"}),
    "no signature of the overview": (("overview", "signature"), "0" * 128),
    "other pieces": (("files", "a", "pieces"), "B" * 43 + "="),
    "another xxh3 of a file": (("files", "a", "xxh3"), "3" * 32),
    "a sha256 of a file": (("files", "a", "sha256"), "3" * 64),
    "no signature of a file": (("files", "a", "signature"), "0" * 128),
}


@together("change", CHANGES)
def test_nothing_that_the_head_signed_can_be_changed(change: str) -> None:
    message = news_of_the_head()
    assert parse(json.dumps(message).encode(), Board(2, 3, KEY)).overview == OVERVIEW
    *path, last = CHANGES[change][0]
    place: Any = message
    for step in path:
        place = place[step]
    place[last] = CHANGES[change][1]
    if change == "a removed file":
        message["overview"] |= {"sha256": {}}
    with pytest.raises(UntrustedError, match="the head of this transfer has not signed"):
        parse(json.dumps(message).encode(), Board(2, 3, KEY))


def test_a_file_that_was_signed_for_another_name_or_model_is_refused() -> None:
    message = news_of_the_head()
    message["files"]["b"] = message["files"].pop("a")
    with pytest.raises(UntrustedError, match="has not signed"):
        parse(json.dumps(message).encode(), Board(2, 3, KEY))
    message = news_of_the_head()
    message["overview"] = news_of_the_head(overview=replace(OVERVIEW, made_from={"model": "n"}))["overview"]
    with pytest.raises(UntrustedError, match="has not signed"):
        parse(json.dumps(message).encode(), Board(2, 3, KEY))


def test_the_overview_of_an_earlier_transfer_is_refused_also_with_a_higher_epoch() -> None:
    earlier = news_of_the_head(Key.new())
    with pytest.raises(UntrustedError, match="has not signed"):
        parse(json.dumps(earlier).encode(), Board(2, 3, KEY))
    later = news_of_the_head()
    later["epoch"] = later["overview"]["epoch"] = 6
    with pytest.raises(UntrustedError, match="has not signed"):
        parse(json.dumps(later).encode(), Board(2, 3, KEY))


@pytest.fixture
def shared() -> Iterator[Board]:
    """A member's board; the head has given `b` to member 1."""
    head, member = Board(0, 3, KEY), Board(2, 3, KEY)
    head.describe(OVERVIEW)
    head.report(given=(frozenset(), frozenset("b"), frozenset()))
    absorb(member, parse(speak(head, compose(member, None)), member))
    yield member


def test_of_a_file_that_a_member_fetched_the_head_has_the_last_word(shared: Board) -> None:
    stated, other = (FileHash(1, digit * 32, "2" * 64, bytes(32)) for digit in "45")
    shared.merge_claims({"b": Claim(stated)})
    shared.merge_claims({"b": Claim(other)})
    assert shared.claims() == {"b": Claim(stated)}, "the first counts until it is rejected"
    assert not shared.is_signed("b", stated)
    shared.reject("b", stated)
    shared.merge_claims({"b": Claim(stated)})
    assert shared.claims() == {}
    shared.merge_claims({"b": Claim(other)})
    shared.merge_claims({"b": Claim(stated, "signed")})
    shared.merge_claims({"b": Claim(other)})
    assert shared.claims() == {"b": Claim(stated, "signed")}


@pytest.mark.parametrize(
    ("name", "sha256"), [("a", None), ("a", "2" * 64), ("b", None), ("b", "3" * 64), ("c", "2" * 64)]
)
def test_a_member_states_nothing_without_the_sha256_that_the_head_signed(
    shared: Board, name: str, sha256: str | None
) -> None:
    shared.merge_claims({name: Claim(FileHash(1, "4" * 32, sha256, bytes(32)))})
    assert shared.claims() == {}


@pytest.mark.parametrize("liar_of", [HEAD, VICTIM])
def test_a_member_uses_up_no_numbers_of_others(liar_of: int) -> None:
    """A number that cannot be raised any more would make their own messages invalid, and them the liars."""
    boards = [Board(index, 3, KEY if index == HEAD else Key(KEY.public)) for index in range(3)]
    boards[HEAD].describe(OVERVIEW)
    for teller, hearer in ((HEAD, ATTACKER), (ATTACKER, VICTIM)):
        absorb(boards[hearer], parse(speak(boards[teller], compose(boards[hearer], None)), boards[hearer]))
    for hearer in (HEAD, VICTIM):
        document = json.loads(speak(boards[ATTACKER], compose(boards[hearer], None)))
        document["members"][str(liar_of)]["beat"] = 2**63 - 1
        absorb(boards[hearer], parse(json.dumps(document).encode(), boards[hearer]))
        document |= {"epoch": 2**63 - 1, "overview": None, "files": {}}
        absorb(boards[hearer], parse(json.dumps(document).encode(), boards[hearer]))
    boards[HEAD].describe(replace(OVERVIEW, epoch=6))
    for teller, hearer in 2 * [(HEAD, ATTACKER), (HEAD, VICTIM), (VICTIM, HEAD), (VICTIM, ATTACKER)]:
        news = parse(speak(boards[teller], compose(boards[hearer], None)), boards[hearer])
        absorb(boards[hearer], news)
        boards[liar_of].report(have=frozenset("a"))
    for board in boards:
        assert board.overview == replace(OVERVIEW, epoch=6)
        assert board.members[liar_of].have == {"a"}


def test_the_key_stays_on_the_head(tmp_path: Path) -> None:
    file = tmp_path / "run" / "key"
    key = Key.of_file(file, make=True)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert Key.of_file(file, make=True).public == key.public
    with pytest.raises(ValueError, match="only the head signs"):
        Key(key.public).sign(b"x")
    assert Key(key.public).has_signed(key.sign(b"x"), b"x")
    file.chmod(0o640)
    with pytest.raises(Exception, match="others can read it"):
        Key.of_file(file)
