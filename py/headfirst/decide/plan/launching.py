"""The ranks of a service: what each container runs, mounts and sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, TypeVar

from headfirst.common import container_names as names
from headfirst.common.errors import InputError
from headfirst.decide.cluster.types import Host, Place, Replica, Service
from headfirst.decide.cluster.values import memory_bytes
from headfirst.decide.containers import blanks
from headfirst.decide.containers.spec import Container, Runtime, docker_run, gpu_options, with_text
from headfirst.decide.engines import access
from headfirst.decide.engines.base import (
    KEY_FILE,
    DummyWeights,
    Engine,
    KvTransfer,
    Launch,
    LaunchRequest,
)
from headfirst.decide.engines.layout import Layout
from headfirst.decide.hardware.gpus import MIB
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.task import Task
from headfirst.decide.plan import overrides, types
from headfirst.decide.plan.compile_cache import compile_caches
from headfirst.decide.plan.host import hardware, network, rank_ports
from headfirst.decide.plan.types import NodeNetwork

_T = TypeVar("_T")
_KILLED_AFTER_S = 10  # of the end of its time, where a rank ignores SIGTERM


@dataclass(frozen=True)
class _RankLaunch:
    """A rank's launch on the host that the inventory names."""

    request: LaunchRequest
    launch: Launch
    place: Place
    network: NodeNetwork


def engine_image(service: Service, engine: Engine) -> str:
    """The image: that of the inventory, or the engine's own; InputError where it has none for the device."""
    return service.settings.engine_image or engine.default_image(service.settings.engine_device)


@dataclass(eq=False)
class Launching:
    """The ranks of one service, to the last flag.

    `adapters` are folders by name, `draft_dir` that of a draft; `arguments` are the user's and those chosen
    for them. `among`: the hosts that exchange the KV cache as `moved` has it, where prefill and decode are
    divided. `shared_bytes`: room in /dev/shm beside shm_size.
    """

    service: Service
    engine: Engine
    checkpoint: Checkpoint
    runtime: Runtime
    layout: Layout
    task: Task
    model_dir: str
    adapters: Mapping[str, str]
    draft_dir: str | None
    remote_code: bool
    arguments: tuple[str, ...]
    among: Sequence[Host] | None = None
    moved: types.PlannedTransfer | None = None
    shared_bytes: int = 0

    def __post_init__(self) -> None:
        service, layout = self.service, self.layout
        self.image = engine_image(service, self.engine)
        # Ranks of this cluster on each host, for the cores that each computes on.
        self._ranks_on: Counter[str] = Counter()
        for replica in service.replicas:
            for host in replica.hosts:
                self._ranks_on[host.name] += max(1, layout.world // len(replica.places))
        self._cores_given: Counter[str] = Counter()
        self._ranks = {replica.index: self._ranks_of(replica) for replica in service.replicas}

    def replica(self, replica: Replica) -> types.PlannedReplica:
        """One replica's nodes."""
        return self._planned(replica, self._ranks[replica.index], self.service.container(replica))

    def rehearsal(self, replica: Replica, dummies: DummyWeights, seconds: int) -> types.PlannedReplica:
        """The same replica with dummy weights, its API on the head's loopback, without adapters and caches.

        Its ranks end after `seconds`, also where nobody stops them.
        """
        name = names.rehearsal(self.service.name, replica.index)
        ranks = []
        for rank in self._ranks[replica.index]:
            request = replace(
                rank.request,
                served_name=names.REHEARSAL,
                listen_address="127.0.0.1",
                config_file=names.engine_config(name),
                adapters={},
                cache_dir=None,  # a rank that is stopped while it compiles would leave half of a file there
                extra_args=(*rank.request.extra_args, *dummies.arguments),
            )
            ranks.append(replace(rank, request=request, launch=self._launch(request, seconds)))
        url = f"http://127.0.0.1:{replica.engine_port}"
        folder = names.rehearsal_folder(name)
        return self._planned(replica, ranks, name, folder).model_copy(update={"engine_url": url})

    def _planned(
        self, replica: Replica, ranks: Sequence[_RankLaunch], container: str, folder: str = ""
    ) -> types.PlannedReplica:
        transfer, divided = ranks[0].request.transfer, self.engine.disaggregation
        caches = self._compile_caches(ranks) if not folder else [None] * len(ranks)
        return types.PlannedReplica(
            index=replica.index,
            role=replica.role,
            transfer_port=replica.transfer_port,
            worker=dict(divided.worker(transfer)) if divided and transfer else {},
            engine_port=replica.engine_port,
            dist_port=replica.dist_port,
            rendezvous_ports=[
                *self.engine.rendezvous_ports(ranks[0].request),
                *self._transfer_ports(replica),
            ],
            engine_url=replica.url,
            nodes=[
                self._node(rank, container, folder).model_copy(update={"compile_cache": cache})
                for rank, cache in zip(ranks, caches, strict=True)
            ],
            secret_env=dict(self.service.secret_env),
        )

    def _compile_caches(self, ranks: Sequence[_RankLaunch]) -> list[types.CompileCache | None]:
        if self.service.settings.engine_cache_dir is not None:
            return [None] * len(ranks)
        gpus = sorted({rank.place.host.gpu or "" for rank in ranks})
        requests = [rank.request for rank in ranks]
        return compile_caches(self.engine, requests, self.image, self.checkpoint.id, *gpus)

    @property
    def programs(self) -> list[str]:
        """The programs that the image must have beside the engine."""
        launches = [rank.launch for ranks in self._ranks.values() for rank in ranks]
        return sorted({program for launch in launches for program in launch.programs})

    @property
    def replaced(self) -> Iterator[str]:
        """Notes on variables of engine_env that the plan sets to something else, or under another name."""
        user_env = {**self.service.settings.engine_env, **self.service.secret_env}
        firsts = [replace(ranks[0].request, extra_env={}) for ranks in self._ranks.values() if user_env]
        envs = [self.engine.launch(request).environment for request in firsts]
        differing = [name for name in user_env if any(env.get(name) != user_env[name] for env in envs)]
        return overrides.notes("engine_env", differing, {KEY_FILE}.union(*envs), self.engine.variable_aliases)

    def scheduled(self, replica: Replica) -> types.Scheduled:
        """The same replica where a scheduler chooses the hosts; all hosts get the same network settings."""
        ranks = self._ranks[replica.index]
        nic, nic_note = _alike("interfaces", [rank.request.nic for rank in ranks])
        hca, hca_note = _alike("RDMA devices", [rank.request.hca for rank in ranks])
        index, index_note = _alike("GID indices", [rank.request.ib_gid_index for rank in ranks])
        address = blanks.mark(blanks.ADDRESS)
        requests = [
            replace(
                rank.request,
                head_address=blanks.mark(blanks.HEAD_ADDRESS),
                address=address,
                listen_address=address,
                config_file=blanks.mark(blanks.CONFIG_FILE),
                nic=nic,
                hca=hca,
                ib_gid_index=index,
            )
            for rank in ranks
        ]
        cuda = self.service.settings.engine_device == "cuda"
        return types.Scheduled(
            gpus=self.layout.world // len(ranks) if cuda else 0,
            nic=nic,
            rdma=any(rank.request.hca for rank in ranks),
            ranks=[_scheduled(self._launch(request)) for request in requests],
            notes=[note for note in (nic_note, hca_note, index_note) if note],
        )

    def _ranks_of(self, replica: Replica) -> list[_RankLaunch]:
        gpus = self.service.settings.engine_device == "cuda"
        meeting = {host.name: host for host in (*replica.hosts, *(self.among or ()))}
        networks = dict(zip(meeting, network.choose(list(meeting.values()), gpus=gpus), strict=True))
        ranks = []
        for rank, place in enumerate(replica.places):
            chosen = networks[place.host.name]
            request = self._request(replica, rank, place, chosen)
            ranks.append(_RankLaunch(request, self._launch(request), place, chosen))
        return ranks

    def _launch(self, request: LaunchRequest, seconds: int | None = None) -> Launch:
        """A secret takes the place of what the engine's adapter would write; it ends after `seconds`."""
        launch, secret = self.engine.launch(request), self.service.secret_env
        plain = {name: text for name, text in launch.environment.items() if name not in secret}
        launch = replace(launch, environment=plain)
        launch = launch if seconds is None else _limited(launch, seconds)
        if self.engine.admin_key_name is None:
            return launch
        return access.checked(launch, request.config_file, {**request.extra_env, **secret})

    def _transfer_ports(self, replica: Replica) -> Sequence[int]:
        """One for each data-parallel group, as vLLM has them."""
        first = replica.transfer_port
        return range(first, first + self.layout.data) if first else ()

    def _transfer(self, replica: Replica) -> KvTransfer | None:
        if replica.role is None or replica.transfer_port is None or self.moved is None:
            return None
        return KvTransfer(replica.role, self.moved.carrier, replica.transfer_port, self.moved.rdma)

    def _request(self, replica: Replica, rank: int, place: Place, chosen: NodeNetwork) -> LaunchRequest:
        settings = self.service.settings
        return LaunchRequest(
            model_dir=self.model_dir,
            served_name=self.service.served_model_name,
            layout=self.layout,
            nodes=len(replica.places),
            rank=rank,
            head_address=replica.head.address,
            dist_port=replica.dist_port,
            address=chosen.host_ip,
            port=replica.engine_port,
            shares_host=replica.dist_port != settings.dist_port,
            listen_address=place.host.address,
            device=settings.engine_device,
            cache_dir=settings.own_cache_dir,
            task=self.task,
            adapters=self.adapters,
            trust_remote_code=self.remote_code,
            checkpoint=self.checkpoint,
            runtime=settings.engine_runtime,
            transfer=self._transfer(replica),
            config_file=names.engine_config(self.service.container(replica)),
            ready_seconds=settings.ready_timeout,
            nic=chosen.nic,
            hca=chosen.hca,
            ib_gid_index=chosen.ib_gid_index,
            cpu_cores=self._cores(place, len(replica.places)) if settings.engine_device == "cpu" else (),
            extra_args=self.arguments,
            extra_env=settings.engine_env,
        )

    def _cores(self, place: Place, nodes: int) -> tuple[str, ...]:
        """The cores of each rank of this place; ranks of other replicas on the host have others."""
        name, here = place.host.name, max(1, self.layout.world // nodes)
        first = self._cores_given[name]
        self._cores_given[name] += here
        return hardware.core_lists(place.host, self._ranks_on[name])[first : first + here]

    def _node(self, rank: _RankLaunch, name: str, folder: str) -> types.Node:
        container = self._container(rank, name, folder)
        return types.Node(
            host=rank.place.host.name,
            address=rank.place.host.address,
            rank=rank.request.rank,
            gpu_devices=None if rank.place.devices is None else list(rank.place.devices),
            network=rank.network,
            more_ports=list(self.engine.more_ports(rank.request)),
            container=container,
            docker_run=docker_run(container, self.runtime),
        )

    def _container(self, rank: _RankLaunch, name: str, folder: str) -> Container:
        """`folder` of the host has its files; "": they are where the container has them."""

        def on_host(file: str) -> str:
            return f"{folder}/{file.rpartition('/')[2]}" if folder else file

        request, launch, place, chosen = rank.request, rank.launch, rank.place, rank.network
        settings = self.service.settings
        cuda = settings.engine_device == "cuda"
        draft = [self.draft_dir] if self.draft_dir else []
        folders = [request.model_dir, *request.adapters.values(), *draft]
        volumes = [f"{folder}:{folder}:ro" for folder in folders]
        # The role `engine` writes the file on the ranks that read it.
        if request.config_file in launch.command:
            volumes.append(f"{on_host(request.config_file)}:{request.config_file}:ro")
        volumes += [f"{on_host(file)}:{file}:ro" for file in launch.files]
        volumes += [f"{request.cache_dir}:{request.cache_dir}"] if request.cache_dir else []
        volumes += settings.engine_volumes
        targets = [PurePosixPath(volume.split(":")[1]) for volume in volumes]
        if twice := next((target for target in targets if targets.count(target) > 1), None):
            raise InputError(
                f"engine_volumes: two folders have the path {twice} in the container",
                where=self.service.given.get("engine_volumes"),
                hint="Mount each at a different path, such as /data/templates:/templates:ro.",
            )
        more: dict[str, Any] = gpu_options(self.runtime, place.devices) if cuda else {}
        more["ulimits"] = {"memlock": -1, "stack": 67108864} if cuda else {}
        # RDMA needs its devices and pinned memory, and nothing more: not --privileged.
        more["devices"] = [*(["/dev/infiniband"] if chosen.hca else []), *more.get("devices", [])]
        return Container(
            name=name,
            image=self.image,
            entrypoint=launch.entrypoint,
            command=launch.command,
            environment=launch.environment,
            env_file=on_host(names.env_file(name)) if self.service.secret_env else None,
            ipc_mode="host",
            cgroup_parent=rank_ports.slice_of(place.host),
            shm_size=_shm_size(settings.shm_size, self.shared_bytes),
            volumes=volumes,
            files={on_host(file): text for file, text in launch.files.items()},
            cap_add=["IPC_LOCK"] if chosen.hca else [],
            # A rank cannot come back alone: the supervisor starts all ranks together.
            restart_policy="no",
            **more,
        )


def _limited(launch: Launch, seconds: int) -> Launch:
    """The launch under `timeout` (coreutils), behind the image's entrypoint where that runs the command."""
    words = [f"--kill-after={_KILLED_AFTER_S}", str(seconds)]
    if launch.entrypoint is None:
        return replace(launch, command=["timeout", *words, *launch.command])
    return replace(launch, entrypoint="timeout", command=[*words, launch.entrypoint, *launch.command])


def _shm_size(text: str, more: int) -> str:
    """A size of shared memory with `more` bytes, as Docker takes it."""
    return f"{-(-(memory_bytes(text) + more) // MIB)}m" if more else text


def _alike(what: str, values: Sequence[_T]) -> tuple[_T | None, str]:
    """The value of all hosts, and "" or why none is set."""
    different = list(dict.fromkeys(values))
    if len(different) == 1:
        return different[0], ""
    listed = ", ".join(str(value) for value in different)
    return None, f"The hosts of the inventory have different {what} ({listed}): the engine and NCCL choose."


def _scheduled(launch: Launch) -> types.ScheduledRank:
    return types.ScheduledRank(
        entrypoint=launch.entrypoint,
        command=[blanks.parse(word) for word in with_text(launch.command, launch.files)],
        environment=blanks.parsed(launch.environment),
    )
