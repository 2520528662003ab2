"""Whose a host is, who changes it now, and which credentials count: controllers and inventories."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from collecting import Warnings
from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.control.credentials import identity, secrets
from headfirst.control.deployment.running import claim as claims
from headfirst.control.deployment.running.claim import (
    ClaimedCluster,
    claimed,
    current_credentials,
    known_credentials,
    run_lock,
)
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.verbs.down import target
from headfirst.control.deployment.verbs.release import release
from headfirst.control.inventory.inventory import load
from headfirst.control.ownership import lease
from headfirst.control.run.events import Event
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.decide.cluster.types import Cluster
from host_records import HostRecords

INVENTORY = """\
[head]
{hosts[0]} ansible_host=192.0.2.{head} gpus=8 gpu=A100-80G
[workers]
{workers}
[all:vars]
model=deepseek-ai/DeepSeek-R1
"""
QUIET = QuietReporter()


@cache
def cluster_of(path: Path, limit: str | None = None) -> Cluster:
    """The inventory, read once: Ansible needs a second for it."""
    return load([path], (), limit)


class Site(HostRecords):
    """Inventories in a folder, the controllers that use them, and the hosts."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder / "hosts", monkeypatch)
        self.home = folder
        self.monkeypatch = monkeypatch
        self.controller("controller1")

    def inventory(self, name: str, *hosts: str, head: int = 11) -> Path:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        workers = "\n".join(
            f"{host} ansible_host=192.0.2.{head + number} gpus=8 gpu=A100-80G"
            for number, host in enumerate(hosts[1:], 1)
        )
        path.write_text(INVENTORY.format(hosts=hosts, workers=workers, head=head))
        return path

    def controller(self, name: str) -> None:
        self.monkeypatch.setenv("XDG_STATE_HOME", str(self.home / name))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


@pytest.fixture
def path(site: Site) -> Path:
    """The inventory of the hosts a, the head, and b."""
    return site.inventory("hosts.ini", "a", "b")


def options(path: Path, **fields: Any) -> RunOptions:
    return RunOptions([path], **fields)


@contextmanager
def up(
    path: Path, reporter: Any = QUIET, limit: str | None = None, **fields: Any
) -> Iterator[ClaimedCluster]:
    with claimed(cluster_of(path, limit), options(path, **fields), "up", reporter) as held:
        yield held


def claim(path: Path, reporter: Any = QUIET) -> ClaimedCluster:
    with up(path, reporter) as held:
        return held


def test_the_first_run_makes_hosts_its_own(site: Site) -> None:
    prod = site.inventory("prod/hosts.ini", "a", "b")
    with up(prod) as held:
        for host in "ab":
            assert (site.record(host, "/run/headfirst/lock.json") or {})["verb"] == "up"
            owner = site.record(host) or {}
            assert owner["id"] == held.id
            assert (owner["cluster"], owner["service"], owner["head"]) == (
                "hosts",
                "DeepSeek-R1",
                "192.0.2.11",
            )
            assert re.fullmatch(r".+@.+", owner["who"])
    assert site.record("a", "/run/headfirst/lock.json") is None
    assert site.record("b", "/etc/headfirst/credentials.json") is None
    on_head = site.file("a", "/etc/headfirst/credentials.json")
    assert on_head.read_text() == secrets.credentials_file(cluster_of(prod)).read_text()
    assert on_head.stat().st_mode & 0o777 == 0o600
    assert claim(prod).secrets == held.secrets


def test_another_cluster_is_refused_before_anything_is_changed(site: Site) -> None:
    first = claim(site.inventory("prod/hosts.ini", "a", "b"))
    test = site.inventory("test/other.ini", "c", "b", head=21)
    with pytest.raises(NotReadyError) as caught:
        claim(test)
    error = caught.value
    owner = site.record("b") or {}
    assert (error.exit_code, error.where) == (3, "b")
    for part in ("cluster hosts", "DeepSeek-R1", owner["who"], owner["since"]):
        assert part in error.what
    assert f"deploy release {test} --limit b --cluster hosts" in str(error.hint)
    assert f"deploy down {site.home / 'prod/hosts.ini'}" in str(error.hint)
    assert site.record("c") is None
    assert owner["id"] == first.id
    assert identity.existing(cluster_of(test)) is None
    assert site.record("c", "/run/headfirst/lock.json") is None


def test_the_same_file_name_elsewhere_on_the_same_controller_is_another_cluster(site: Site) -> None:
    claim(site.inventory("prod/hosts.ini", "a"))
    with pytest.raises(NotReadyError, match="belongs to cluster hosts"):
        claim(site.inventory("test/hosts.ini", "a"))


def test_an_inventory_that_was_moved_is_the_same_cluster(site: Site) -> None:
    first = claim(site.inventory("prod/hosts.ini", "a"))
    (site.home / "prod").rename(site.home / "moved")
    again = claim(site.home / "moved/hosts.ini")
    assert (again.id, again.secrets) == (first.id, first.secrets)


def test_a_second_controller_adopts_id_and_credentials(site: Site) -> None:
    first = claim(site.inventory("hosts.ini", "a", "b"))
    site.controller("controller2")
    second = claim(site.inventory("copy/hosts.ini", "a", "b"))
    assert (second.id, second.secrets) == (first.id, first.secrets)
    assert secrets.existing(second.cluster) == first.secrets


def test_a_second_controller_with_another_head_is_another_cluster(site: Site) -> None:
    claim(site.inventory("hosts.ini", "a", "b"))
    site.controller("controller2")
    with pytest.raises(NotReadyError, match="belongs to cluster hosts"):
        claim(site.inventory("copy/hosts.ini", "b", "a", head=12))


def test_verbs_that_only_read_get_the_credentials_from_the_head(site: Site, path: Path) -> None:
    first = claim(path)
    site.controller("controller2")
    assert known_credentials(cluster_of(path)) == first.secrets
    site.controller("controller3")
    assert current_credentials(cluster_of(path)) == first.secrets
    assert secrets.existing(cluster_of(path)) == first.secrets
    site.controller("controller4")
    site.silent.add("a")
    assert known_credentials(cluster_of(path)) is None
    assert secrets.existing(cluster_of(path)) is None


def test_a_head_that_was_reinstalled_gets_the_credentials_again(site: Site, path: Path) -> None:
    first = claim(path)
    for name in ("owner.json", "credentials.json"):
        site.file("a", f"/etc/headfirst/{name}").unlink()
    again = claim(path)
    assert (again.id, again.secrets) == (first.id, first.secrets)
    assert site.record("a", "/etc/headfirst/credentials.json")


def test_a_worker_that_was_reinstalled_is_taken_again(site: Site, path: Path) -> None:
    first = claim(path)
    site.file("b", "/etc/headfirst/owner.json").unlink()
    claim(path)
    assert (site.record("b") or {})["id"] == first.id


def test_the_credentials_of_the_head_win_and_a_sentence_reports_it(path: Path) -> None:
    first = claim(path)
    secrets.save(cluster_of(path), secrets.Secrets())
    notices = Warnings()
    assert claim(path, notices).secrets == first.secrets
    assert secrets.existing(cluster_of(path)) == first.secrets
    assert len(notices.texts) == 1
    assert "are used" in notices.texts[0]
    assert first.secrets.engine_api_key not in notices.texts[0]


def test_credentials_of_a_head_that_hold_a_template_are_refused(site: Site, path: Path) -> None:
    claim(path)
    file = site.file("a", "/etc/headfirst/credentials.json")
    evil = {**json.loads(file.read_text()), "engine_api_key": "{{ lookup('pipe', 'touch /tmp/owned') }}"}
    file.write_text(json.dumps(evil))
    with pytest.raises(HeadfirstError, match="engine_api_key") as caught:
        claim(path)
    assert "lookup" not in str(caught.value)


@pytest.mark.parametrize("left", ["", "{", "[1]", '{"id": "x"}', '{"id": "\u001b[2J"}', "\0" * 100])
def test_an_owner_record_that_cannot_be_read_is_refused_and_can_be_released(
    site: Site, path: Path, left: str
) -> None:
    claim(path)
    site.file("b", "/etc/headfirst/owner.json").write_text(left)
    with pytest.raises(NotReadyError, match="cannot be read") as caught:
        claim(path)
    assert "--limit b --cluster unknown" in str(caught.value)
    assert list(release(options(path), "unknown").hosts) == ["b"]
    claim(path)


def test_a_second_run_is_refused_with_who_and_since(site: Site, path: Path) -> None:
    with up(path):
        lock = site.record("a", "/run/headfirst/lock.json") or {}
        with pytest.raises(NotReadyError) as caught:
            claim(path)
        assert site.record("a", "/run/headfirst/lock.json") == lock
    assert caught.value.where == "a"
    for part in ("`deploy up`", "cluster hosts", lock["holder"], f"process {os.getpid()}", lock["since"]):
        assert part in caught.value.what
    assert "--wait" in str(caught.value.hint)
    claim(path)


def test_a_lock_on_one_host_gives_the_others_back(site: Site) -> None:
    first = site.inventory("first.ini", "b")
    second = site.inventory("second.ini", "a", "b", "c", head=31)
    with run_lock(cluster_of(first), options(first), "check --comm", QUIET):
        with pytest.raises(NotReadyError, match="check --comm") as caught:
            claim(second)
        assert caught.value.where == "b"
        assert site.record("a", "/run/headfirst/lock.json") is None
        assert site.record("c", "/run/headfirst/lock.json") is None


def test_a_second_run_waits_when_it_is_asked_to(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_ASK_AGAIN_S", 0.2)
    started, finish, done = threading.Event(), threading.Event(), []

    def first() -> None:
        with up(path):
            started.set()
            finish.wait(30)
            done.append("first")

    class Waits(Warnings):
        def handle(self, event: Event) -> None:
            super().handle(event)
            finish.set()

    thread = threading.Thread(target=first)
    thread.start()
    assert started.wait(30)
    waits = Waits()
    with up(path, waits, wait_s=60):
        done.append("second")
    thread.join()
    assert done == ["first", "second"]
    assert re.fullmatch(r"[ab]: waiting up to 60 s for `deploy up`.*", waits.texts[0])


@pytest.mark.parametrize("how", ["pid", "started", "expired"])
def test_the_lock_of_a_run_that_is_gone_is_taken_over(site: Site, path: Path, how: str) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    change: dict[str, Any] = {
        "pid": {"pid": ended.pid},
        "started": {"started": 1},
        "expired": {"controller": "another", "ends": 1.0},
    }[how]
    with up(path):
        locks = {}
        for host in "ab":
            file = site.file(host, "/run/headfirst/lock.json")
            locks[file] = {**json.loads(file.read_text()), "token": "dead", **change}
    for file, lock in locks.items():
        file.write_text(json.dumps(lock))
    claim(path)
    assert site.record("a", "/run/headfirst/lock.json") is None


def test_the_lock_of_another_controller_stays_until_its_lease_ends(site: Site, path: Path) -> None:
    with up(path):
        file = site.file("a", "/run/headfirst/lock.json")
        lock = {**json.loads(file.read_text()), "token": "dead", "controller": "another", "pid": 1}
    file.write_text(json.dumps(lock))
    with pytest.raises(NotReadyError, match="another run"):
        claim(path)


def test_locks_are_released_after_a_failure_and_after_a_signal(site: Site, path: Path) -> None:
    for error in (NotReadyError("it failed"), KeyboardInterrupt()):
        with pytest.raises(type(error)), up(path):
            raise error
        assert site.record("a", "/run/headfirst/lock.json") is None
    with pytest.raises(SystemExit), up(path):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
    assert site.record("b", "/run/headfirst/lock.json") is None
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_run_that_lost_its_lock_ends(site: Site, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.2)
    with pytest.raises(NotReadyError, match="took the lock over") as caught, up(path):
        file = site.file("b", "/run/headfirst/lock.json")
        file.write_text(json.dumps({**json.loads(file.read_text()), "token": "bb"}))
        time.sleep(30)
    assert caught.value.where == "b"
    assert (site.record("b", "/run/headfirst/lock.json") or {})["token"] == "bb"


@pytest.fixture
def sleep(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets the controller sleep for so many seconds; the thread that renews is not scheduled since."""
    slept_s = 0.0
    clock = lease._clock

    def go_on(seconds: float) -> None:
        nonlocal slept_s
        slept_s += seconds

    monkeypatch.setattr(lease, "_TICK_S", 60.0)
    monkeypatch.setattr(lease, "_clock", lambda: clock() + slept_s)
    return go_on


def test_a_controller_that_slept_stops_before_the_next_stage(
    site: Site, path: Path, sleep: Callable[[float], None]
) -> None:
    reached = False
    with pytest.raises(NotReadyError, match="took the lock over") as caught, up(path) as first:
        file = site.file("b", "/run/headfirst/lock.json")
        file.write_text(json.dumps({**json.loads(file.read_text()), "ends": 1.0}))
        other = {**json.loads(file.read_text()), "token": "bb"}
        (access,) = [one for one in first.lease.hosts if one.host == "b"]
        assert site.ask(access, "take", lock=other, lease_s=600)["taken"]
        site.ask(access, "release", token="bb")
        sleep(3600.0)
        first.lease.confirm()
        reached = True
    assert not reached
    assert caught.value.where == "b"


@pytest.mark.parametrize(("asleep_s", "lost"), [(300.0, False), (3600.0, True)])
def test_a_host_that_rebooted_counts_the_time_since_its_last_renewal(
    site: Site, path: Path, sleep: Callable[[float], None], asleep_s: float, lost: bool
) -> None:
    """Its lock is gone; another run may have had it once the lease, of ten minutes, had ended."""
    with contextlib.suppress(NotReadyError), up(path) as first:
        for name in ("lock.json", "taker"):
            site.file("b", f"/run/headfirst/{name}").unlink()
        sleep(asleep_s)
        first.lease.confirm()
    assert (first.lease.lost is not None) is lost


def test_the_lease_is_renewed_and_a_silent_host_does_not_end_the_run(
    site: Site, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.1)

    def ends() -> float:
        return float((site.record("a", "/run/headfirst/lock.json") or {})["ends"])

    with up(path):
        before = ends()
        site.silent.add("b")
        deadline = time.monotonic() + 30
        while site.asked.count(("b", "renew")) < 2 or ends() <= before:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        site.silent.clear()


def test_hosts_that_do_not_answer_are_all_named(site: Site) -> None:
    path = site.inventory("hosts.ini", "a", "b", "c", "d")
    site.silent |= {"b", "d"}
    with pytest.raises(NotReadyError) as caught:
        claim(path)
    assert caught.value.where == "b"
    assert "d: the host does not answer" in str(caught.value.hint)
    assert site.record("a", "/run/headfirst/lock.json") is None


def test_limit_narrows_what_is_locked(site: Site) -> None:
    path = site.inventory("hosts.ini", "a", "b", "c")
    claim(path)
    site.silent.add("c")
    with up(path, limit="all:!c"):
        assert site.record("b", "/run/headfirst/lock.json")
    with up(path, limit="b"):
        assert site.record("a", "/run/headfirst/lock.json") is None


def test_limit_without_the_head_needs_credentials_here(site: Site, path: Path) -> None:
    claim(path)
    site.controller("controller2")
    with pytest.raises(NotReadyError, match="leaves out the head"), up(path, limit="b"):
        pass


def test_release_by_the_owner(site: Site) -> None:
    prod = site.inventory("prod.ini", "a", "b")
    claim(prod)
    assert list(release(options(prod), None).hosts) == ["a", "b"]
    assert site.record("a") is None
    other = claim(site.inventory("other.ini", "b"))
    done = release(options(prod), None)
    assert not done.hosts
    assert {host: owner.id for host, owner in done.foreign.items()} == {"b": other.id}


def test_release_by_another_cluster_names_the_owner(site: Site) -> None:
    claim(site.inventory("prod.ini", "a", "b"))
    other = site.inventory("other.ini", "c", "b", head=21)
    with pytest.raises(InputError, match="named wrong") as caught:
        release(options(other), "wrong")
    assert "prod" in str(caught.value.hint)
    assert not release(options(other), None).hosts
    assert site.record("b")
    assert list(release(options(other), "prod").hosts) == ["b"]
    mine = claim(other)
    assert (site.record("b") or {})["id"] == mine.id
    assert (site.record("a") or {})["cluster"] == "prod"


def test_a_released_head_keeps_its_credentials_for_the_next_controller(site: Site, path: Path) -> None:
    first = claim(path)
    release(options(path), None)
    site.controller("controller2")
    second = claim(path)
    assert (second.id, second.secrets) == (first.id, first.secrets)


def test_release_waits_for_a_run(site: Site, path: Path) -> None:
    with up(path), pytest.raises(NotReadyError, match="another run"):
        release(options(path), None)
    assert site.record("a")


def test_down_leaves_hosts_of_other_clusters_alone(site: Site) -> None:
    prod = site.inventory("prod.ini", "a", "b")
    claim(prod)
    other = site.inventory("other.ini", "c", "b", head=21)
    found = target(options(other))
    assert (found.cluster.limit, list(found.foreign)) == ({"c"}, ["b"])
    assert target(options(prod)).cluster.limit is None
    with pytest.raises(NotReadyError, match="belongs to cluster prod"):
        target(options(site.inventory("third.ini", "b")))


def test_check_mode_refuses_a_foreign_host_and_writes_nothing(site: Site) -> None:
    claim(site.inventory("prod.ini", "a"))
    other = site.inventory("other.ini", "a", head=21)
    with pytest.raises(NotReadyError, match="belongs to cluster prod"):
        claims.peek(cluster_of(other))
    free = site.inventory("free.ini", "b", head=31)
    assert claims.peek(cluster_of(free)) is None
    assert site.record("b") is None
    assert secrets.existing(cluster_of(free)) is None


def test_a_change_of_credentials_reaches_the_head_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def die(cluster: Cluster, wanted: secrets.Secrets) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), up(path) as held:
        new = held.secrets.rotated()
        with monkeypatch.context() as patch:
            patch.setattr(secrets, "save", die)
            held.change(new)
    assert claim(path).secrets == new
    assert replace(held, secrets=new).secrets.is_rotating
