"""The lock of a run on its hosts: taken on all or on none, renewed while the run works, released at its end.

A host keeps the lock for LEASE_S after the last renewal, so a controller that is gone blocks nobody longer.
Nothing is held while a run waits, so two runs cannot wait for each other.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from headfirst.common.errors import HeadfirstError, NotReadyError
from headfirst.control.live.ssh_access.ssh import try_each
from headfirst.control.ownership import requests
from headfirst.control.ownership.holder import is_dead, new_lock
from headfirst.control.ownership.records import HostState, Lock, host_state
from headfirst.control.run.cancel import handling
from headfirst.decide.cluster.login import HostAccess

LEASE_S = 600.0
RENEW_EVERY_S = 120.0
_ASK_AGAIN_S = 5.0
_TICK_S = 1.0
# Sleep counts: a controller that wakes up asks at once whether it still has the lock.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

States = dict[str, HostState]


class Lease:
    """Locked hosts, and what each answered."""

    def __init__(
        self, hosts: Sequence[HostAccess], lock: dict[str, Any], states: States, *, taken_at: float
    ) -> None:
        """`taken_at`: the time of `_clock` when the hosts were asked for the lock."""
        self.hosts = hosts
        self.states = states
        self.token: str = lock["token"]
        self.lost: HeadfirstError | None = None
        self._lock = lock
        self._requested_at = taken_at
        self._renewed = dict.fromkeys((access.host for access in hosts), taken_at)
        self._mutex = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def start(self) -> None:
        """Renew the lease until release()."""
        self._thread.start()

    def release(self) -> None:
        """Give the lock up on every host that answers; elsewhere its lease ends."""
        self._ended.set()
        self._thread.join()
        requests.try_all(self.hosts, "release", token=self.token)

    def confirm(self) -> None:
        """Raise NotReadyError where another run took the lock; the hosts are asked where a renewal is due."""
        self._is_lost_now()
        if self.lost is not None:
            raise self.lost

    def _renew(self) -> None:
        while not self._ended.wait(min(_TICK_S, RENEW_EVERY_S)):
            if self._is_lost_now():
                # The run in the main thread ends as after Ctrl-C, which a job in the background ignores.
                os.kill(os.getpid(), signal.SIGTERM)
                return

    def _is_lost_now(self) -> bool:
        """Renew the lease where that is due; whether it was found lost by this call."""
        with self._mutex:
            if self.lost is not None or _clock() - self._requested_at < RENEW_EVERY_S:
                return False
            self.lost = self._lost_on_a_host()
            return self.lost is not None

    def _lost_on_a_host(self) -> HeadfirstError | None:
        """Renew the lease on every host; the error of the first one that another run took."""
        self._requested_at = requested_at = _clock()

        def renew(access: HostAccess) -> dict[str, Any]:
            age_s = requested_at - self._renewed[access.host]
            return requests.ask(access, "renew", lock=self._lock, lease_s=LEASE_S, age_s=age_s)

        for host, answer in try_each(self.hosts, renew).items():
            # A host that does not answer may be rebooting: it is asked again within the lease.
            if isinstance(answer, HeadfirstError):
                continue
            if not answer.get("kept"):
                return NotReadyError(
                    "another run took the lock over, because this one did not renew it in time",
                    where=host,
                    hint="Nothing more was changed. Run the command again when the other run has ended.",
                )
            self._renewed[host] = requested_at
        return None


@contextlib.contextmanager
def locked(
    hosts: Sequence[HostAccess],
    verb: str,
    cluster: str,
    *,
    judge: Callable[[States], None],
    wait_s: float = 0.0,
    on_wait: Callable[[str], None] = lambda text: None,
) -> Iterator[Lease]:
    """Hold the lock on `hosts`, whose first one decides between two runs of the same cluster.

    `judge` sees the answers before anything is changed and raises for hosts that must be left alone; such an
    error comes before one about a lock. NotReadyError: another run holds a lock for longer than `wait_s`.
    """
    lock = new_lock(verb, cluster)
    ends, waited = time.monotonic() + wait_s, False
    with _signals_end_the_run():
        try:
            while True:
                requested_at = _clock()
                states, busy = _try(hosts, lock, judge)
                if busy is None:
                    break
                remaining_s = ends - time.monotonic()
                if remaining_s <= 0:
                    raise _refusal(*busy, wait_s)
                if not waited:
                    on_wait(f"{busy[0]}: waiting up to {wait_s:.0f} s for {busy[1]}")
                    waited = True
                time.sleep(min(remaining_s, _ASK_AGAIN_S * random.uniform(0.5, 1.0)))  # noqa: S311 - no secret
        except BaseException:
            requests.try_all(hosts, "release", token=lock["token"])
            raise
        lease = Lease(hosts, lock, states, taken_at=requested_at)
        lease.start()
        try:
            yield lease
        except BaseException as error:
            if lease.lost:
                raise lease.lost from error
            raise
        finally:
            lease.release()
        if lease.lost:
            raise lease.lost


def look(hosts: Sequence[HostAccess]) -> States:
    """What each host answers, without a lock."""
    answers = requests.ask_all(hosts, "look", credentials=True)
    return {host: host_state(answer, host) for host, answer in answers.items()}


def _try(
    hosts: Sequence[HostAccess], lock: dict[str, Any], judge: Callable[[States], None]
) -> tuple[States, tuple[str, Lock] | None]:
    """Take the lock on all hosts, or on none; then the host and the lock that are in the way."""
    states: States = {}
    for group in (hosts[:1], hosts[1:]):
        answers = _take(group, lock)
        states |= {host: state for host, (_, state) in answers.items()}
        judge(states)
        for host, (has_lock, state) in answers.items():
            if not has_lock and state.lock:
                requests.try_all(hosts, "release", token=lock["token"])
                return states, (host, state.lock)
    return states, None


def _take(hosts: Sequence[HostAccess], lock: dict[str, Any]) -> dict[str, tuple[bool, HostState]]:
    """Whether each host gave the lock; one whose holder was a dead process of this machine is taken."""
    request: dict[str, Any] = {"lock": lock, "lease_s": LEASE_S, "credentials": True}
    answers = requests.ask_all(hosts, "take", **request)
    for access in hosts:
        state = host_state(answers[access.host], access.host)
        if not answers[access.host].get("taken") and state.lock and is_dead(state.lock):
            answers[access.host] = requests.ask(access, "take", replace=state.lock.token, **request)
    return {host: (bool(answer.get("taken")), host_state(answer, host)) for host, answer in answers.items()}


def _clock() -> float:
    return time.clock_gettime(_CLOCK)


def _refusal(host: str, lock: Lock, waited_s: float) -> NotReadyError:
    after = f" (waited {waited_s:.0f} s)" if waited_s else ""
    return NotReadyError(
        f"another run changes this host: {lock}{after}",
        where=host,
        hint=(
            f"Wait for it with --wait SECONDS. If that run has ended, its lease ends in {lock.left_s:.0f} s."
        ),
    )


def _signals_end_the_run() -> contextlib.AbstractContextManager[None]:
    """SIGTERM and a closed terminal raise SystemExit while no Ansible runs, so that locks are released."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signals = (signal.SIGTERM, signal.SIGHUP)
    return handling([number for number in signals if signal.getsignal(number) is signal.SIG_DFL], end)
