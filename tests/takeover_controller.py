"""What `deploy up` does to the hosts of tests/takeover_hosts.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ansible_collections.headfirst.serving.plugins.modules.container_generations import Generations
from takeover_hosts import INVENTORY, NAME, START_S, TICK_S, Container, Host, Network, engine_record


class Controller:
    """The tasks of the role `engine`; what writes records is the role's module."""

    def __init__(self, net: Network) -> None:
        self.net = net

    def up(self) -> bool:
        """`deploy up`: whether the inventory's generation serves on all its hosts, which must be on."""
        if not all(host.on for host in self.net.hosts.values()):
            return False
        ranks = [self.net.hosts[own] for own in self.net.replica]
        if not all(one.current and one.current.generation == INVENTORY and one.current.runs for one in ranks):
            try:
                if not self._restart(ranks):
                    return False
            finally:
                for host in ranks:  # release.yml
                    with self.net.at(host):
                        host.holds.release(NAME, by_run=True)
        self._wait_again()
        return True

    def _restart(self, ranks: Sequence[Host]) -> bool:
        held = []
        for host in ranks:  # hold.yml
            with self.net.at(host):
                held.append(host.holds.hold(NAME, 3600, by_run=True))
        if not all(held):
            return False
        self._control(ranks, "stop")
        self.net.tick()
        for host in ranks:  # switch.yml: Generations.make_current
            self._make_current(host, INVENTORY)
        self._control(ranks, "start")
        for _ in range(int(START_S / TICK_S)):
            self.net.tick()
            if self.net.computes(INVENTORY):
                return True
        self._control(ranks, "stop")  # failed.yml
        return False

    def _control(self, ranks: Sequence[Host], do: str) -> None:
        self.net.controller = True
        for host in ranks:
            if host.current:
                host.current.stop(timeout=3) if do == "stop" else host.current.start()
        self.net.controller = False

    def _make_current(self, host: Host, generation: str) -> None:
        wanted = next((one for one in host.docker.every if one.generation == generation), None)
        if wanted is None:
            own = next((one for one in range(len(self.net.replica)) if self.net.replica[one] == host.own), 0)
            wanted = Container(host, "", generation, own)
            host.docker.every.append(wanted)
        if host.current and host.current is not wanted:
            host.current.rename(f"{NAME}.{host.current.generation}")
        wanted.rename(NAME)

    def _wait_again(self) -> None:
        """roles/engine/tasks/standby.yml: records are written, and containers created that are missing."""
        for host in self.net.hosts.values():
            own = [one for one in self.net.waiting if host.own in self.net.generations[one]]
            for generation in own:
                self._record(host, generation, self.net.waiting[generation])
                if not any(one.generation == generation for one in host.docker.every):
                    rank = self.net.generations[generation].index(host.own)
                    host.docker.every.append(Container(host, f"{NAME}.{generation}", generation, rank))

    def _record(self, host: Host, generation: str, document: dict[str, Any]) -> None:
        runtime: Any = None
        there = Generations(None, runtime, NAME, check=False, records=str(host.folder))
        there.record(generation, document)

    def install(self) -> None:
        """As the first `up` leaves the hosts: the replica runs, and all else waits."""
        for own in self.net.replica:
            host = self.net.hosts[own]
            self._make_current(host, INVENTORY)
            self._record(host, INVENTORY, engine_record(self.net.replica))
            path = host.folder / NAME / f"{INVENTORY}.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), "worked_at": 1.0}))
            host.current.start()  # type: ignore[union-attr]
        self._wait_again()
