"""`deploy diagnose`: what is wrong with the running service, and where it began. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from headfirst.common.errors import InputError, NotReadyError
from headfirst.control.credentials.secrets import hidden
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.running.claim import known_credentials
from headfirst.control.deployment.verbs.service import engine_of, known_key, readiness_of
from headfirst.control.evidence.collect import collect
from headfirst.control.evidence.log_files import read
from headfirst.decide.cluster.types import Cluster, Replica, Service
from headfirst.decide.diagnose import logs
from headfirst.decide.diagnose.decide import diagnose as decide
from headfirst.decide.diagnose.subject import Subject, subject
from headfirst.decide.diagnose.tuning import tune
from headfirst.decide.diagnose.types import Diagnosis, NodeFacts, ReplicaDiagnosis, Tuning


def diagnose(cluster: Cluster, chosen: str | None) -> list[ReplicaDiagnosis]:
    """The first failure of each replica. NotReadyError: hosts do not answer and the others report nothing."""
    return [
        ReplicaDiagnosis(
            service=str(service), replica=replica.index, found=_diagnose(cluster, service, replica)
        )
        for service, replica in cluster.chosen(chosen)
    ]


def of_logs(files: Sequence[str]) -> Diagnosis:
    """The first failure that log files show, without hosts. InputError for what is no log."""
    if not files:
        raise InputError("no log is named", hint="deploy diagnose --log FILE…, or - for standard input")
    return logs.diagnose([read(name) for name in files])


def tuning(cluster: Cluster, chosen: str | None) -> Tuning:
    """Advice from live figures of one replica. NotReadyError where the engine gives none."""
    service, replica = cluster.chosen(chosen)[0]
    nodes, _ = nodes_of(cluster, service, replica)
    return tune(nodes, engine_of(service))


def _diagnose(cluster: Cluster, service: Service, replica: Replica) -> Diagnosis:
    nodes, engine = nodes_of(cluster, service, replica)
    silent = [node for node in nodes if node.problem]
    if not silent and not any(node.container for node in nodes):
        names = ", ".join(node.host for node in nodes)
        raise NotReadyError("no rank has a container", where=names, hint="`deploy up` starts the service.")
    diagnosis = decide(nodes, engine, service.container(replica))
    if silent and diagnosis.decisive is None:
        node = silent[0]
        hint = f"Try: {host_access(cluster)[node.host].ssh_command('true')}"
        raise NotReadyError(node.problem or "it does not answer", where=node.host, hint=hint)
    return diagnosis


def nodes_of(cluster: Cluster, service: Service, replica: Replica) -> tuple[list[NodeFacts], Subject]:
    """The nodes of a replica by rank as they are now, and what they were asked for."""
    access, secrets = host_access(cluster), known_credentials(cluster)
    key = known_key(secrets, service) or ""
    engine = subject(engine_of(service), readiness_of(service), service.served_model_name, key)
    targets = [access[host.name] for host in replica.hosts]
    values = hidden(cluster, secrets)
    return collect(targets, replica.url, engine, values, container=service.container(replica)), engine
