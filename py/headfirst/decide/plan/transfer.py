"""The KV cache on its way from prefill to decode replicas: what carries it, what it weighs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from headfirst.common.errors import InputError
from headfirst.decide import engines
from headfirst.decide.cluster.types import Host, Service
from headfirst.decide.engines import nccl
from headfirst.decide.engines.base import Engine, RoleLayout
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.task import GENERATING
from headfirst.decide.plan.host import network, rdma
from headfirst.decide.plan.pool import Pool
from headfirst.decide.plan.types import PlannedTransfer, Sized
from headfirst.decide.plan.weights.duration import link

# Prompts whose transfer the plan prints, in tokens.
_PROMPTS = (1_000, 8_000)
_ASSUMED_GBIT = 100.0  # of an RDMA device that the inventory names and nobody has read
_PAYS = (
    "Dividing prefill and decode helps if prompts are long, requests overlap, and the time between tokens "
    "matters: a prompt then interrupts no answer. With short prompts, or few requests at a time, undivided "
    "replicas on the same GPUs are as fast."
)


def plan(
    service: Service, engine: Engine, checkpoint: Checkpoint, prefill: Pool, decode: Pool
) -> PlannedTransfer:
    """InputError where the two cannot exchange the KV cache."""
    settings, where = service.settings, service.given.get("prefill_replicas")
    divided = engine.disaggregation
    if divided is None:
        raise InputError(
            f"{engine.title} {engine.version} does not divide prefill and decode behind the router",
            where=where,
            hint=f"Write {_dividing()}, or replicas instead of prefill_replicas and decode_replicas.",
        )
    if decode.task not in GENERATING:
        raise InputError(
            f"a model for {decode.task} has no decode: it generates no tokens",
            where=where,
            hint="Write replicas instead of prefill_replicas and decode_replicas.",
        )
    carrier = settings.kv_transfer or divided.carriers[0]
    if carrier not in divided.carriers:
        raise InputError(
            f"kv_transfer={carrier} is not supported with {engine.title}",
            where=service.given.get("kv_transfer"),
            hint=f"Write kv_transfer={' or '.join(divided.carriers)}, or leave it out.",
        )
    problems = _problems(prefill, decode)
    problems += divided.problems(
        checkpoint, RoleLayout(prefill.layout, prefill.values), RoleLayout(decode.layout, decode.values)
    )
    if problems:
        raise InputError(
            f"{engine.title} {engine.version} cannot divide prefill and decode: {'; '.join(problems)}.",
            where=where,
            hint="Change these, or write replicas instead of prefill_replicas and decode_replicas.",
        )
    size = _bytes_per_token(decode.sized)
    return PlannedTransfer(
        carrier=carrier,
        rdma=settings.engine_device == "cuda" and network.rdma_between(service.hosts, gpus=True),
        one_host=_is_one(service.hosts),
        bytes_per_token=size,
        reasons=[_traffic(service.hosts, size), _PAYS],
    )


def _dividing() -> str:
    able = [name for name in engines.names() if engines.get(name).disaggregation]
    return " or ".join(f"engine={name}" for name in able)


def _problems(prefill: Pool, decode: Pool) -> list[str]:
    """What no engine can do."""
    problems = []
    if prefill.precision.convert_to_bf16 != decode.precision.convert_to_bf16:
        problems.append("the GPUs of one side serve the FP8 checkpoint, and those of the other one need BF16")
    elif prefill.loaded.dtype != decode.loaded.dtype:
        problems.append(
            f"the prefill replicas compute in {prefill.loaded.dtype.upper()}, the decode replicas in "
            f"{decode.loaded.dtype.upper()}"
        )
    return problems


def _bytes_per_token(decode: Sized) -> int | None:
    """What a decode replica receives: each rank of a request's attention group reads its part."""
    ranks = decode.tensor_parallel // decode.attention_data_parallel * decode.pipeline_parallel
    return decode.fit.kv_bytes_per_token * ranks if decode.fit.gpu_memory_bytes else None


def _is_one(hosts: Sequence[Host]) -> bool:
    return len({host.name for host in hosts}) == 1


def _traffic(hosts: Sequence[Host], size: int | None) -> str:
    """The bytes of a prompt, against the slowest link."""
    if _is_one(hosts):
        return "The KV cache of a prompt stays on its host."
    rate, text = _link(hosts)
    if size is None:
        return f"The KV cache of each prompt is sent over {text}."
    examples = [f"{tokens:,} tokens {_amount(size * tokens, rate)}" for tokens in _PROMPTS]
    return (
        f"The KV cache of each prompt is sent over {text}: {', '.join(examples)}, "
        "in addition to the time for the prompt."
    )


def _amount(size: int, rate: float) -> str:
    seconds = size / rate
    time = f"{_rounded(seconds)} s" if seconds >= 1 else f"{_rounded(seconds * 1000)} ms"
    return f"({size / 10**6:,.0f} MB) in {time}"


def _rounded(value: float) -> str:
    """To two digits, or to an integer."""
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def _link(hosts: Sequence[Host]) -> tuple[float, str]:
    """The slowest host's link in bytes a second: its RDMA ports together, or its interface."""
    networks = network.choose(hosts, gpus=True)
    pairs = [(host.network, choice.hca) for host, choice in zip(hosts, networks, strict=True)]
    rates = [
        rdma.gbit(facts, hca) if facts or not hca else _ASSUMED_GBIT * max(1, len(nccl.rdma_devices(hca)))
        for facts, hca in pairs
    ]
    if slowest := min(rates):
        known = pairs[rates.index(slowest)][0]
        return slowest * 10**9 / 8, f"RDMA at {slowest:.3g} Gbit/s{'' if known else ' (assumed)'}"
    nic = link(hosts)
    assumed = " (assumed)" if nic.known == "assumed" else ""
    return nic.bytes_per_second, f"the network at {nic.text}{assumed}"
