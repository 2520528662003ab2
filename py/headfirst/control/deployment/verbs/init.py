"""`deploy init`: a new inventory, with what its hosts report; written only after `deploy plan` accepts it."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import FOLDER

from headfirst.collection import data_dir
from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.common.state_files import rewrite_file
from headfirst.control.checkpoints import user_catalogue
from headfirst.control.checkpoints.describe import describe as describe_model
from headfirst.control.deployment.hosts.probe import probe_hosts
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.verbs.models import fleet
from headfirst.control.inventory.inventory import load
from headfirst.control.inventory.template import Answers, HostAddress, ServiceLines, render_inventory
from headfirst.decide import engines
from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.hardware import gpus
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan import trust
from headfirst.decide.plan.host import devices, network
from headfirst.decide.plan.sizing.alternatives import unfit_hint
from headfirst.decide.plan.sizing.models import lines, survey
from headfirst.decide.plan.sizing.shares import shares
from headfirst.decide.plan.sizing.sizes import Fleet
from headfirst.decide.plan.trial import ServiceTrial
from headfirst.decide.plan.types import NodeNetwork


def write_inventory(answers: Answers, path: Path) -> str | None:
    """Write the inventory; return a note where the plan could not be made yet (no network, for example).

    Without a model it is read only. Raises InputError, and writes nothing, where `deploy plan` would refuse
    it.
    """
    text = render_inventory(answers, path)
    without_model = answers.model is None and not answers.services
    with _candidate(text, path) as candidate:
        note = _refused(candidate, without_model=without_model)
    _write(path, text)
    return note


@contextmanager
def _candidate(text: str, path: Path) -> Iterator[Path]:
    """The text as a file that can be loaded; an error names `path`, where it will be written."""
    with tempfile.TemporaryDirectory() as scratch:
        candidate = Path(scratch) / path.name
        candidate.write_text(text, encoding="utf-8")
        try:
            yield candidate
        except HeadfirstError as error:
            for part in ("what", "where", "hint"):
                text = getattr(error, part)
                setattr(error, part, text and text.replace(str(candidate), str(path)))
            raise


@dataclass(frozen=True)
class Proposal:
    """A layout for the hosts and GPUs of the answers: its lines, and a sentence for people."""

    answers: Answers
    text: str


def proposal(answers: Answers, path: Path) -> Proposal | None:
    """The best copy of the model; None where the GPUs or the model are not known, or no copy fits.

    Where no copy fits, `write_inventory` refuses with what would. InputError for a model that needs code of
    its own, which the answers do not allow.
    """
    user_catalogue.load()
    try:
        cluster, gpus_of_all = _fleet(answers, path)
        checkpoint = _described(answers, str(answers.model))
    except HeadfirstError:
        return None
    engine, _ = engines.of_service(cluster.services[0])
    survey_result = survey(
        gpus_of_all,
        engine,
        [checkpoint],
        task=None,
        seconds=lambda _, __: 0,
        trial=ServiceTrial.on_all_hosts(cluster),
    )
    if not survey_result.offers:
        return None
    offer = survey_result.offers[0]
    if trust.SETTING in offer.lines:
        raise InputError(
            f"{offer.model} needs its own Python code, which does not run unless you allow it",
            hint="Read the Python files of its repository, then add --trust-remote-code.",
        )
    stages = f" × PP {offer.pipeline_parallel}" if offer.pipeline_parallel > 1 else ""
    whole = offer.nodes_per_replica > 1
    each = _count(offer.nodes_per_replica, "node") if whole else _count(offer.gpus_per_node, "GPU")
    text = (
        f"{_count(offer.replicas, 'replica')}, each on {each} (TP {offer.tensor_parallel}{stages}) with a KV "
        f"cache of {offer.kv_tokens:,} tokens"
    )
    return Proposal(replace(answers, layout=offer.lines), text)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number > 1 else ''}"


def with_services(answers: Answers, models: Mapping[str, str], path: Path) -> Proposal:
    """A service for each model, by name. InputError where they do not fit beside each other."""
    user_catalogue.load()
    cluster, gpus_of_all = _fleet(answers, path)
    engine, _ = engines.of_service(cluster.services[0])
    checkpoints = {name: _described(answers, model) for name, model in models.items()}
    shares_by_name = shares(gpus_of_all, engine, checkpoints, ServiceTrial.on_all_hosts(cluster))
    services = [
        ServiceLines(name, [answers.hosts[at] for at in share.hosts], lines(share.settings))
        for name, share in shares_by_name.items()
    ]
    text = "; ".join(
        f"{name}: {share.settings['replicas']} × {share.settings['gpus_per_replica']} GPUs"
        for name, share in shares_by_name.items()
    )
    return Proposal(replace(answers, services=services), text)


def _fleet(answers: Answers, path: Path) -> tuple[Cluster, Fleet]:
    with _candidate(render_inventory(replace(answers, model=None), path), path) as candidate:
        cluster = load([candidate], needs_model=False)
    return cluster, fleet(cluster)


def _described(answers: Answers, model: str) -> Checkpoint:
    folder = Path(model) if answers.model_source == FOLDER.name else None
    return describe_model(model, answers.model_source, folder=folder)


def copy_example(name: str, path: Path) -> None:
    """Write one of the inventories that Headfirst ships. Raises InputError for an unknown name."""
    examples = {file.stem: file for file in sorted(data_dir("inventories").glob("*.ini"))}
    if name not in examples:
        raise InputError(f"no example has the name {name}", hint=f"Examples: {', '.join(examples)}.")
    _write(path, examples[name].read_text(encoding="utf-8"))


def _refused(candidate: Path, *, without_model: bool) -> str | None:
    try:
        if without_model:
            engines.get(load([candidate], needs_model=False).services[0].settings.engine)
            return None
        plan = prepare([candidate], (), probe=False).plan
    except NotReadyError as error:
        return error.what
    for service in plan.services:
        if service.unfit:
            raise InputError(service.unfit, hint=unfit_hint(service.alternatives))
    return None


def _write(path: Path, text: str) -> None:
    try:
        if path.exists():
            rewrite_file(path, text)
        else:
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        hint = f"Create the folder: mkdir -p {path.parent}" if not path.parent.is_dir() else None
        raise InputError(f"{path} cannot be written: {error.strerror}", hint=hint) from None


MIB, GIB = 1 << 20, 1 << 30
# A product's name as it may be in an inventory between quotes.
_PRODUCT = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._/+-]*")


@dataclass(frozen=True)
class ProbedHosts:
    """The hosts with the values that differ between them, and the values that all share."""

    hosts: list[HostAddress]
    common: Mapping[str, str]


def probed(answers: Answers, path: Path) -> Answers:
    """The answers with what the hosts report where the answers are silent.

    Raises NotReadyError that names each host that does not answer.
    """
    with _candidate(render_inventory(answers, path), path) as candidate:
        cluster = probe_hosts(load([candidate], needs_model=False), ())
    described = describe(cluster, answers.hosts)
    common = {**described.common, **answers.common}
    if "gpu" in answers.common:  # it may have no driver yet
        common = {name: value for name, value in common.items() if name not in ("engine_device", "cpu_cores")}
    return replace(answers, hosts=described.hosts, common=common)


def describe(cluster: Cluster, addresses: Sequence[HostAddress]) -> ProbedHosts:
    """What an inventory states of the hosts of a probed cluster. A pure function."""
    ranks = cluster.ranks
    cuda = any(host.gpus for host in ranks)
    networks = network.choose(ranks, gpus=cuda)
    reported = {host.name: (host, chosen) for host, chosen in zip(ranks, networks, strict=True)}
    connected = len(ranks) > 1
    values = {name: _values(*pair, cuda=cuda, connected=connected) for name, pair in reported.items()}
    first = values[ranks[0].name]
    common = {
        name: value
        for name, value in first.items()
        if all(variables.get(name) == value for variables in values.values())
    }
    hosts = [
        replace(
            address,
            comment=_comment(*reported[address.name]),
            variables={name: value for name, value in values[address.name].items() if name not in common},
        )
        for address in addresses
    ]
    return ProbedHosts(hosts, common if cuda else {**common, "engine_device": "cpu"})


def _values(host: Host, chosen: NodeNetwork, *, cuda: bool, connected: bool) -> dict[str, str]:
    values: dict[str, str] = {}
    if cuda:
        values["gpus"] = str(host.gpus or 0)
        if host.gpu and (name := _gpu_name(host.gpu)):
            values["gpu"] = name
    elif host.cores:
        values["cpu_cores"] = f"0-{host.cores - 1}"
    if connected and chosen.nic:
        values["nic"] = chosen.nic
    if connected and cuda and (chosen.hca or not devices.may_do_rdma(host)):
        values["hca"] = chosen.hca or "none"  # of hardware without a driver or a link `up` may find more
    if chosen.ib_gid_index is not None:
        values["ib_gid_index"] = str(chosen.ib_gid_index)
    return values


def _gpu_name(reported: str) -> str | None:
    """The table's name, else the product's own without the vendor; None where it cannot be written."""
    if gpus.known(reported):
        return gpus.find(reported).name
    name = reported.removeprefix("NVIDIA ")
    if not _PRODUCT.fullmatch(name):
        return None
    return f'"{name}"' if " " in name else name


def _comment(host: Host, chosen: NodeNetwork) -> str:
    """The devices, cores and memory of a host, for a comment above its line; and why it has no `hca`."""
    parts = []
    if host.gpus and host.gpu and _PRODUCT.fullmatch(host.gpu):
        memory = f", {host.gpu_memory_bytes // MIB} MiB each" if host.gpu_memory_bytes else ""
        gpu_capability = host.gpu_capability
        capability = f", compute capability {gpus.capability_text(gpu_capability)}" if gpu_capability else ""
        parts.append(f"{host.gpus} × {host.gpu}{memory}{capability}")
    else:
        parts.append("no NVIDIA GPU that a driver reports" if not host.gpus else f"{host.gpus} GPUs")
    if host.cores:
        parts.append(f"{host.cores} cores")
    if host.memory_bytes:
        parts.append(f"{host.memory_bytes // GIB} GiB of memory")
    if "nvidia_driver" in host.lacks:
        parts.append("GPUs without a driver: `deploy up` installs it")
    if "rdma" in host.lacks:
        parts.append("RDMA cards without a driver: `deploy up` sets it up")
    elif "roce" in host.lacks:
        parts.append("Ethernet cards for RoCE without an RDMA driver (bnxt_re, irdma)")
    elif host.network and host.network.hcas and not chosen.hca:
        ports = [f"{hca.name} {port.state}" for hca in host.network.hcas for port in hca.ports]
        parts.append(f"RDMA {', '.join(ports)}; {'; '.join(chosen.reasons[1:])}")
    return "; ".join(parts)
