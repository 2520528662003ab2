"""Random faults for half an hour: the replica answers again by itself after each, and never has two heads.

HEADFIRST_SOAK_MINUTES changes the length; HEADFIRST_SOAK_SEED repeats a run. Nodes share the clock of this
machine, so it jumps for the supervisor alone (libfaketime). Of disks only that of the supervisor's records
is filled.
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from supervised import ADDRESSES, HANG_S, NAME, Replica, supervised_replica, wait

pytestmark = pytest.mark.lab
MINUTES = float(os.environ.get("HEADFIRST_SOAK_MINUTES", "30"))
SEED = int(os.environ.get("HEADFIRST_SOAK_SEED", str(random.randrange(10**6))))
RECOVERS_S = HANG_S + 90.0
RECORDS = "/var/lib/headfirst/supervisor"
CLOCK = "/etc/supervisor-clock"  # a reboot keeps it
# The time since boot stays true, as it does when a wall clock is set.
JUMPING_CLOCK = f"""\
apt-get install --yes --no-install-recommends libfaketime >/dev/null
echo +0 >{CLOCK}
mkdir -p /etc/systemd/system/headfirst-supervisor.service.d
cat >/etc/systemd/system/headfirst-supervisor.service.d/clock.conf <<END
[Service]
Environment=LD_PRELOAD=/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketime.so.1
Environment=FAKETIME_TIMESTAMP_FILE={CLOCK} FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1
END
systemctl daemon-reload && systemctl restart headfirst-supervisor
"""


class Fault(NamedTuple):
    """What is done to node 1 or 2, and how it is undone after a while (None: it ends by itself)."""

    name: str
    begin: Callable[[Replica, int], object]
    end: Callable[[Replica, int], object] | None = None


def cut(node: int) -> str:
    return f"INPUT -s {ADDRESSES[2 - node]} -j DROP"


def reboot(replica: Replica, node: int) -> None:
    argv = ["docker", "restart", "--time", "2", replica.nodes.container(node)]
    subprocess.run(argv, check=True, stdout=subprocess.PIPE)


FAULTS = (
    Fault("kill -9 of a rank", lambda r, n: r.on(n, f"kill -9 {r.pid(n)}")),
    Fault("SIGSTOP of a rank", lambda r, n: r.on(n, f"kill -STOP {r.pid(n)}")),
    Fault("docker kill", lambda r, n: r.on(n, f"docker kill {NAME}")),
    Fault("docker stop", lambda r, n: r.on(n, f"docker stop --time 1 {NAME}")),
    Fault("docker pause", lambda r, n: r.on(n, f"docker pause {NAME}")),
    Fault("restart of Docker", lambda r, n: r.on(n, "systemctl restart docker")),
    Fault("reboot", reboot),
    Fault(
        "kill -9 of the supervisor",
        lambda r, n: r.on(n, "kill -9 $(systemctl show --property MainPID --value headfirst-supervisor)"),
    ),
    Fault(
        "partition",
        lambda r, n: r.on(n, f"iptables -I {cut(n)}"),
        lambda r, n: r.on(n, f"iptables -D {cut(n)}"),
    ),
    Fault(
        "20 % packet loss",
        lambda r, n: r.on(n, "tc qdisc add dev eth0 root netem loss 20%"),
        lambda r, n: r.on(n, "tc qdisc del dev eth0 root"),
    ),
    *(
        Fault(
            f"clock at {jump}",
            lambda r, n, jump=jump: r.on(n, f"echo {jump} >{CLOCK}"),
            lambda r, n: r.on(n, f"echo +0 >{CLOCK}"),
        )
        for jump in ("+1d", "-1d")
    ),
    Fault(
        "full disk",
        lambda r, n: r.on(n, f"mount -t tmpfs -o size=16k none {RECORDS}; yes >{RECORDS}/full"),
        lambda r, n: r.on(n, f"umount {RECORDS}"),
    ),
)


class Heads(threading.Thread):
    """Counts the containers of rank 0 that run, over both nodes, until it is closed."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(daemon=True)
        self.replica, self.most, self.closed = replica, 0, threading.Event()

    def run(self) -> None:
        command = "docker ps --quiet --filter label=headfirst.rank=0"
        while not self.closed.wait(1):
            found = [self.replica.on(node, command).split() for node in (1, 2)]
            self.most = max(self.most, sum(len(ids) for ids in found if all(len(id) == 12 for id in ids)))


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    with supervised_replica(tmp_path_factory.mktemp("soak")) as replica:
        for node in (1, 2):
            replica.on(node, JUMPING_CLOCK)
        yield replica


def test_the_clock_jumps_for_the_supervisor(replica: Replica) -> None:
    """The fault is one: the supervisor dates an event by the clock that jumped."""
    replica.on(1, f"echo -1d >{CLOCK}")
    before = replica.starts()
    replica.on(1, f"kill -9 {replica.pid(1)}")
    wait(lambda: replica.answers() and replica.starts() != before, RECOVERS_S, "the replica does not serve")
    replica.on(1, f"echo +0 >{CLOCK}")
    day = 86400
    assert any(abs(event["at"] + day - time.time()) < RECOVERS_S for event in replica.events())


def test_the_replica_answers_again_after_each_fault(replica: Replica) -> None:
    chance = random.Random(SEED)
    print(f"HEADFIRST_SOAK_SEED={SEED}")
    heads = Heads(replica)
    heads.start()
    end = time.monotonic() + MINUTES * 60
    while time.monotonic() < end:
        wait(replica.answers, RECOVERS_S, replica.on(1, "journalctl -u headfirst-supervisor -n 40"))
        time.sleep(chance.uniform(0, 15))
        fault, node = chance.choice(FAULTS), chance.choice((1, 2))
        began = time.monotonic()
        fault.begin(replica, node)
        if fault.end:
            time.sleep(chance.uniform(5, 40))
            fault.end(replica, node)
        # A fault that is not seen at once must not count as one that is over.
        time.sleep(2)
        took = wait(replica.answers, RECOVERS_S, f"{fault.name} on node {node}, seed {SEED}")
        print(
            f"{fault.name} on node {node}: {time.monotonic() - began:.0f} s, of which {took:.0f} s to answer"
        )
    heads.closed.set()
    assert heads.most == 1


class Clients:
    """Four programs that ask the replica all the time."""

    def __init__(self, replica: Replica) -> None:
        self.replica, self.asked, self.answered, self.closed = replica, 0, 0, threading.Event()
        self.threads = [threading.Thread(target=self.ask) for _ in range(4)]

    def ask(self) -> None:
        while not self.closed.wait(0.1):
            self.answered += self.replica.answers()
            self.asked += 1

    def __enter__(self) -> Clients:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        for thread in self.threads:
            thread.join()


def test_load_a_busy_node_and_lost_packets_restart_nothing(replica: Replica) -> None:
    wait(lambda: replica.answers() and replica.phase() == "serving", RECOVERS_S, "the replica does not serve")
    before = replica.starts()
    # Half a processor is all that the node has, and four programs take it.
    processors = ["docker", "update", "--cpus", "0.5", replica.nodes.container(2)]
    subprocess.run(processors, check=True, stdout=subprocess.PIPE)
    replica.on(2, "for i in 1 2 3 4; do setsid sh -c 'while :; do :; done' & echo $! >>/run/busy; done")
    end = time.monotonic() + MINUTES * 60
    with Clients(replica) as clients:
        while time.monotonic() < end:
            replica.on(2, "tc qdisc add dev eth0 root netem loss 20%")
            time.sleep(60)
            replica.on(2, "tc qdisc del dev eth0 root")
            time.sleep(10)
    print(f"{clients.answered} of {clients.asked} requests were answered")
    replica.on(2, "kill $(cat /run/busy)")
    assert replica.starts() == before, replica.events()[-3:]
    # The stand-in's ranks exchange a byte every tenth of a second over one connection, which may stall.
    assert clients.answered > clients.asked / 2
