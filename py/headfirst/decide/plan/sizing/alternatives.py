"""What would work where a model does not fit: another precision, more GPUs, a smaller model. Pure.

Each sentence has the figures of the plan that it leads to.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from headfirst.common import quantization
from headfirst.common.errors import InputError
from headfirst.decide import engines
from headfirst.decide.cluster.settings import Role
from headfirst.decide.engines import arguments, presets
from headfirst.decide.engines.base import Engine, Values
from headfirst.decide.engines.layout import Machines
from headfirst.decide.model import catalogue, families
from headfirst.decide.model.checkpoint import FLOATS, Checkpoint
from headfirst.decide.model.parameters import parameters
from headfirst.decide.plan.host import hardware, network
from headfirst.decide.plan.sizing import parallel
from headfirst.decide.plan.sizing.models import lines
from headfirst.decide.plan.sizing.sizes import Copies, Fleet
from headfirst.decide.plan.trial import ServiceTrial
from headfirst.decide.plan.types import Fit, PlannedService
from headfirst.decide.plan.weights import precision

# What publishers append to a model's name beside a scheme's name: Qwen3-32B-AWQ, Llama-3.1-8B-quantized.w8a8.
_SUFFIXES = r"fp4|w\d+a\d+|quantized|bf16|fp16|dynamic|kv|v2|block|channel"
_MOST = 3  # sentences of a kind
_SHORTEST = 8192  # tokens of a request; a plan for shorter ones is no advice
_SMALLER = 0.9  # of the parameters
_MODEL = ("model", "model_source", "model_revision")  # settings
_NODES_EACH = (2, 3, 4, 6, 8)  # of a prefill or decode replica


@dataclass(frozen=True)
class TriedPlan:
    """A plan that was tried: what the inventory sets for it, and its memory."""

    settings: Mapping[str, object]
    fit: Fit

    @property
    def tokens(self) -> int:
        """Of the KV caches of a replica."""
        return self.fit.kv_tokens_of_replica or 0

    @property
    def longest(self) -> int:
        """Tokens of a request."""
        return self.fit.longest_request or 0

    def sentence(self, consequence: str) -> str:
        """That the settings fit, and what they lead to: a clause."""
        return f"{_listed(self.settings)} fits, with {self.tokens:,} tokens of KV cache: {consequence}."

    def named(self, *names: str) -> str:
        """These settings, as an inventory has them."""
        return _listed({name: value for name, value in self.settings.items() if name in names})

    def rest(self, *named: str) -> str:
        """The end of a sentence: the other settings, and the KV cache."""
        rest = {name: value for name, value in self.settings.items() if name not in named}
        each = " in each replica" if "replicas" in rest else ""
        return (f" with {_listed(rest)}" if rest else "") + f": {self.tokens:,} tokens of KV cache{each}."


def _listed(settings: Mapping[str, object]) -> str:
    *before, last = lines(settings)
    return f"{', '.join(before)} and {last}" if before else last


@dataclass(frozen=True)
class Attempt:
    """A plan to which there may be a better one: the checkpoint, and the service.

    `fleet` are the GPUs of a replica. `longest` are the tokens of the longest request; 0 where the model does
    not fit. `shorter`: the argument with which it does, where requests are too long (Fit.shorter).
    """

    checkpoint: Checkpoint
    fleet: Fleet
    engine: Engine
    trial: ServiceTrial
    longest: int = 0
    shorter: Sequence[str] = ()

    @cached_property
    def arguments(self) -> Sequence[str]:
        """Those of the user."""
        settings, role = self.trial.settings, self.trial.role
        return (settings.of_role(role) if role else settings).engine_args

    @cached_property
    def values(self) -> Values:
        """What they set."""
        return self.engine.check_arguments(self.arguments).values

    @cached_property
    def divisible(self) -> bool:
        """Whether several replicas may share these GPUs: nothing in the inventory divides them."""
        settings = self.trial.settings
        divided = settings.replicas or settings.gpus_per_replica or settings.gpu_devices
        return not (divided or self.trial.role)

    def copies(self, checkpoint: Checkpoint, words: Sequence[str] = ()) -> Copies | None:
        """The copies of a checkpoint with the user's arguments and these; None where it is not served."""
        values = self.engine.check_arguments([*self.arguments, *words]).values
        try:
            _, loaded = precision.served(checkpoint, self.fleet.gpu, self.engine, values)
        except InputError:
            return None
        preset = self.trial.settings.preset
        return Copies(loaded.checkpoint, self.fleet, self.engine, loaded.dtype, preset, values)

    def result(
        self, checkpoint: Checkpoint, settings: Mapping[str, object], machines: Machines | None = None
    ) -> TriedPlan | None:
        """The plan of these settings; None where it is refused or holds no longer request."""
        try:
            result = TriedPlan(*self.trial.starting(checkpoint, settings, machines))
        except InputError:
            return None
        shortest = min(_SHORTEST, result.fit.context)
        return result if result.longest >= shortest and result.longest > self.longest else None

    def on_these(
        self, checkpoint: Checkpoint, settings: Mapping[str, object], words: Sequence[str] = ()
    ) -> TriedPlan | None:
        """The same on the GPUs of the fleet, with the sizes that suit them, and with further arguments.

        Of prefill and decode replicas each keeps its GPUs, and both get the arguments.
        """
        if self.trial.role:
            both = shlex.join([*self.trial.settings.engine_args, *words])
            return self.result(checkpoint, {**settings, **({"engine_args": both} if words else {})})
        copies = self.copies(checkpoint, words)
        if copies is None:
            return None
        settings = {**settings, **(self.with_words(words) if words else {})}
        whole = copies.on(Machines(self.fleet.nodes, self.fleet.gpus_per_node))
        for copy in (copies.best() if self.divisible else None, whole):
            replicas = copy.replicas(self.fleet) if copy and self.divisible else None
            if copy and (result := self.result(checkpoint, {**settings, **copy.settings(replicas)})):
                return result
        return None

    def with_words(self, words: Sequence[str]) -> dict[str, object]:
        """The user's arguments and these, which replace those that set the same."""
        name, new = self.trial.words, self.engine.check_arguments(words).values
        divided = arguments.each(getattr(self.trial.settings, name))
        previous = (argument for argument in divided if not self.engine.sets(argument, new))
        return {name: shlex.join([*chain(*previous), *words])}


def advised(planned: PlannedService, checkpoint: Checkpoint, trial: ServiceTrial) -> PlannedService:
    """The plan of a service with what would work better; where prefill and decode are divided, of the side
    that holds less."""
    role = planned.smallest_role
    trial, sized = replace(trial, role=role), planned.prefill if role == "prefill" else planned
    assert sized is not None  # noqa: S101 - it is one of the two
    service = trial.cluster.services[trial.at].of_role(role)
    gpu = hardware.gpu(service, "")
    if gpu is None:
        return planned
    machines = hardware.machines(service, "")
    rdma = network.rdma_between(service.replicas[0].hosts, gpus=True)
    fleet = Fleet(gpu, machines.nodes, machines.ranks_per_node or 1, rdma)
    engine, _ = engines.of_service(service)
    longest = (sized.fit.longest_request or 0) if sized.fit.fits else 0
    attempt = Attempt(checkpoint, fleet, engine, trial, longest, sized.fit.shorter)
    sentences: list[str] = []
    if not sized.fit.fits:
        known = (other for id in catalogue.ids() if (other := catalogue.lookup(id)))
        sentences = alternatives(attempt, known)
    elif longest < parallel.enough(sized.fit.context):
        sentences = [*_fewer_slots(attempt), *smaller_reserve(attempt)]
    replicas = _replicas_rejected(attempt) if planned.data_parallel == 1 and role is None else []
    rejected = [*planned.layouts_rejected, *replicas]
    return planned.model_copy(update={"alternatives": sentences, "layouts_rejected": rejected})


def _replicas_rejected(attempt: Attempt) -> list[str]:
    """Why the layout has one replica, where the GPUs hold several and neither sizes nor replicas are set."""
    if not attempt.divisible or attempt.trial.settings.tensor_parallel:
        return []
    copies = attempt.copies(attempt.checkpoint)
    copy = copies.best() if copies else None
    if copy is None or (count := attempt.fleet.count(copy.machines)) == 1:
        return []
    chosen = {"replicas": count, "gpus_per_replica": copy.machines.gpus}
    try:
        settings, fit = attempt.trial.starting(attempt.checkpoint, chosen)
    except InputError:
        return []
    others = {name: value for name, value in settings.items() if name != "replicas"}
    return [
        f"The GPUs can hold {count} replicas; without replicas= in the inventory there is one. "
        f"replicas={count} with {_listed(others)} serves more requests at a time, each of them slower, with "
        f"{count * (fit.kv_tokens_of_replica or 0):,} tokens in all."
    ]


def alternatives(attempt: Attempt, others: Iterable[Checkpoint]) -> list[str]:
    """Sentences, the one that changes least first; empty where nothing is known to work better.

    `others` are the checkpoints that may be proposed.
    """
    known = [other for other in others if other.id.lower() != attempt.checkpoint.id.lower()]
    return [
        *_fewer_slots(attempt),
        *_without_draft(attempt),
        *_shorter_requests(attempt),
        *smaller_reserve(attempt),
        *_other_precisions(attempt, known),
        *_quantised_on_load(attempt),
        *(_more_gpus_of_role(attempt, attempt.trial.role) if attempt.trial.role else _more_gpus(attempt)),
        *_smaller(attempt, known),
    ]


def _without_draft(attempt: Attempt) -> list[str]:
    """The model alone, where a draft takes the room."""
    settings = {"draft_model": None, "draft_model_revision": None}
    if not attempt.trial.settings.draft_model:
        return []
    result = attempt.result(attempt.checkpoint, settings)
    return [f"It fits without draft_model{result.rest(*settings)}"] if result else []


def _fewer_slots(attempt: Attempt) -> list[str]:
    """Buffers for fewer adapters at a time: as many as the inventory has, else as many as fit."""
    slots, adapters = attempt.engine.adapter_slots, len(attempt.trial.settings.adapters)
    if slots is None or not adapters:
        return []
    names = attempt.engine.check_arguments([slots.flag, "1"]).values
    current = next((int(attempt.values[name]) for name in names if name in attempt.values), slots.default)
    for count in range(min(current - 1, adapters + slots.base), 0, -1):
        result = attempt.result(attempt.checkpoint, attempt.with_words([slots.flag, str(count)]))
        if result:
            base = "; requests without one count as one" if slots.base else ""
            adapter = f"{count} adapter{'s' if count > 1 else ''}"
            return [result.sentence(f"requests of at most {adapter} run at a time{base}")]
    return []


def _shorter_requests(attempt: Attempt) -> list[str]:
    """The longest request that fits, where the engine ends at start with the one that is allowed."""
    words = attempt.shorter
    result = attempt.result(attempt.checkpoint, attempt.with_words(words)) if words else None
    return [result.sentence(f"a request has at most {result.longest:,} tokens")] if result else []


def smaller_reserve(attempt: Attempt) -> list[str]:
    """Arguments of the engine with which more memory is for weights and KV cache."""
    best: TriedPlan | None = None
    cost = ""
    for step in presets.of(attempt.engine.name).smaller_reserves:
        words = presets.words(step.arguments)
        if attempt.engine.sets(words, attempt.values):
            continue
        result = attempt.result(attempt.checkpoint, attempt.with_words(words))
        if result and (best is None or result.longest > best.longest):
            best, cost = result, step.cost
        if best and best.longest >= parallel.enough(best.fit.context):
            break
    return [best.sentence(cost)] if best else []


def _more_gpus(attempt: Attempt) -> list[str]:
    """The fewest GPUs of this kind that hold a copy: in the one node that there is, else in more nodes."""
    fleet, hosts = attempt.fleet, attempt.trial.groups[attempt.trial.at].hosts
    every = Fleet(fleet.gpu, len(hosts), min(host.gpus or 0 for host in hosts))
    copies = attempt.copies(attempt.checkpoint)
    for copy in copies.on_more_gpus(every.gpus_per_node) if copies else ():
        machines, count = copy.machines, every.count(copy.machines)
        replicas = None if attempt.divisible else count or max(1, len(hosts) // machines.nodes)
        settings = copy.settings(replicas)
        if result := attempt.result(attempt.checkpoint, settings, None if count else machines):
            what = f"{machines.gpus} × {fleet.gpu.name} in the node"
            if machines.nodes > 1:
                what = f"{machines.nodes} nodes with {machines.ranks_per_node} × {fleet.gpu.name} each"
            return [f"{what} hold it{result.rest()}"]
    return []


def _more_gpus_of_role(attempt: Attempt, role: Role) -> list[str]:
    """The fewest GPUs that hold a prefill or decode replica beside the others, else more hosts."""
    trial, fleet = attempt.trial, attempt.fleet
    service, group = trial.cluster.services[trial.at], trial.groups[trial.at]
    other: Role = "decode" if role == "prefill" else "prefill"
    counts = {name: len(service.of_role(name).replicas) for name in (role, other)}
    of_host = min(host.gpus or 0 for host in group.hosts)
    total = of_host * len(group.hosts)
    beside = hardware.machines(service.of_role(other), "").gpus or 0
    sizes: dict[str, object] = {}
    for gpus in range(fleet.nodes * fleet.gpus_per_node + 1, total // counts[role] + 1):
        rest = (total - gpus * counts[role]) // counts[other]
        if gpus > of_host and gpus % of_host:
            continue
        if trial.settings.of_role(role).tensor_parallel:
            sizes = {f"{role}_tensor_parallel": gpus, f"{role}_pipeline_parallel": 1}
        for others in dict.fromkeys((min(beside, rest), rest)):
            settings = {f"{role}_gpus_per_replica": gpus, f"{other}_gpus_per_replica": others, **sizes}
            if others and (result := attempt.result(attempt.checkpoint, settings)):
                return [f"{gpus} × {fleet.gpu.name} hold a {role} replica{result.rest()}"]
    if any(group.role_hosts.values()) or any(
        service.of_role(name).settings.gpus_per_replica for name in counts
    ):
        return []
    for nodes in (nodes for nodes in _NODES_EACH if nodes > fleet.nodes):
        if result := attempt.result(attempt.checkpoint, {}, Machines(nodes, of_host)):
            what = f"{nodes * sum(counts.values())} nodes with {of_host} × {fleet.gpu.name} each"
            return [f"{what}, {nodes} for a replica, hold it{result.rest()}"]
    return []


def base_name(id: str) -> str:
    """The model's name without publisher and precision: the same for all checkpoints of one model."""
    precision = rf"[-_.](?:{'|'.join(map(re.escape, quantization.names()))}|{_SUFFIXES})(?=[-_.]|$)"
    return re.sub(precision, "", id.rstrip("/").rpartition("/")[2].lower().removeprefix("meta-"))


def _other_precisions(attempt: Attempt, known: Sequence[Checkpoint]) -> list[str]:
    """Published checkpoints of the same model that fit, the largest first."""
    name = base_name(attempt.checkpoint.id)
    fitting = _fitting(attempt, (other for other in known if base_name(other.id) == name))
    fitting.sort(key=lambda pair: -pair[0].total_bytes)
    return [
        f"{result.named(*_MODEL)} is the same model in {precision.title(other)} and "
        f"fits{result.rest(*_MODEL)}"
        for other, result in fitting[:_MOST]
    ]


def _quantised_on_load(attempt: Attempt) -> list[str]:
    checkpoint, engine, gpu = attempt.checkpoint, attempt.engine, attempt.fleet.gpu
    if checkpoint.dtype not in FLOATS or "quantization" in attempt.values:
        return []
    advice = []
    for way in presets.of(engine.name).quantize_on_load:
        words = presets.words(way.arguments)
        if gpu.reaches(way.capability) and (result := attempt.on_these(checkpoint, {}, words)):
            advice.append(
                f"{result.named('engine_args')} converts it to {way.dtype.upper()} while it loads, which "
                f"fits{result.rest('engine_args')}"
            )
    return advice


def _smaller(attempt: Attempt, known: Sequence[Checkpoint]) -> list[str]:
    """The other model of the same family with the most parameters that fits, and fewer than this one; of
    its precisions one that holds a long request. None beside adapters and drafts, which are of this model."""
    checkpoint, family = attempt.checkpoint, families.find(attempt.checkpoint)
    settings = attempt.trial.settings
    if family is None or settings.adapters or settings.draft_model:
        return []
    name, size = base_name(checkpoint.id), parameters(checkpoint)
    relatives = [
        other
        for other in known
        if base_name(other.id) != name
        and parameters(other) < _SMALLER * size
        and (relative := families.find(other)) is not None
        and relative.name == family.name
    ]
    fitting = _fitting(attempt, relatives)
    if not fitting:
        return []
    most = max(parameters(other) for other, _ in fitting)
    _, result = max(
        (pair for pair in fitting if parameters(pair[0]) >= _SMALLER * most),
        key=lambda pair: (pair[1].longest >= parallel.enough(pair[1].fit.context), pair[0].total_bytes),
    )
    return [f"{result.named(*_MODEL)} is a smaller model of the same family and fits{result.rest(*_MODEL)}"]


def _fitting(attempt: Attempt, known: Iterable[Checkpoint]) -> list[tuple[Checkpoint, TriedPlan]]:
    """Those that the GPUs serve, with a longer request than this plan."""
    rest = attempt.trial.other_model
    tried = ((other, attempt.on_these(other, {"model": other.id, **rest})) for other in known)
    return [(other, result) for other, result in tried if result]


def role_hint(role: Role) -> str:
    """The settings to change where the model does not fit into the GPUs of these replicas."""
    return (
        f"Give them more GPUs ({role}_gpus_per_replica, or hosts in [{role}]), or change "
        f"{role}_tensor_parallel, {role}_engine_args or the model."
    )


def unfit_hint(sentences: Sequence[str], role: Role | None = None) -> str:
    """What to type next where the model cannot be served as asked, by the replicas of a role or by all."""
    nothing = role_hint(role) if role else "No other precision or number of nodes fits."
    listed = sentences or [nothing]
    verbs = "`deploy models` lists what these GPUs can serve; `deploy plan` shows the memory of a GPU."
    return "\n".join([*listed, verbs])
