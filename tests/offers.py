"""Offers of `deploy models` and advice of `deploy plan`, planned as they are printed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from headfirst.common.errors import InputError
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.verbs.models import models
from headfirst.decide.plan.types import PlannedService

# GPU, nodes, GPUs of each.
FLEETS = {
    "2x4090": ("RTX4090", 1, 2),
    "8xH100": ("H100-80G", 1, 8),
    "2x8xH100": ("H100-80G", 2, 8),
    "8xH200": ("H200-141G", 1, 8),
    "1xA10": ("A10", 1, 1),
    "8xA100": ("A100-80G", 1, 8),
    "2xT4": ("T4", 1, 2),  # without BF16
}
# Fleets on which many models do not fit, or fit in few layouts.
ODD_FLEETS = {
    "3x8xA100-40G": ("A100-40G", 3, 8),
    "6xL40S": ("L40S", 1, 6),
    "2x4x4090": ("RTX-4090", 2, 4),
    "1xT4": ("T4", 1, 1),
    "4x8xH100": ("H100-80G", 4, 8),
    "3xA100": ("A100-80G", 1, 3),
}
_SETTING = re.compile(r"""\b([a-z_]+)=("[^"]*"|[^\s,:;()]*)""")
_GPUS = re.compile(r"(?:(\d+) nodes with )?(\d+) × ")


def inventory(path: Path, gpu: str, nodes: int, gpus: int) -> Path:
    """Write hosts without a model."""
    workers = "".join(f"n{number} ansible_host=192.0.2.{number}\n" for number in range(2, nodes + 1))
    path.write_text(
        f"[head]\nn1 ansible_host=192.0.2.1\n[workers]\n{workers}"
        f"[all:vars]\ngpu={gpu}\ngpus={gpus}\nnic=eth0\nhca=none\n"
    )
    return path


def check(path: Path, fleet: tuple[str, int, int], engine: str, *, most: int | None = None) -> None:
    """Plan the lines of the offers, the first `most` of them; HF_HUB_OFFLINE is set."""
    hosts = inventory(path, *fleet).read_text()
    survey = models([path], [], task=None, engine=engine, probe=False)
    assert survey.offers
    for offer in survey.offers[:most]:
        path.write_text(hosts + "\n".join(offer.lines) + "\n")
        planned = prepare([path], [], probe=False).plan.services[0]
        assert planned.fit.fits, offer.lines
        assert len(planned.replicas) == offer.replicas
        assert planned.fit.kv_tokens_of_replica == offer.kv_tokens, offer.lines


def check_advice(path: Path, fleet: tuple[str, int, int], variables: Mapping[str, str]) -> list[str]:
    """Plan what the plan of these variables proposes; HF_HUB_OFFLINE is set. Returns what was proposed.

    Where no layout uses all GPUs, those that the refusal names are planned, with their advice.
    """
    try:
        return _check_lines(path, fleet, variables, _planned(path, fleet, variables))
    except InputError as refused:
        lines = _lines(refused.hint or "")
        if not lines:
            raise
    checked = []
    for name, value in lines:
        settings = {**variables, name: value}
        checked += [f"{name}={value}", *_check_lines(path, fleet, settings, _accepted(path, fleet, settings))]
    return checked


def _lines(hint: str) -> list[tuple[str, str]]:
    """Names and values of the layouts that a hint proposes, each of them alone."""
    sizes = re.search(r"tensor_parallel can be ([\d, ]+)\.", hint)
    replicas = re.search(r"replicas=(\d+)", hint)
    return [
        *(("tensor_parallel", size) for size in (sizes[1].split(", ") if sizes else [])),
        *([("replicas", replicas[1])] if replicas else []),
    ]


def _check_lines(
    path: Path, fleet: tuple[str, int, int], variables: Mapping[str, str], service: PlannedService
) -> list[str]:
    gpu, nodes, gpus = fleet
    advice = [*service.alternatives, *(line for line in service.layouts_rejected if "replicas=" in line)]
    for sentence in advice:
        more = _GPUS.match(sentence)
        hosts = (gpu, max(nodes, int(more[1] or 1)), max(gpus, int(more[2]))) if more else fleet
        planned = _accepted(path, hosts, {**variables, **dict(_SETTING.findall(sentence))})
        tokens = planned.fit.kv_tokens_of_replica or 0
        figure = re.search(r"([\d,]+) tokens (of KV cache|in all)", sentence)
        assert planned.fit.fits, (sentence, planned.fit.reason)
        assert figure, sentence
        count = len(planned.replicas) if figure[2] == "in all" else 1
        assert figure[1] == f"{tokens * count:,}", (sentence, tokens)
    return advice


def _accepted(path: Path, fleet: tuple[str, int, int], variables: Mapping[str, str]) -> PlannedService:
    """The plan of variables that were printed: a refusal fails."""
    try:
        return _planned(path, fleet, variables)
    except InputError as refused:
        raise AssertionError(f"{variables}: {refused}") from refused


def _planned(path: Path, fleet: tuple[str, int, int], variables: Mapping[str, str]) -> PlannedService:
    hosts = inventory(path, *fleet).read_text()
    path.write_text(hosts + "".join(f"{name}={value}\n" for name, value in variables.items()))
    return prepare([path], [], probe=False).plan.services[0]
