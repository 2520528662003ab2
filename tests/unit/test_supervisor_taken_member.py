"""What a member that somebody has taken over can do to the others: real listeners and clients on loopback."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from described_container import states
from docker_names import DockerNames
from headfirst.common.untrusted import UntrustedError
from headfirst.control.credentials.secrets import Secrets
from headfirst.node.peers.authentication import DIGEST, Caller, digest
from headfirst.node.peers.client import PeerClient, Unreachable
from headfirst.node.supervisor import host_state, messages, records, takeover
from headfirst.node.supervisor.containers import Containers
from headfirst.node.supervisor.host_state import Holds
from headfirst.node.supervisor.messages import RankRequest, Seen
from headfirst.node.supervisor.node import NodeRanks, SupervisorListener
from headfirst.node.supervisor.takeover import Agreement
from together import together

NAME, GENERATION, STANDBY = "headfirst-engine", "0123456789ab", "standby-0123456789ab"
HEAD, WORKER, SPARE, VICTIM = "127.0.0.21", "127.0.0.22", "127.0.0.23", "127.0.0.24"
TOKEN = "a token of the test"


def record(**fields: Any) -> dict[str, Any]:
    return {
        "url": f"http://{HEAD}:30000",
        "model": "demo",
        "api_key": "sk-secret",
        "readiness": {"path": "/health", "probe_path": "/v1/completions", "probe_body": {}, "answer": []},
        "files": {},
        "supervision": {"ranks": [HEAD, VICTIM], "hang_seconds": 60, "start_seconds": 300},
        **fields,
    }


def standby(**fields: Any) -> dict[str, Any]:
    """The generation in which the spare has the place of the worker, rank 2."""
    waits = {
        "spare": SPARE,
        "replaces": 2,
        "instead_of": [HEAD, VICTIM, WORKER],
        "instead_of_url": f"http://{HEAD}:30000",
        "after_seconds": 60,
    }
    supervision = {"ranks": [HEAD, VICTIM, SPARE], "hang_seconds": 60, "start_seconds": 300}
    return record(supervision=supervision | {"standby": waits}, **fields)


def keys(own: str) -> dict[str, str]:
    """What the controller gives a host."""
    return Secrets(supervisor_secret="known-to-no-member").supervisor_keys(own, [HEAD, WORKER, SPARE, VICTIM])


def member(address: str, port: int, containers: Containers, folder: Path) -> NodeRanks:
    """What a host of the cluster runs."""
    client = PeerClient(address, port, TOKEN, keys(address))
    return NodeRanks(containers, Holds(folder / "run"), Agreement(address, client, containers))


@contextlib.contextmanager
def listening(address: str, port: int, node: NodeRanks) -> Iterator[None]:
    listener = SupervisorListener((address, port), keys(address), TOKEN, node)
    threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True).start()
    yield
    listener.shutdown()
    listener.server_close()


class Victim:
    """An honest member, its files below `folder`, and requests to it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.config, self.port = folder / "etc" / "headfirst", port
        self.config.mkdir(parents=True)
        self.docker, self.containers = DockerNames(), Containers()
        self.containers._client = self.docker
        self.node = member(VICTIM, port, self.containers, folder)

    def write(self, name: str, generation: str, document: object) -> None:
        path = self.config / name / f"{generation}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document))

    def asked(self, own: str, do: messages.Do, name: str = NAME, generation: str = GENERATION) -> Seen:
        """The answer to a member's request. Raises Unreachable where it is refused."""
        body = messages.encode(RankRequest(do, name, generation))
        client = PeerClient(own, self.port, TOKEN, keys(own))
        answer = client.ask(VICTIM, body, limit_s=30, longest=messages.LONGEST)
        return messages.seen(answer, where=VICTIM)


@pytest.fixture
def victim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Victim]:
    # Of these no client has had one: in TIME_WAIT it would be refused to the listeners.
    victim = Victim(tmp_path, random.randrange(20_000, 32_000))
    for function in (records.read, records.standby, records.activate):
        monkeypatch.setattr(
            records,
            function.__name__,
            lambda name, generation, function=function: function(name, generation, victim.config),
        )
    # A busy machine is slow, and no host here is silent: connections are refused at once.
    monkeypatch.setattr(takeover, "_CONNECT_S", 30.0)
    with listening(VICTIM, victim.port, victim.node):
        yield victim


def test_a_member_writes_no_file_through_a_name(victim: Victim, tmp_path: Path) -> None:
    """A record among the weights, which every member can bring, and a name that leads there."""
    settings = victim.config / "supervisor.json"
    settings.write_text("the settings")
    models = tmp_path / "models"
    planted = models / f"a|{NAME}" / f"{STANDBY}.json"
    planted.parent.mkdir(parents=True)
    planted.write_text(json.dumps(standby(files={str(settings): "overwritten"})))
    victim.docker.add(f"{NAME}.{STANDBY}", STANDBY)
    victim.docker.add(NAME, GENERATION, running=True)
    for do in ("prepare", "activate"):
        with contextlib.suppress(*Unreachable):
            victim.asked(SPARE, do, f"../../models/a|{NAME}", STANDBY)
    assert settings.read_text() == "the settings"
    assert victim.docker.stopped == []


def test_a_record_writes_only_the_configuration_of_its_engine(victim: Victim) -> None:
    other = victim.config / "supervisor.json"
    other.write_text("the settings")
    files = {"/etc/headfirst/engine.yaml": "api-key: one\n", str(other): "overwritten"}
    victim.write(NAME, STANDBY, standby(files=files))
    records.activate(NAME, STANDBY)
    assert (victim.config / "engine.yaml").read_text() == "api-key: one\n"
    assert other.read_text() == "the settings"


@together(
    ("name", "generation"),
    [
        ("", GENERATION),
        ("..", GENERATION),
        ("a/b", GENERATION),
        ("/etc/passwd", GENERATION),
        ("a|b", GENERATION),
        ("a.*", GENERATION),
        ("-a", GENERATION),
        ("a" * 129, GENERATION),
        ("a\n", GENERATION),
        (NAME, ""),
        (NAME, "g1"),
        (NAME, "../0123456789ab"),
        (NAME, "0123456789AB"),
        (NAME, f"{GENERATION}\n"),
        (NAME, f"standby-standby-{GENERATION}"),
        (NAME, f"{GENERATION}|x"),
    ],
)
def test_only_names_and_generations_that_roles_give_are_read(name: str, generation: str) -> None:
    for do in ("start", "stop", "log", "prepare", "activate"):
        with pytest.raises(UntrustedError):
            messages.request(messages.encode(RankRequest(do, name, generation)), where=SPARE)


@pytest.mark.parametrize("name", [NAME, "headfirst-engine-1", "headfirst-engine-my_chat-12"])
@pytest.mark.parametrize("generation", [GENERATION, STANDBY])
def test_names_and_generations_that_roles_give_are_read(name: str, generation: str) -> None:
    request = RankRequest("activate", name, generation)
    assert messages.request(messages.encode(request), where=SPARE) == request


def test_a_name_is_no_regular_expression_for_docker(victim: Victim) -> None:
    """Also where a role was given a name with a dot."""
    victim.docker.add(f"my.engine.{STANDBY}", STANDBY)
    victim.docker.add("my-engine", GENERATION, running=True)
    victim.containers.activate("my.engine", STANDBY)
    assert victim.docker.names() == ["my-engine", "my.engine"]
    assert victim.docker.stopped == []


def test_of_a_container_that_is_no_rank_nothing_is_read_and_no_name_is_kept(victim: Victim) -> None:
    victim.docker.add("database", running=True)
    assert victim.asked(WORKER, "look", "database") == Seen()
    for number in range(50):
        victim.asked(WORKER, "look", f"engine-{number}")
    assert len(victim.node._locks) <= 1, "one may not have left its thread"


def test_only_the_head_of_a_replica_that_has_served_reads_the_log_of_its_rank(victim: Victim) -> None:
    victim.docker.add(NAME, GENERATION, running=True)
    victim.write(NAME, GENERATION, record())
    assert victim.asked(HEAD, "log").log == ()
    victim.write(NAME, GENERATION, record(worked_at=1.0))
    assert victim.asked(HEAD, "log").log == (f"the log of {NAME}",)
    for member, generation in ((WORKER, GENERATION), (SPARE, GENERATION), (HEAD, "ba9876543210")):
        refused = victim.asked(member, "log", generation=generation)
        assert refused.problem and not refused.log


class Replica:
    """The victim's replica, whose rank 2 is on the worker, and the generation that waits for the spare."""

    def __init__(self, victim: Victim, stack: contextlib.ExitStack, folder: Path) -> None:
        self.victim, self._stack, self._folder = victim, stack, folder
        engine = socket.create_server((HEAD, 0))
        self.url, self.engine = f"http://{HEAD}:{engine.getsockname()[1]}", engine
        stack.callback(engine.close)
        document = standby()
        document["supervision"]["standby"]["instead_of_url"] = self.url
        victim.write(NAME, STANDBY, document)
        victim.docker.add(NAME, GENERATION, running=True)
        victim.docker.add(f"{NAME}.{STANDBY}", STANDBY)

    def answers(self, address: str, generation: str) -> None:
        """Another host answers, and has a rank of this generation."""
        containers, engine = Containers(), DockerNames()
        engine.add(NAME, generation, running=True)
        containers._client = engine
        node = member(address, self.victim.port, containers, self._folder)
        self._stack.enter_context(listening(address, self.victim.port, node))

    def asked(self, do: messages.Do) -> str:
        """What the victim answers to the spare, \"\" where it does it."""
        return self.victim.asked(SPARE, do, NAME, STANDBY).problem

    @property
    def is_untouched(self) -> bool:
        names = [NAME, f"{NAME}.{STANDBY}"]
        return not self.victim.docker.stopped and self.victim.docker.every[0].name == names[0]


@pytest.fixture
def replica(victim: Victim, tmp_path: Path) -> Iterator[Replica]:
    with contextlib.ExitStack() as stack:
        yield Replica(victim, stack, tmp_path)


def test_a_taken_spare_does_not_stop_a_replica_that_serves(replica: Replica) -> None:
    """Without a preparation it is not even asked."""
    assert replica.asked("activate") == "it has not agreed to it"
    replica.engine.setblocking(False)
    with pytest.raises(BlockingIOError):
        replica.engine.accept()
    assert replica.asked("prepare") == f"the replica answers at {replica.url}", "without a supervisor"
    assert replica.asked("activate") and replica.is_untouched
    replica.answers(WORKER, GENERATION)
    assert replica.asked("prepare") == f"{WORKER} answers {VICTIM}"
    assert replica.asked("activate") and replica.is_untouched


def test_a_replica_that_serves_elsewhere_since_a_takeover_is_not_stopped(replica: Replica) -> None:
    """The supervisor of one of its hosts is silent, and the host that was away is back."""
    replica.engine.close()
    with socket.create_server((SPARE, 0)) as engine:
        url = f"http://{SPARE}:{engine.getsockname()[1]}"
        replica.victim.write(NAME, GENERATION, record(worked_at=1.0, url=url))
        assert replica.asked("prepare") == f"the replica answers at {url}"
        assert replica.asked("activate") and replica.is_untouched
    assert replica.asked("prepare") == ""


def test_a_replica_that_is_held_is_not_taken_over(replica: Replica) -> None:
    replica.engine.close()
    assert replica.asked("prepare") == ""
    replica.victim.node._holds.hold(NAME, 60)
    assert replica.asked("prepare") == replica.asked("activate") == "the replica is being changed"
    assert replica.is_untouched


def test_a_spare_takes_over_what_was_prepared_for_as_long_as_that_was_agreed(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica.engine.close()
    assert replica.asked("prepare") == ""
    later = host_state.uptime() + takeover._LASTS_S + 1
    with monkeypatch.context() as patch:
        patch.setattr(host_state, "uptime", lambda: later)
        assert replica.asked("activate") == "it has not agreed to it"
    assert (replica.asked("prepare"), replica.asked("activate")) == ("", "")
    assert replica.victim.docker.names() == [NAME, f"{NAME}.{GENERATION}"]
    assert replica.victim.docker.stopped == [NAME]


def test_a_generation_that_waits_no_longer_is_not_activated_again(replica: Replica) -> None:
    replica.victim.write(NAME, GENERATION, record(worked_at=1.0))
    for do in ("prepare", "activate"):
        assert replica.victim.asked(SPARE, do) == Seen()
        unknown = replica.victim.asked(SPARE, do, generation="ba9876543210")
        assert unknown.problem == "it has no such generation"
    assert replica.is_untouched


def test_a_spare_that_serves_another_replica_does_not_take_over(
    replica: Replica, victim: Victim, tmp_path: Path
) -> None:
    replica.engine.close()
    docker, containers = DockerNames(), Containers()
    containers._client = docker
    docker.add(f"{NAME}.{STANDBY}", STANDBY)
    docker.add("headfirst-engine-1", GENERATION)
    spare, busy = member(SPARE, victim.port, containers, tmp_path), docker.every[1].attrs["State"]

    def asked(do: messages.Do, *, serves: bool) -> str:
        busy.update(states(serves))
        return spare.answer(RankRequest(do, NAME, STANDBY), SPARE).problem

    why = "the spare serves another replica"
    victim.docker.add("headfirst-engine-1", GENERATION, running=True)
    assert replica.asked("prepare") == "", "it is no spare"
    assert asked("prepare", serves=True) == why
    assert asked("activate", serves=False) == "it has not agreed to it"
    assert asked("prepare", serves=False) == ""
    assert asked("activate", serves=True) == why
    assert asked("activate", serves=False) == ""


def test_a_host_that_came_back_after_it_was_prepared_is_not_replaced(replica: Replica) -> None:
    replica.engine.close()
    assert replica.asked("prepare") == ""
    replica.answers(WORKER, GENERATION)
    assert replica.asked("activate") == f"{WORKER} answers {VICTIM}"
    assert replica.is_untouched


def test_a_host_whose_disk_was_full_completes_what_it_activated(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its container has the name and the record still waits, longer than the agreement lasts."""
    replica.engine.close()
    assert replica.asked("prepare") == ""
    with monkeypatch.context() as patch:
        patch.setattr(records, "replace_file", Mock(side_effect=OSError(28, "No space left on device")))
        assert "No space left" in replica.asked("activate")
    later = host_state.uptime() + takeover._LASTS_S + 1
    monkeypatch.setattr(host_state, "uptime", lambda: later)
    replica.answers(WORKER, GENERATION)
    assert replica.asked("activate") == "" and records.standby(NAME, STANDBY) is None
    assert replica.victim.docker.names() == [NAME, f"{NAME}.{GENERATION}"]


def test_what_another_host_has_activated_is_followed(replica: Replica) -> None:
    """Also where the host that was away is back in that moment: half of a replica serves nobody."""
    replica.answers(WORKER, GENERATION)
    replica.answers(HEAD, STANDBY)
    assert replica.asked("activate") == "" and replica.victim.docker.stopped == [NAME]


def test_what_another_host_has_activated_does_not_end_what_serves_since_a_later_takeover(
    replica: Replica,
) -> None:
    """The first takeover was interrupted, and the host that it reached was away in the second."""
    supervision = record()["supervision"] | {"ranks": [SPARE, VICTIM, WORKER]}
    replica.victim.write(NAME, GENERATION, record(worked_at=1.0, supervision=supervision))
    replica.answers(HEAD, STANDBY)
    assert replica.asked("activate") == f"the replica answers at {replica.url}" and replica.is_untouched
    replica.engine.close()
    assert replica.asked("activate") == "" and replica.victim.docker.stopped == [NAME]


def test_a_takeover_that_was_interrupted_after_another_one_is_completed(replica: Replica) -> None:
    """What serves since the other one lost a host to it, so that no change would leave it down for ever."""
    supervision = record()["supervision"] | {"ranks": [VICTIM, HEAD, SPARE]}
    replica.victim.write(NAME, GENERATION, record(worked_at=1.0, supervision=supervision))
    replica.answers(HEAD, STANDBY)
    assert replica.asked("activate") == "" and replica.victim.docker.stopped == [NAME]


def test_what_the_spare_alone_has_activated_is_not_followed(replica: Replica) -> None:
    replica.answers(WORKER, GENERATION)
    replica.answers(HEAD, GENERATION)
    replica.answers(SPARE, STANDBY)
    assert replica.asked("activate") and replica.is_untouched


def test_only_the_spare_of_a_generation_activates_it(replica: Replica) -> None:
    replica.engine.close()
    for do in ("prepare", "activate"):
        assert replica.victim.asked(WORKER, do, NAME, STANDBY).problem == f"{WORKER} is not the spare"
    assert replica.is_untouched


def test_a_taken_member_does_not_speak_for_the_head(victim: Victim) -> None:
    """It takes over the head's address, with every key that it was given."""
    victim.write(NAME, GENERATION, record(worked_at=1.0))
    victim.docker.add(NAME, GENERATION, running=True)
    body = messages.encode(RankRequest("stop", NAME, GENERATION))
    for key in {*keys(WORKER).values(), TOKEN}:
        with pytest.raises(Unreachable):
            PeerClient(HEAD, victim.port, TOKEN, {VICTIM: key}).ask(VICTIM, body, limit_s=5, longest=100_000)
    assert victim.docker.stopped == []
    victim.asked(HEAD, "stop")
    assert victim.docker.stopped == [NAME], "the head itself has the key"


def test_a_request_that_is_sent_back_to_its_sender_is_refused(victim: Victim) -> None:
    """Who passes the packets on has the victim sign for the session of its own listener."""
    caller = Caller(keys(VICTIM)[HEAD])
    body = messages.encode(RankRequest("look", NAME, GENERATION))
    words = ("POST", digest(body), str(len(body)), VICTIM, HEAD)
    statuses = []
    for _ in range(2):
        connection = http.client.HTTPConnection(VICTIM, victim.port, timeout=5, source_address=(HEAD, 0))
        connection.request("POST", "/", body, {DIGEST: words[1], **caller.sign(*words)})
        answer = connection.getresponse()
        statuses.append(answer.status)
        caller.learn(dict(answer.headers))
        connection.close()
    assert statuses == [409, 401]
