"""Random histories of a replica whose spares take over, checked after each step for what must never happen.

What is simulated, and how, is in takeover_hosts.py. The histories of supervisor_model.py have one generation.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import histories
from headfirst.node.supervisor.memory import Memories
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)
from takeover_controller import Controller
from takeover_hosts import AFTER_S, HANG_S, NAME, START_S, TICK_S, Host, Network

REPLICA, SPARES = ("A", "B", "C"), ("S", "T")
# A hang is noticed, a host is away for long enough, and the replica starts after the longest pause.
_WELL_S = int(HANG_S + AFTER_S + START_S + 90)
_FAULTS = (
    "the power fails",
    "the power fails",
    "the power is back",
    "the supervisor is silent",
    "the supervisor answers again",
    "the supervisor starts again",
    "the network is cut",
    "the network is healed",
)
_number = st.integers(0, 4)
_groups = st.lists(st.integers(0, 1), min_size=5, max_size=5)


class TakeoverModel(RuleBasedStateMachine):
    """Two or three hosts with one or two spares, and whatever may happen to them."""

    steps_run, ticks_run, takeovers = 0, 0, 0
    """Steps of histories, ticks of time in them, and generations that came to serve, in this process."""

    @initialize(hosts=st.integers(2, 3), spares=st.integers(1, 2))
    def begin(self, hosts: int, spares: int) -> None:
        """The replica serves, and its spares wait."""
        self._folder = tempfile.TemporaryDirectory()
        self.net = Network(Path(self._folder.name), REPLICA[:hosts], SPARES[:spares])
        self._simulated = self.net.simulated()
        self._simulated.__enter__()
        self.controller = Controller(self.net)
        self.controller.install()
        self.served = ""
        self.time_passes(20)

    def teardown(self) -> None:
        if hasattr(self, "_simulated"):
            self._simulated.__exit__(None, None, None)
            self._folder.cleanup()

    @rule(seconds=st.sampled_from([5, 20, 60]))
    def time_passes(self, seconds: int) -> None:
        for _ in range(int(seconds / TICK_S)):
            self._tick()

    def _tick(self) -> None:
        self.net.tick()
        type(self).ticks_run += 1
        for generation in self.net.serving():
            type(self).takeovers += generation != self.served
            self.served = generation

    def _host(self, number: int) -> Host:
        return list(self.net.hosts.values())[number % len(self.net.hosts)]

    # -- what happens -------------------------------------------------------------------------------

    @rule(what=st.sampled_from(_FAULTS), number=_number, groups=_groups)
    def something_happens(self, what: str, number: int, groups: Sequence[int]) -> None:
        self._happens(what, self._host(number), groups)

    @rule(
        what=st.sampled_from(["the power fails", "the supervisor is silent"]),
        number=_number,
        after=st.integers(0, 8),
        then=st.sampled_from(_FAULTS),
        other=_number,
        groups=_groups,
    )
    def only_one_host_is_away(
        self, what: str, number: int, after: int, then: str, other: int, groups: Sequence[int]
    ) -> None:
        """For so long that a spare may take its place; after so many requests for that, more happens."""
        self._answer_all()
        self._happens(what, self._host(number), ())
        self.net.interrupt_after = after
        self.net.interrupt = lambda: self._happens(then, self._host(other), groups)
        self.time_passes(int(AFTER_S + START_S))

    @rule(groups=_groups)
    def only_the_network_is_cut(self, groups: Sequence[int]) -> None:
        """For so long, too."""
        self._answer_all()
        self._happens("the network is cut", self._host(0), groups)
        self.time_passes(int(AFTER_S + START_S))

    def _happens(self, what: str, host: Host, groups: Sequence[int]) -> None:
        match what:
            case "the power fails":
                host.power_off()
            case "the power is back":
                host.power_on()
            case "the supervisor is silent":
                host.answers = False
            case "the supervisor answers again":  # it was stopped, and goes on with what it knew
                host.answers = True
            case "the supervisor starts again":
                host.start_supervisor()
            case "the network is cut":
                self.net.groups = dict(zip(self.net.hosts, groups, strict=False))
            case "the network is healed":
                self.net.groups = {}
            case _:
                raise ValueError(what)

    # -- what people and controllers do ---------------------------------------------------------------

    @rule(number=_number, ends=st.booleans())
    def a_person_holds_a_host(self, number: int, ends: bool) -> None:
        """`headfirst-supervisor hold` and `release`: cli.py."""
        host = self._host(number)
        if host.on:
            with self.net.at(host):
                assert ends or host.holds.hold(NAME, 1e6)
                if ends:
                    host.holds.release(NAME)
            host.held_by_hand = not ends

    @rule()
    def a_controller_changes_the_replica(self) -> None:
        self.controller.up()

    @rule()
    def it_is_well_again(self) -> None:
        """All hosts answer one another, and nobody holds them: soon the replica serves."""
        self._answer_all()
        for number in range(len(self.net.hosts)):
            self.a_person_holds_a_host(number, ends=True)
        self._serves_soon()

    @rule(number=_number)
    def a_host_fails_after_up(self, number: int) -> None:
        """A spare takes its place, whatever was before."""
        self.it_is_well_again()
        assert self.controller.up(), self._story()
        self.time_passes(20)
        self.net.hosts[self.net.replica[number % len(self.net.replica)]].power_off()
        self._serves_soon()

    def _answer_all(self) -> None:
        """All hosts answer one another; holds stay."""
        self.net.groups, self.net.interrupt_after = {}, 0
        for host in self.net.hosts.values():
            host.power_on()
            host.answers = True

    def _serves_soon(self) -> None:
        for _ in range(int(_WELL_S / TICK_S)):
            for host in self.net.hosts.values():  # where too many starts have failed, a person asks
                if host.on and host.keeper and host.keeper.state.status.phase == "gave_up":
                    Memories(host.folder, host.folder / "run").ask_again(NAME)
            self._tick()
            if self._is_kept():
                break
        assert self._is_kept(), self._story()

    def _is_kept(self) -> bool:
        heads = [self.net.hosts[self.net.generations[one][0]].keeper for one in self.net.serving()]
        return any(keeper is not None and keeper.state.status.phase == "serving" for keeper in heads)

    def _story(self) -> str:
        lines = [f"{at:.0f} {own} {kind} {text}" for at, own, kind, text in self.net.events[-40:]]
        hosts = [
            f"{one.own}: {[(c.name, c.runs) for c in one.docker.every]} "
            f"{one.keeper and one.keeper.state.status}"
            for one in self.net.hosts.values()
        ]
        return "\n".join(["it does not serve", *lines, *hosts])

    # -- what must never be -------------------------------------------------------------------------

    @invariant()
    def nothing_wrong_was_done(self) -> None:
        type(self).steps_run += 1
        if hasattr(self, "net"):
            assert not self.net.wrong, "\n".join([*self.net.wrong, self._story()])

    @invariant()
    def the_hold_of_a_person_lasts(self) -> None:
        for host in self.net.hosts.values() if hasattr(self, "net") else ():
            with self.net.at(host):
                assert host.holds.is_held(NAME) or not host.held_by_hand, f"the hold of {host.own} was ended"


def run_histories(count: int, numbers: Iterable[int]) -> int:
    """Run `count` histories for each number, as `histories.run` does; how many steps they had."""
    before = TakeoverModel.steps_run
    histories.run(TakeoverModel, count, numbers, steps=40)
    return TakeoverModel.steps_run - before
