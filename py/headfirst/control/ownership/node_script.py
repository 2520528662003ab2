"""Runs on a host as root with its own Python (3.8 or newer, standard library only).

One JSON object on stdin asks, one JSON object on stdout answers. Fields of a request: `do`, and what the
function of that name takes. Leases are measured with the host's own clock since boot, which nobody sets.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
import typing as t
from pathlib import Path

CONFIG = Path("/etc/headfirst")
DATA = Path("/var/lib/headfirst")
RUN = Path("/run/headfirst")
LIMIT = 65536


def main() -> None:
    """Carry out the request."""
    os.umask(0o022)
    json.dump(answer(json.load(sys.stdin)), sys.stdout)


def answer(request: dict[str, t.Any]) -> dict[str, t.Any]:
    """What the action answers; one request at a time."""
    RUN.mkdir(mode=0o755, exist_ok=True)
    with os.fdopen(mutex(), "a") as mutex_file:
        fcntl.flock(mutex_file, fcntl.LOCK_EX)
        return ACTIONS[request.pop("do")](**request)


def mutex() -> int:
    """The file that one request holds at a time: who may open it may stall all others."""
    path = RUN / "mutex"
    if path.exists() and path.stat().st_mode & 0o077:
        remove(path)  # of an earlier version: a login may hold it already
    return os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def look(credentials: bool = False) -> dict[str, t.Any]:
    """The owner, the lock while its lease lasts, with `credentials` the secrets: as their files have them."""
    lock = valid_lock()
    records = {
        "owner": read(CONFIG / "owner.json"),
        "kept_owner": read(DATA / "owner.json"),
        "lock": shown(lock) if lock else None,
    }
    if credentials:
        records["credentials"] = read(CONFIG / "credentials.json")
        records["kept_credentials"] = read(DATA / "credentials.json")
    return records


def take(
    lock: dict[str, t.Any], lease_s: float, replace: str = "", credentials: bool = False
) -> dict[str, t.Any]:
    """Take the lock unless another run holds it; the lock of token `replace` counts as free."""
    present_lock = valid_lock()
    has_lock = present_lock is None or present_lock.get("token") in (lock["token"], replace)
    if has_lock:
        # Stays after the release: a run that slept through its lease finds out that another one was here.
        write(RUN / "taker", lock["token"], 0o644)
        write_lock({**lock, "since": now()}, lease_s)
    return {"taken": has_lock, **look(credentials)}


def renew(lock: dict[str, t.Any], lease_s: float, age_s: float) -> dict[str, t.Any]:
    """Make the lease last longer, unless another run took the lock since the last renewal, `age_s` ago.

    A reboot removes the lock and who took it; within the lease nobody could take it before that.
    """
    present_lock, taker = valid_lock(), read(RUN / "taker")
    ours = present_lock is None or present_lock.get("token") == lock["token"]
    has_lock = ours and (taker == lock["token"] or (taker is None and age_s <= lease_s))
    if has_lock:
        write(RUN / "taker", lock["token"], 0o644)
        write_lock({**lock, "since": present_lock["since"] if present_lock else now()}, lease_s)
    return {"kept": has_lock, **look()}


def release(token: str) -> dict[str, t.Any]:
    """Give the lock up."""
    lock = valid_lock()
    if lock and lock.get("token") == token:
        (RUN / "lock.json").unlink()
    return {}


def own(token: str, owner: dict[str, t.Any], credentials: str = "") -> dict[str, t.Any]:
    """Record the owner, unless the host has another one, and keep the credentials."""
    require(token)
    text = read(CONFIG / "owner.json")
    current = parsed(text)
    if text is not None and current.get("id") != owner["id"]:
        raise SystemExit("the host has another owner")
    CONFIG.mkdir(mode=0o755, exist_ok=True)
    record = {**owner, "since": current.get("since") or now()}
    if record != current:
        write(CONFIG / "owner.json", json.dumps(record, indent=2) + "\n", 0o644)
    if credentials:
        if credentials != read(CONFIG / "credentials.json"):
            write(CONFIG / "credentials.json", credentials, 0o600)
        if parsed(read(DATA / "owner.json")).get("id") == owner["id"]:
            remove(DATA / "owner.json", DATA / "credentials.json")
    return {}


def disown(token: str) -> dict[str, t.Any]:
    """Remove the owner record; the credentials move to the data that they open."""
    require(token)
    if (CONFIG / "credentials.json").exists():
        DATA.mkdir(mode=0o755, exist_ok=True)
        for name, mode in (("owner.json", 0o644), ("credentials.json", 0o600)):
            write(DATA / name, read(CONFIG / name) or "", mode)
    remove(CONFIG / "owner.json", CONFIG / "credentials.json")
    return {}


def measure() -> dict[str, t.Any]:
    """Bytes that the data takes."""
    if not DATA.exists():
        return {"bytes": 0}
    done = subprocess.run(["du", "-sxB1", str(DATA)], stdout=subprocess.PIPE, check=True)
    return {"bytes": int(done.stdout.split()[0])}


def require(token: str) -> None:
    """Only the run that holds the lock changes records."""
    lock = valid_lock()
    if not lock or lock.get("token") != token:
        raise SystemExit("another run took the lock of this host over")


def valid_lock() -> dict[str, t.Any] | None:
    """The lock while its lease lasts; one from before a reboot ends in the far future."""
    lock = parsed(read(RUN / "lock.json"))
    ends, lease = lock.get("ends"), lock.get("lease_s")
    if not isinstance(ends, (int, float)) or not isinstance(lease, (int, float)):
        return None
    return lock if 0 < ends - uptime() <= lease else None


def write_lock(lock: dict[str, t.Any], lease_s: float) -> None:
    """Write the lock with a lease from now."""
    lock = {**lock, "lease_s": lease_s, "ends": uptime() + lease_s}
    write(RUN / "lock.json", json.dumps(lock), 0o644)


def shown(lock: dict[str, t.Any]) -> str:
    """The lock for another controller, with the seconds that are left of its lease."""
    return json.dumps({**lock, "left_s": lock["ends"] - uptime()})


def read(path: Path) -> str | None:
    """The text of a small file, None where it is missing."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(LIMIT)
    except FileNotFoundError:
        return None


def parsed(text: str | None) -> dict[str, t.Any]:
    """The JSON object in a text, empty where there is none."""
    try:
        document = json.loads(text or "{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def write(path: Path, text: str, mode: int) -> None:
    """Write a file as a whole."""
    part = path.with_name(path.name + ".part")
    remove(part)
    with os.fdopen(os.open(str(part), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def remove(*paths: Path) -> None:
    """Remove files that may be missing."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def now() -> str:
    """The host's time in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def uptime() -> float:
    """Seconds since boot, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


ACTIONS: dict[str, t.Callable[..., dict[str, t.Any]]] = {
    action.__name__: action for action in (look, take, renew, release, own, disown, measure)
}

if __name__ == "__main__":
    main()
