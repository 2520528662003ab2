"""A plan, the history of its cluster and measurements → the data of a report. Pure."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pydantic import ValidationError

from headfirst.control.bench.result import BenchResult
from headfirst.control.report.topology import topology
from headfirst.control.report.types import (
    Checked,
    ClusterReport,
    CommResult,
    Missing,
    Own,
    PlannedImage,
    ReportedChoice,
    ReportedRank,
    ServiceReport,
)
from headfirst.control.run.amounts import duration, size
from headfirst.control.run.history import RunHistory
from headfirst.decide import engines
from headfirst.decide.plan import capabilities
from headfirst.decide.plan.front import proxy
from headfirst.decide.plan.types import Node, Plan, PlannedReplica, PlannedService

MOST_RUNS, MOST_RESULTS = 15, 5
_YES = {True: "yes", False: "no"}
_SHORT = ("max_tokens", "temperature")  # of a probe, whose answer nobody reads


def build(
    plan: Plan,
    history: RunHistory,
    results: Sequence[BenchResult],
    release: Own,
    answers: Mapping[str, str],
    *,
    made_at: str,
    inventory: str,
) -> ClusterReport:
    """The report; `inventory` is the name in the commands that record what is missing, and `answers` are
    those of the addresses of APIs."""
    check, comm = _check(history), _comm(history)
    grafana = plan.monitoring.grafana_url if plan.monitoring else None
    links = {"Chat page": proxy.page(plan), "Grafana": grafana}
    runs = [run.model_copy(update={"findings": None, "comm": None}) for run in history.runs[-MOST_RUNS:]]
    records = {
        "results of the checks of the hosts": (check, "check {}"),
        "results of a test of the ranks' communication": (comm, "check {} --comm"),
        "timings of runs": (runs, "up {}"),
        "measurements of throughput and latencies": (results, "bench {}"),
        "digests of the images that run": (history.images, "status {}"),
    }
    return ClusterReport(
        made_at=made_at,
        cluster=plan.cluster,
        headfirst=release,
        verdict=plan.verdict,
        warnings=list(dict.fromkeys(ports.reason for ports in plan.rank_ports if ports.exposed)),
        links={name: url for name, url in links.items() if url},
        topology=topology(plan),
        services=[_service(plan, service, answers, history) for service in plan.services],
        notes=plan.notes,
        planned_images=list(_images(plan)),
        images=history.images,
        check=check,
        comm=comm,
        runs=runs[::-1],
        bench=sorted(results, key=lambda result: result.date, reverse=True)[:MOST_RESULTS],
        missing=[
            Missing(what=what, command=f"deploy {command.format(inventory)}")
            for what, (value, command) in records.items()
            if not value
        ],
    )


def _check(history: RunHistory) -> Checked | None:
    for run in reversed(history.runs):
        if run.findings is not None:
            return Checked(at=run.at, verb=run.kind.verb, findings=run.findings)
    return None


def _comm(history: RunHistory) -> CommResult | None:
    for run in reversed(history.runs):
        if run.comm is not None:
            try:
                return CommResult.model_validate({**run.comm, "at": run.at})
            except ValidationError:  # of another version of Headfirst
                continue
    return None


def _curl(service: PlannedService, api: str) -> str:
    """A request that a person can paste; "" for a task whose requests are outside /v1."""
    probe = engines.get(service.engine, service.engine_version).readiness(service.task)
    if not probe.probe_path.startswith("/v1/"):
        return ""
    asked = {name: value for name, value in probe.probe_body.items() if name not in _SHORT}
    body = json.dumps({"model": service.served_model_name, **asked})
    words = [f"{api}{probe.probe_path.removeprefix('/v1')}", "-H", "Content-Type: application/json"]
    return f'curl {shlex.join(words)} -H "Authorization: Bearer $API_KEY" -d {shlex.quote(body)}'


def _service(
    plan: Plan, service: PlannedService, answers: Mapping[str, str], history: RunHistory
) -> ServiceReport:
    title = str(service)
    measured = [run.measured[title].sentence for run in history.runs if title in run.measured]
    fit, api = service.fit, proxy.api(plan, service)
    memory = [("memory of a GPU", fit.gpu_memory_bytes), ("weights", fit.weight_bytes_per_rank)]
    memory += [(fit.title(term), value) for term, value in fit.terms.items()]
    memory.append(("KV cache", fit.kv_pool_bytes))
    return ServiceReport(
        title=title,
        model=service.served_model_name,
        api=api,
        live=[f"{url} {answers[url]}" for url in api if url in answers],
        curl=_curl(service, api[0]),
        features=capabilities.sentence(service.capabilities),
        measured=(measured or [""])[-1],
        choices=list(_choices(service)),
        memory=[(term, value) for term, value in memory if value is not None],
        ranks=[_rank(service, replica, node) for replica, node in service.ranks],
        command=service.replicas[0].nodes[0].container.command,
        not_chosen=service.arguments_left_out,
        alternatives=service.alternatives,
        warnings=service.warnings,
        notes=service.notes,
    )


def _choices(service: PlannedService) -> Iterator[ReportedChoice]:
    weights = service.weights
    yield _choice(
        "model",
        f"{service.model} as {service.served_model_name}",
        f"described by {service.model_described_by}",
    )
    yield _choice(
        "engine",
        f"{service.engine} {service.engine_version}",
        f"described by {service.engine_described_by}",
    )
    for sized, replicas in service.pools:
        of = f"{replicas[0].role}: " if replicas[0].role else ""
        layout = f"{len(replicas)} × ({sized.layout}) on {service.device}, {service.task}"
        yield _choice(f"{of}layout", layout, " ".join([sized.layout_reason, *sized.layouts_rejected]))
        fits = {True: "fits", False: "does not fit", None: "not known"}[sized.fit.fits]
        fits = "fits if the estimates hold" if sized.fit.uncertain else fits
        yield _choice(f"{of}memory", fits, sized.fit.reason)
        if fraction := sized.fit.memory_fraction:
            whose = "as set" if fraction.is_set else "the engine's own"
            yield _choice(f"{of}memory fraction", f"{fraction.value:.3f}", f"{fraction.flag}, {whose}")
    if service.transfer:
        yield _choice("KV cache between them", service.transfer.way, " ".join(service.transfer.reasons))
    yield _choice("conversion to BF16", _YES[service.convert_to_bf16], service.convert_reason)
    yield _choice("code of the model's repository", _YES[service.trust_remote_code], service.trust_reason)
    brought = f"{size(weights.source_bytes)} from {weights.source} to {weights.directory}"
    yield _choice("weights", brought, weights.placement_reason)
    yield _choice("page cache", weights.warm_cache, weights.warm_reason)
    one_by_one = f"one step and one node at a time: {duration(weights.time.documented_seconds)}"
    yield _choice(
        "time for the weights", duration(weights.time.seconds), f"{weights.time.reason}; {one_by_one}"
    )
    for sized, replicas in service.pools:
        what = f"{replicas[0].role}: argument" if replicas[0].role else "argument"
        for argument in sized.chosen_arguments:
            value = f"{argument.flag} {argument.value}".strip()
            yield _choice(what, value, f"{argument.reason} ({argument.source})")
    for adapter in service.adapters:
        yield _choice("adapter", adapter.name, adapter.id)
    if draft := service.draft_model:
        yield _choice("draft model", draft.id, f"described by {draft.described_by or 'nothing'}")
    reasons = Counter(reason for _, node in service.ranks for reason in node.network.reasons)
    for reason, count in reasons.items():
        yield _choice("network", f"{count} {'rank' if count == 1 else 'ranks'}", reason)


def _choice(what: str, value: str, reason: str) -> ReportedChoice:
    return ReportedChoice(what=what, value=value, reason=reason)


def _rank(service: PlannedService, replica: PlannedReplica, node: Node) -> ReportedRank:
    if service.device != "cuda":
        gpus = "–"
    elif node.gpu_devices is None:
        gpus = f"all ({service.sized(replica).world_size // len(replica.nodes)})"
    else:
        gpus = ", ".join(node.gpu_devices)
    return ReportedRank(
        replica=replica.index,
        rank=node.rank,
        host=node.host,
        address=node.address,
        gpus=gpus,
        ports=[] if node.rank else [replica.engine_port, *replica.rendezvous_ports],
    )


def _images(plan: Plan) -> Iterator[PlannedImage]:
    """Each image once, with the first program that runs it."""
    programs: dict[str, str] = {}
    for service in plan.services:
        programs.setdefault(service.replicas[0].nodes[0].container.image, f"engine of {service}")
        for router in service.routers:
            programs.setdefault(router.container.image, "router")
    if plan.webui:
        programs.setdefault(plan.webui.container.image, "chat page")
    if plan.proxy:
        programs.setdefault(plan.proxy.container.image, "proxy")
    for program in plan.monitoring.containers if plan.monitoring else ():
        programs.setdefault(program.container.image, program.container.name.removeprefix("headfirst-"))
    for image, what in programs.items():
        yield PlannedImage(what=what, image=image)
