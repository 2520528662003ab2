"""What runs on a host: owner record, lock with a lease, credentials."""

from __future__ import annotations

import fcntl
import json
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from host_records import request, script_for

LOCK: dict[str, Any] = {"token": "aa", "holder": "alice@ctl", "pid": 1}
OTHER: dict[str, Any] = {"token": "bb", "holder": "bob@ctl", "pid": 2}
OWNER = {"id": "1" * 32, "cluster": "prod"}
LEASE = 600


def ask(root: Path, do: str, **fields: Any) -> dict[str, Any]:
    done = request(root, do, **fields)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def renewed(root: Path, age_s: float = 120) -> dict[str, Any]:
    """The answer to the renewal of LOCK, whose last one was so long ago."""
    return ask(root, "renew", lock=LOCK, lease_s=LEASE, age_s=age_s)


def refused(root: Path, do: str, **fields: Any) -> str:
    done = request(root, do, **fields)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def test_one_of_many_gets_the_lock(tmp_path: Path) -> None:
    locks = [{**LOCK, "token": f"{number:02x}"} for number in range(12)]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda lock: ask(tmp_path, "take", lock=lock, lease_s=LEASE), locks))
    taken = [lock for lock, answer in zip(locks, answers, strict=True) if answer["taken"]]
    assert len(taken) == 1
    assert {json.loads(answer["lock"])["token"] for answer in answers} == {taken[0]["token"]}


@pytest.mark.parametrize("earlier", [False, True])
def test_no_login_but_root_can_hold_the_requests_up(tmp_path: Path, earlier: bool) -> None:
    """The file of an earlier version, which a login of the host holds, is not waited for."""
    mutex = tmp_path / "run" / "headfirst" / "mutex"
    mutex.parent.mkdir(parents=True)
    if earlier:
        mutex.touch(0o644)
    with (mutex if earlier else tmp_path / "other").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        answer = subprocess.run(
            [sys.executable, "-c", script_for(tmp_path)],
            input=json.dumps({"do": "look"}),
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    assert answer.returncode == 0, answer.stderr
    assert stat.S_IMODE(mutex.stat().st_mode) == 0o600


def test_the_lock_names_its_holder_until_it_is_released(tmp_path: Path) -> None:
    assert ask(tmp_path, "take", lock=LOCK, lease_s=LEASE)["taken"]
    answer = ask(tmp_path, "take", lock=OTHER, lease_s=LEASE)
    held = json.loads(answer["lock"])
    assert not answer["taken"]
    assert held["holder"] == "alice@ctl"
    assert 0 < held["left_s"] <= LEASE
    ask(tmp_path, "release", token="bb")
    assert not ask(tmp_path, "take", lock=OTHER, lease_s=LEASE)["taken"]
    ask(tmp_path, "release", token="aa")
    assert ask(tmp_path, "take", lock=OTHER, lease_s=LEASE)["taken"]


def test_an_expired_lease_is_renewed_or_taken_over(tmp_path: Path) -> None:
    ask(tmp_path, "take", lock=LOCK, lease_s=-1)
    assert renewed(tmp_path, 900)["kept"], "nobody took the lock"
    ask(tmp_path, "take", lock=LOCK, lease_s=-1, replace="aa")
    assert ask(tmp_path, "take", lock=OTHER, lease_s=LEASE)["taken"]
    assert not renewed(tmp_path)["kept"]
    assert not ask(tmp_path, "take", lock=LOCK, lease_s=LEASE, replace="cc")["taken"]
    assert ask(tmp_path, "take", lock=LOCK, lease_s=LEASE, replace="bb")["taken"]


@pytest.mark.parametrize("age_s", [130, 900])
def test_a_lock_that_another_run_took_and_released_is_lost(tmp_path: Path, age_s: float) -> None:
    ask(tmp_path, "take", lock=LOCK, lease_s=-1)
    assert ask(tmp_path, "take", lock=OTHER, lease_s=LEASE)["taken"]
    ask(tmp_path, "release", token="bb")
    answer = renewed(tmp_path, age_s)
    assert not answer["kept"]
    assert answer["lock"] is None
    assert ask(tmp_path, "take", lock=LOCK, lease_s=LEASE)["taken"]  # by the next run


def test_a_lease_of_another_boot_is_expired(tmp_path: Path) -> None:
    ask(tmp_path, "take", lock=LOCK, lease_s=LEASE)
    file = tmp_path / "run/headfirst/lock.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "ends": 10**9}))
    assert ask(tmp_path, "take", lock=OTHER, lease_s=LEASE)["taken"]


@pytest.mark.parametrize("left", ["", "{", "[]", '{"ends": "soon"}'])
def test_a_broken_lock_blocks_nobody(tmp_path: Path, left: str) -> None:
    ask(tmp_path, "look")
    (tmp_path / "run/headfirst/lock.json").write_text(left)
    assert ask(tmp_path, "take", lock=OTHER, lease_s=LEASE)["taken"]


def test_a_renewal_keeps_the_time_since_and_survives_a_reboot(tmp_path: Path) -> None:
    ask(tmp_path, "take", lock=LOCK, lease_s=5)
    file = tmp_path / "run/headfirst/lock.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "since": "2020-01-01T00:00:00Z"}))
    answer = renewed(tmp_path)
    assert answer["kept"]
    assert json.loads(answer["lock"])["since"] == "2020-01-01T00:00:00Z"
    assert json.loads(answer["lock"])["left_s"] > 5
    shutil.rmtree(tmp_path / "run/headfirst")
    assert not renewed(tmp_path, LEASE + 1)["kept"], "its lease had ended"
    assert renewed(tmp_path)["kept"]
    assert not ask(tmp_path, "take", lock=OTHER, lease_s=LEASE)["taken"]


def test_records_are_written_by_the_holder_of_the_lock_only(tmp_path: Path) -> None:
    assert "took the lock" in refused(tmp_path, "own", token="aa", owner=OWNER)
    ask(tmp_path, "take", lock=LOCK, lease_s=LEASE)
    assert "took the lock" in refused(tmp_path, "own", token="bb", owner=OWNER)
    assert not (tmp_path / "etc/headfirst").exists()


def test_the_owner_and_its_credentials(tmp_path: Path) -> None:
    ask(tmp_path, "take", lock=LOCK, lease_s=LEASE)
    ask(tmp_path, "own", token="aa", owner=OWNER, credentials='{"a": 1}')
    answer = ask(tmp_path, "look", credentials=True)
    owner = json.loads(answer["owner"])
    assert {key: owner[key] for key in OWNER} == OWNER
    assert owner["since"].endswith("Z")
    assert answer["credentials"] == '{"a": 1}'
    assert "credentials" not in ask(tmp_path, "look")
    assert (tmp_path / "etc/headfirst/owner.json").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "etc/headfirst/credentials.json").stat().st_mode & 0o777 == 0o600
    before = (tmp_path / "etc/headfirst/owner.json").stat().st_mtime_ns
    ask(tmp_path, "own", token="aa", owner=OWNER)
    assert (tmp_path / "etc/headfirst/owner.json").stat().st_mtime_ns == before


def test_other_users_may_read_the_owner_and_write_nothing(tmp_path: Path) -> None:
    ask(tmp_path, "take", lock=LOCK, lease_s=LEASE)
    ask(tmp_path, "own", token="aa", owner=OWNER, credentials="{}")
    assert (tmp_path / "etc/headfirst").stat().st_mode & 0o777 == 0o755
    ask(tmp_path, "disown", token="aa")
    assert (tmp_path / "var/lib/headfirst").stat().st_mode & 0o777 == 0o755
    files = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "var/lib/headfirst").iterdir()}
    assert files == {"owner.json": 0o644, "credentials.json": 0o600}


@pytest.mark.parametrize("there", ['{"id": "2"}', "{", ""])
def test_another_owner_stays(tmp_path: Path, there: str) -> None:
    ask(tmp_path, "take", lock=LOCK, lease_s=LEASE)
    (tmp_path / "etc/headfirst").mkdir()
    (tmp_path / "etc/headfirst/owner.json").write_text(there)
    assert "another owner" in refused(tmp_path, "own", token="aa", owner=OWNER)
    assert (tmp_path / "etc/headfirst/owner.json").read_text() == there


def test_a_release_moves_the_credentials_to_the_data(tmp_path: Path) -> None:
    ask(tmp_path, "take", lock=LOCK, lease_s=LEASE)
    ask(tmp_path, "own", token="aa", owner=OWNER, credentials="{}")
    ask(tmp_path, "disown", token="aa")
    answer = ask(tmp_path, "look", credentials=True)
    assert answer["owner"] is answer["credentials"] is None
    assert json.loads(answer["kept_owner"])["id"] == OWNER["id"]
    assert answer["kept_credentials"] == "{}"
    ask(tmp_path, "own", token="aa", owner=OWNER, credentials="{}")
    assert ask(tmp_path, "look")["kept_owner"] is None


def test_the_size_of_the_data(tmp_path: Path) -> None:
    assert ask(tmp_path, "measure") == {"bytes": 0}
    (tmp_path / "var/lib/headfirst").mkdir(parents=True)
    (tmp_path / "var/lib/headfirst/weights").write_bytes(b"x" * 1_000_000)
    assert ask(tmp_path, "measure")["bytes"] >= 1_000_000


def test_it_runs_on_the_oldest_python_that_nodes_have(tmp_path: Path) -> None:
    old = shutil.which("python3.8")
    if old is None or subprocess.run([old, "--version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no Python 3.8 here")
    done = request(tmp_path, "take", python=old, lock=LOCK, lease_s=LEASE)
    assert json.loads(done.stdout)["taken"], done.stderr
