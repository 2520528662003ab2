"""What `up`, `rollback` and `replace` do to the generations on hosts: random histories of two operators.

Real: rollout.py, what a host does in each of its steps, the module container_generations, the decisions of
service_change.py, the lease and the lock's script of a host. Fixtures: Docker, SSH, the clocks. One step of
one host is a step here, and a run ends at any step, or in a call to Docker. A run that no step is taken of
sleeps, as its controller does.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import histories
from ansible.errors import AnsibleActionFail
from ansible_collections.headfirst.serving.plugins.action.rollout import ActionModule
from ansible_collections.headfirst.serving.plugins.module_utils import container_spec, rollout
from ansible_collections.headfirst.serving.plugins.module_utils.container_runtime import Docker
from ansible_collections.headfirst.serving.plugins.modules import container_generations, container_watch
from ansible_collections.headfirst.serving.plugins.modules.container_generations import Generations
from ansible_collections.headfirst.serving.plugins.plugin_utils import rollout_steps, service_change
from ansible_collections.headfirst.serving.plugins.plugin_utils.rollout_steps import HostSteps
from docker.errors import APIError
from headfirst.common.errors import HeadfirstError, NotReadyError
from headfirst.control.ownership import lease, requests
from headfirst.control.ownership.holder import new_lock
from headfirst.decide.cluster.login import HostAccess
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

# Three ranks: a host that left can return in another rank's place, and have one that is there already.
REPLICAS = {"engine-0": ("a", "b", "c"), "engine-1": ("d",)}
# A service that comes and goes, on the first host of the first replica.
MORE = "engine-more"
HOSTS = ["a", "b", "c", "d", "spare"]
STEP_S = 5.0
END = 200  # more steps than any run has
BROKEN = 4  # a version whose number is a multiple does not serve
RUN: dict[str, Any] = {
    "operator": st.sampled_from([0, 1]),
    "steps": st.sampled_from([END, END, *range(2, 34)]),
    "then": st.sampled_from(["sleeps", "sleeps", "killed", "killed in a module"]),
    "wait_s": st.sampled_from([0.0, 130.0, 601.0, 601.0]),
}
DEFAULTS = {name: option.get("default") for name, option in container_generations.OPTIONS.items()}
SCRIPT = Path(requests.__file__).with_name("node_script.py")


def with_defaults(**options: Any) -> dict[str, Any]:
    """Options of the module `rollout`, with the defaults of those that are left out."""
    return {name: option.get("default") for name, option in (ActionModule.ARGUMENTS or {}).items()} | options


class Killed(BaseException):
    """The run ends here, as after kill -9."""


class Container:
    """What the module uses of docker's Container."""

    def __init__(self, host: Host, name: str, labels: dict[str, str]) -> None:
        self.host, self.name, self.labels = host, name, labels
        self.policy, self.running = "no", False

    @property
    def attrs(self) -> dict[str, Any]:
        return {
            "Image": self.generation,
            "State": {"Running": self.running, "Restarting": False},
            "HostConfig": {"RestartPolicy": {"Name": self.policy}},
        }

    @property
    def generation(self) -> str:
        return self.labels[container_spec.GENERATION_LABEL]

    @property
    def rank(self) -> str:
        return self.labels[container_spec.RANK_LABEL]

    def rename(self, name: str) -> None:
        assert name not in [one.name for one in self.host.list()], "Docker refuses a name that is taken"
        self.host.call()
        self.name = name

    def remove(self, **_: Any) -> None:
        self.host.call()
        self.host.found.remove(self)

    def stop(self, **_: Any) -> None:
        self.host.call()
        self.running = False

    def update(self, restart_policy: dict[str, str]) -> None:
        self.host.call()
        self.policy = restart_policy["Name"]


class Host:
    """A node: its containers, its records, its lock. Each call to Docker may be a run's last."""

    def __init__(self, world: World, root: Path) -> None:
        self.world, self.root = world, root
        self.found: list[Container] = []
        self.containers = self.images = self
        self.booted_at = world.now - 10_000.0
        self.calls_left: int | None = None
        text = SCRIPT.read_text()
        for folder in ("/etc/headfirst", "/var/lib/headfirst", "/run/headfirst"):
            (root / folder[1:]).parent.mkdir(parents=True, exist_ok=True)
            text = text.replace(f'Path("{folder}")', f'Path("{root}{folder}")')
        self.script: dict[str, Any] = {"__name__": "node_script"}
        exec(compile(text, str(SCRIPT), "exec"), self.script)
        self.script["uptime"] = lambda: world.now - self.booted_at

    def list(self, **_: Any) -> list[Container]:
        return list(self.found)

    def get(self, image: str) -> SimpleNamespace:
        """An image, which is called as its generation."""
        self.call()
        return SimpleNamespace(tags=[image])

    def remove(self, image: str) -> None:
        """Remove an image."""
        self.call()
        if image in [one.generation for one in self.found]:
            raise APIError("a container uses it", response=mock.Mock(status_code=409))

    def call(self) -> None:
        """One call to Docker."""
        if self.calls_left == 0:
            raise Killed
        if self.calls_left:
            self.calls_left -= 1

    def generations(self, name: str, *, check: bool = False) -> Generations:
        return Generations(self, Docker(self), name, check=check, records=str(self.root / "records"))  # type: ignore[arg-type]

    def ask(self, module: str, arguments: Mapping[str, Any], *, check: bool = False) -> dict[str, Any]:
        """What a module answers; a container whose specification is `broken` ends when it starts."""
        state, name = arguments.get("state", "read"), arguments["name"]
        if module == rollout_steps.GENERATIONS:
            given = {**DEFAULTS, **arguments, "record": {"files": {}, **arguments.get("record", {})}}
            return container_generations._apply(partial(self.generations, check=check), given)
        container = self.current(name)
        if module == rollout_steps.WATCH:
            runs = container is not None and container.running
            ready = container is not None and runs and self.world.serves(container)
            found = {"exists": runs, "ready": ready, "running": runs, "log": ["bye"], "now": 0.0}
            return {**container_watch.ABSENT, **found}
        if check:
            return {"changed": True}
        if state == "created":
            spec = arguments["spec"]
            labels = {
                **arguments["labels"],
                container_spec.SPEC_JSON_LABEL: json.dumps(spec),
                **spec["labels"],
            }
            self.found.append(Container(self, name, labels))
            return {"changed": True}
        if container is None:
            return (
                {"changed": False} if state == "stopped" else {"failed": True, "msg": f"There is no {name}."}
            )
        if state == "kept":
            container.policy = "unless-stopped"
            return {"changed": True}
        changed = container.running != (state == "started")
        container.running = state == "started"
        return {"changed": changed}

    def current(self, name: str) -> Container | None:
        return next((one for one in self.found if one.name == name), None)

    def reboot(self) -> None:
        self.booted_at = self.world.now
        shutil.rmtree(self.root / "run/headfirst", ignore_errors=True)
        for one in self.found:
            one.running = one.running and one.policy == "unless-stopped"


class World:
    """All hosts, and a clock that only rules move."""

    def __init__(self, root: Path) -> None:
        self.now = 1_000_000.0
        self.hosts = {name: Host(self, root / name) for name in HOSTS}
        self.members = {replica: list(hosts) for replica, hosts in REPLICAS.items()}
        self.names = {replica: replica for replica in [*REPLICAS, MORE]}  # of their containers
        self.has_more = False
        self.spares = ["spare"]
        self.version = 0  # that of the inventory
        self.planned: dict[str, dict[str, list[str]]] = {}  # every version that `up` was to bring
        self.served: set[tuple[str, str]] = set()  # version and replica
        self.complete: list[str] = []  # versions that `up` or `rollback` completed on the present hosts

    def ask(self, access: HostAccess, do: str, **fields: Any) -> dict[str, Any]:
        """A request of the lease, without SSH."""
        fields.pop("timeout_s", None)
        found: dict[str, Any] = self.hosts[access.host].script["answer"](
            json.loads(json.dumps({"do": do, **fields}))
        )
        return found

    def time(self) -> float:
        """A node's time of day; each reading is another one."""
        self.now += 0.001
        return self.now

    @property
    def all_replicas(self) -> list[str]:
        """Those of the inventory."""
        return [*REPLICAS, *([MORE] if self.has_more else [])]

    def hosts_of(self, replica: str) -> list[str]:
        """The hosts of its ranks."""
        return self.members["engine-0"][:1] if replica == MORE else self.members[replica]

    def seen(self, replica: str) -> list[dict[str, Any]]:
        """The state of a replica's ranks."""
        return [
            {
                "replica": replica,
                "host": host,
                "rank": rank,
                "fingerprint": "",
                "seen": self.hosts[host].generations(self.names[replica]).read(),
            }
            for rank, host in enumerate(self.hosts_of(replica))
        ]

    def present(self, *, running: bool = True) -> dict[str, list[str]]:
        """The specifications of the ranks of each replica: of those that run, or of all."""
        return {
            replica: sorted(
                one.labels["spec"]
                for host in hosts
                if (one := self.hosts[host].current(self.names[replica])) and (one.running or not running)
            )
            for replica, hosts in self.members.items()
        }

    def all_running(self, replica: str) -> list[Container]:
        """Containers that run at its address, also those that were set aside, and on a host that left."""
        return [
            one
            for host in self.hosts.values()
            for one in host.found
            if one.running and one.labels["replica"] == replica
        ]

    def serves(self, container: Container) -> bool:
        """Whether all ranks of a container's generation run, and can."""
        running = [
            one
            for host in self.hosts.values()
            for one in host.found
            if one.running and one.name == container.name and one.generation == container.generation
        ]
        ranks = container.labels[container_spec.RANKS_LABEL]
        return len({one.rank for one in running}) == int(ranks) and "broken" not in container.labels

    def answers(self, replica: str) -> bool:
        """Whether something serves at the address that clients have."""
        return any(self.serves(one) for one in self.all_running(replica) if "." not in one.name)

    def spec(self, version: int, replica: str, rank: int) -> dict[str, Any]:
        """Of a rank's container in a version: a worker's has the address of its head, and not its own.

        Every second version leaves the second replica as it is.
        """
        same = version // 2 * 2 if replica == "engine-1" else version
        labels = {"spec": f"{replica} v{same} rank {rank} of {self.hosts_of(replica)[0]}", "replica": replica}
        if replica != MORE and version % BROKEN == 0:
            labels["broken"] = "yes"
        return {"restart_policy": "unless-stopped", "labels": labels}


class Run:
    """One run of `deploy` by one operator: a lock, and steps."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.steps: Iterator[None] = iter(())
        self.returns_to = ""  # what a rollback has noted on a host
        self.held: lease.Lease | None = None
        self.disturbed = False  # a host was rebooted meanwhile

    def take(self) -> bool:
        """Take the lock on all hosts, or on none."""
        lock = new_lock("up", "model")
        access = [mock.Mock(host=host, spec=HostAccess) for host in HOSTS]
        asked_at = self.world.now
        states, busy = lease._try(access, lock, lambda _: None)
        if busy is None:
            self.held = lease.Lease(access, lock, states, taken_at=asked_at)
        return busy is None

    def release(self) -> None:
        assert self.held
        for access in self.held.hosts:
            self.world.ask(access, "release", token=self.held.token)

    def up(self) -> Iterator[None]:
        """The stages `serve` of all replicas, then `prune`."""
        world, version = self.world, self.world.version
        name = " ".join([f"v{version} of", *(f"{len(hosts)} {hosts[0]}" for hosts in world.members.values())])
        world.planned[name] = {
            replica: [world.spec(version, replica, rank)["labels"]["spec"] for rank in range(len(hosts))]
            for replica, hosts in world.members.items()
        }
        for replica in world.all_replicas:
            self.confirm()
            yield from self.serve(replica, version, name)
            yield
            for spare in world.spares:
                world.hosts[spare].generations(world.names[replica]).prune([])
        self.confirm()
        yield
        states = [state for replica in REPLICAS for state in world.seen(replica)]
        for replica, keep in service_change.kept(states).items():
            for host in world.members[replica]:
                yield
                world.hosts[host].generations(world.names[replica]).prune(keep)
        world.complete.append(name)

    def replace(self, leaving: str, *, dead: bool, resize: bool = False) -> Iterator[None]:
        """The host that leaves is stopped where it answers, then the inventory is changed, then `up`.

        It becomes a spare, with all that it had if it was dead. With `resize` no host takes its place.
        """
        host = self.world.hosts[leaving]
        replica, hosts = next(one for one in self.world.members.items() if leaving in one[1])
        self.disturbed = True
        yield
        for container in host.found:
            container.running = False
        yield
        # A version of which a host has left need not be there any more. A rollback may find another one that
        # is whole on the present hosts, or none; it must not mix, whatever a host brings with it.
        self.world.complete.clear()
        if not dead:
            host.generations(self.world.names[replica]).remove(0)
        yield
        self.confirm()
        at = hosts.index(leaving)
        hosts[at : at + 1] = [] if resize else [self.world.spares.pop()]
        self.world.spares.append(leaving)
        happened["resized" if resize else "replaced"] += 1
        yield from self.up()

    def grow(self, replica: str) -> Iterator[None]:
        """A spare becomes the last host of a replica, then `up`."""
        self.confirm()
        self.disturbed = True
        self.world.complete.clear()
        self.world.members[replica].append(self.world.spares.pop())
        yield from self.up()

    def rollback(self, chosen: list[str]) -> Iterator[None]:
        """The version is appended to `chosen` when it serves on all replicas."""
        self.confirm()
        yield
        found = service_change.previous({replica: self.world.seen(replica) for replica in REPLICAS})
        if not found["version"]:
            chosen.append("")
            return
        for replica in REPLICAS:
            self.confirm()
            yield
            ranks = self.world.seen(replica)
            change = service_change.rollback(ranks, found["generations"][replica], len(REPLICAS))
            options = {"rollback": True, "version": found["version"]}
            if change["restart"]:
                self.returns_to = found["version"]
            yield from self.roll_out(replica, ranks, change, options)
        chosen.append(found["version"])
        self.world.complete.append(found["version"])

    def serve(self, replica: str, version: int, name: str) -> Iterator[None]:
        """The role engine: read, decide, change."""
        yield
        ranks = self.world.seen(replica)
        for state in ranks:
            state["fingerprint"] = self.world.spec(version, replica, state["rank"])["labels"]["spec"]
        yield from self.roll_out(
            replica, ranks, service_change.change(ranks, len(REPLICAS)), {"version": name}, version
        )

    def roll_out(
        self,
        replica: str,
        ranks: list[dict[str, Any]],
        change: dict[str, Any],
        options: dict[str, Any],
        version: int = 0,
    ) -> Iterator[None]:
        """The action: each step on all of its hosts, before the next one."""
        world = self.world
        answered = world.answers(replica)
        change |= {"running": any(rank["seen"]["current"]["running"] for rank in ranks)}
        steps = {
            rank["host"]: self.host_steps(
                replica, rank, ranks, {**options, "spec": world.spec(version, replica, rank["rank"])}
            )
            for rank in ranks
        }
        for host in steps.values():
            yield
            host.read()
        course = rollout.carry_out(ranks, change, set(), until_stop=False)
        try:
            step = next(course)
            while True:
                outcome = rollout.StepOutcome({}, {})
                for host_name in step.hosts:
                    yield
                    try:
                        outcome.answers[host_name] = steps[host_name].do(step, change)
                    except AnsibleActionFail as error:
                        outcome.reasons[host_name] = error.message
                step = course.send(outcome)
        except StopIteration as done:
            ended = done.value
        if ended.failure:
            happened["came back"] += answered
            assert world.answers(replica) or not answered or self.disturbed, "its clients have nothing"
            raise HeadfirstError("it does not serve")
        world.served.add((options["version"], replica))
        for host in steps.values():
            yield
            host.retire()

    def host_steps(
        self, replica: str, rank: dict[str, Any], ranks: list[dict[str, Any]], options: dict[str, Any]
    ) -> HostSteps:
        """What a host does, with the options of a service without a supervisor."""
        host, names = rank["host"], self.world.names
        planned = [names[other] for other in self.world.all_replicas if host in self.world.hosts_of(other)]
        args = with_defaults(
            name=names[replica],
            rank=rank["rank"],
            ranks=len(ranks),
            record={"url": f"http://{replica}"},
            replicas=len(REPLICAS),
            family="engine",
            planned=[] if options.get("rollback") else planned,
            is_last=names[replica] == planned[-1],
            ready_timeout=1,
            **options,
        )
        ask = self.world.hosts[host].ask
        return HostSteps(args, host, ask, lambda *_: {"rc": 0, "stderr": ""}, Path("board"), check=False)

    def confirm(self) -> None:
        """Before each phase."""
        assert self.held
        self.held.confirm()


# How often each thing happened, over all histories of the process.
happened: Counter[str] = Counter()


class GenerationsModel(RuleBasedStateMachine):
    """Two operators, kills, lost locks, reboots; the invariants are at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        root = self.stack.enter_context(tempfile.TemporaryDirectory(dir=_memory()))
        self.world = world = World(Path(root))
        for target, name, stand_in in (
            (requests, "ask", world.ask),
            (lease, "try_each", lambda hosts, ask: {access.host: ask(access) for access in hosts}),
            (requests, "try_each", lambda hosts, ask: {access.host: ask(access) for access in hosts}),
            (lease, "_clock", lambda: world.now),
            (lease, "is_dead", lambda _: False),
            (container_generations, "time", mock.Mock(time=world.time)),
            (os, "fsync", lambda _: None),
        ):
            self.stack.enter_context(mock.patch.object(target, name, stand_in))
        self.operators: dict[int, Run] = {}
        self.runs = 0
        self.last_step_by = 0
        self.returned: tuple[Run, list[str], set[tuple[str, str]], list[str]] | None = None
        self.interrupted = ""  # the version that a killed rollback had noted

    def teardown(self) -> None:
        self.stack.close()

    @initialize()
    def first(self) -> None:
        """The service is up."""
        self.act("up", 1, operator=0, steps=END, then="sleeps", wait_s=0.0)

    @rule(verb=st.sampled_from(["rollback", "up", "up"]), version=st.integers(1, 8), **RUN)
    def act(self, verb: str, version: int, operator: int, steps: int, then: str, wait_s: float) -> None:
        """An operator begins a run, or its run goes on, for so many steps."""
        self.world.now += wait_s
        run = self._begin(operator)
        if run and verb == "up":
            self.interrupted = ""
            self.world.version = version
            run.steps = run.up()
        elif run:
            chosen: list[str] = []
            self.returned = (run, chosen, set(self.world.served), list(self.world.complete))
            if self.world.present() in self.world.planned.values():
                self.interrupted = ""  # it had reached its end, or had not begun
            run.steps = run.rollback(chosen)
        self.go(operator, steps, then)

    @rule(place=st.integers(0, 3), dead=st.booleans(), **RUN)
    def replace(self, place: int, operator: int, steps: int, then: str, wait_s: float, *, dead: bool) -> None:
        """As `act`."""
        self.world.now += wait_s
        if run := self._begin(operator):
            self.interrupted = ""
            hosts = [host for members in self.world.members.values() for host in members]
            run.steps = run.replace(hosts[place % len(hosts)], dead=dead)
        self.go(operator, steps, then)

    @rule(dead=st.booleans(), **RUN)
    def resize(self, operator: int, steps: int, then: str, wait_s: float, *, dead: bool) -> None:
        """The last host of the first replica leaves it, or comes back."""
        self.world.now += wait_s
        if run := self._begin(operator):
            self.interrupted = ""
            hosts = self.world.members["engine-0"]
            grows = len(hosts) < len(REPLICAS["engine-0"])
            run.steps = run.grow("engine-0") if grows else run.replace(hosts[-1], dead=dead, resize=True)
        self.go(operator, steps, then)

    @rule(**RUN)
    def rename(self, operator: int, steps: int, then: str, wait_s: float) -> None:
        """The first replica gets another name; its address stays."""
        self.world.now += wait_s
        if run := self._begin(operator):
            self.interrupted = ""
            happened["renamed"] += 1
            # The next `up` that ends well adopts the versions of the former name. None need be there before.
            self.world.complete.clear()
            names = self.world.names
            names["engine-0"] = "engine-0" if names["engine-0"] != "engine-0" else "engine-chat"
            run.steps = run.up()
        self.go(operator, steps, then)

    @rule(**RUN)
    def come_or_go(self, operator: int, steps: int, then: str, wait_s: float) -> None:
        """A service comes or goes, on a host of the first replica."""
        self.world.now += wait_s
        if run := self._begin(operator):
            self.interrupted = ""
            self.world.has_more = not self.world.has_more
            run.steps = run.up()
        self.go(operator, steps, then)

    def _begin(self, operator: int) -> Run | None:
        """The operator's new run; None where an old one goes on, or the hosts are locked."""
        if operator in self.operators:
            return None
        self.runs += 1
        run = Run(self.world, self.runs)
        if not run.take():
            happened["refused"] += 1
            return None
        self.operators[operator] = run
        return run

    def go(self, operator: int, steps: int, then: str) -> None:
        """Steps of an operator's run, until it ends, sleeps, or is killed."""
        for _ in range(steps):
            if operator in self.operators:
                self.step(operator, None)
        if operator in self.operators and then == "killed in a module":
            for calls in (1, 0):
                if operator in self.operators:
                    self.step(operator, calls)
        if operator in self.operators and then != "sleeps":
            # The controller is gone; the lock stays until its lease ends.
            happened["killed"] += 1
            self._killed(operator)

    @rule(name=st.sampled_from(HOSTS))
    def reboot(self, name: str) -> None:
        """Not twice within a lease: what was taken between the two is forgotten, and so is who took it."""
        host = self.world.hosts[name]
        if self.world.now - host.booted_at > lease.LEASE_S:
            host.reboot()
            for run in self.operators.values():
                run.disturbed = True

    def step(self, operator: int, calls: int | None) -> None:
        """One task on one host. The lease's thread comes first: its clock counts sleep."""
        run = self.operators[operator]
        assert run.held
        happened["steps"] += 1
        self.world.now += STEP_S
        if run.held._is_lost_now():
            happened["lost locks"] += 1
            self._killed(operator)
            return
        assert run.number >= self.last_step_by, "a run goes on after another one has changed the hosts"
        self.last_step_by = run.number
        for host in self.world.hosts.values():
            host.calls_left = calls
        try:
            next(run.steps)
        except StopIteration:
            self._ended(operator, run)
        except HeadfirstError as error:
            happened["failed"] += 1
            self.interrupted = ""
            if not isinstance(error, NotReadyError):
                run.release()
            del self.operators[operator]
        except Killed:
            happened["killed in a module"] += 1
            self._killed(operator)
        finally:
            for host in self.world.hosts.values():
                host.calls_left = None

    def _killed(self, operator: int) -> None:
        run = self.operators.pop(operator)
        if run.number == self.last_step_by:
            self.interrupted = run.returns_to or self.interrupted

    def _ended(self, operator: int, run: Run) -> None:
        run.release()
        happened["ended well"] += 1
        del self.operators[operator]
        if self.returned and self.returned[0] is run:
            _, (version,), served, complete = self.returned
            self._returned(version, served, complete)

    def _returned(self, version: str, served: set[tuple[str, str]], complete: list[str]) -> None:
        """A rollback ended well, to `version`; the rest is what there was before."""
        happened["returned" if version else "nothing to return to"] += 1
        if self.interrupted:
            assert version == self.interrupted, "a rollback that was interrupted turned round"
            happened["went on"] += 1
        self.interrupted = ""
        if version:
            assert {(version, one) for one in REPLICAS} <= served, "it never served on all replicas"
            assert self.world.present() == self.world.planned[version], "a rollback mixed versions"
        else:
            now = self.world.present(running=False)
            others = [one for one in complete if self.world.planned[one] != now]
            assert not others, "a version that served on all replicas is lost"

    @invariant()
    def all_ranks_of_a_replica_run_one_generation(self) -> None:
        for replica in REPLICAS:
            running = self.world.all_running(replica)
            assert len({one.generation for one in running}) <= 1, (
                "ranks of different generations run together"
            )
            assert len({one.rank for one in running}) == len(running), "a rank runs twice"


def run_histories(count: int, numbers: Iterable[int]) -> None:
    """Run `count` histories for each number, as `histories.run` does."""
    histories.run(GenerationsModel, count, numbers, steps=25)


def _memory() -> str | None:
    """Files without a disk, where the machine has such a folder."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
