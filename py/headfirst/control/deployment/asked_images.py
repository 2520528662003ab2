"""The images of services, asked on the host of the first head: what they can do, and what they refuse."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from headfirst.common import container_names as names
from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.kept_answers import Images, image_of, named, with_answers, with_kept
from headfirst.control.deployment.model_files import model_files
from headfirst.control.deployment.running.local_work import JobAdvance, run_jobs
from headfirst.control.image_probe import container, kept
from headfirst.control.image_probe.kept import AskedCommand
from headfirst.control.live.ssh_access.ssh import ssh
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.result import StageTime
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.containers import blanks
from headfirst.decide.containers.spec import gpu_options
from headfirst.decide.engines import arguments
from headfirst.decide.engines.answers import Answers
from headfirst.decide.plan.types import Node, Plan, PlannedService

STAGE, TITLE = "probe", "Ask the engine in its image"
_NOTHING = {"answers": False, "commands": [], "files": {}}


def images(cluster: Cluster, only: Service | None = None) -> Images:
    """Which images are there, of all services or of one; "" where a host lacks it or cannot be asked."""
    services = cluster.services if only is None else (only,)
    found = {service.name: "" for service in services}
    try:
        access = host_access(cluster)
    except NotReadyError:  # the nodes of the lab were never up
        return found
    for service in services:
        head = access[service.hosts[0].name]
        try:
            with ssh(head) as connection:
                id = container.image_id(head, connection, image_of(service))
        except NotReadyError:  # the run itself reports it
            continue
        found[service.name] = id
        if id:
            kept.see(image_of(service), id)
    return found


def with_asked(cluster: Cluster, present: Images, reporter: Reporter) -> tuple[Cluster, list[StageTime]]:
    """The cluster with what these images answer; those that were not asked before are asked now.

    An image that does not answer gets a warning, and its service the engine's snapshot.
    """
    cluster = with_kept(cluster, present)
    jobs = {
        str(service): partial(_ask, cluster, service, present[service.name])
        for service in cluster.services
        if service.answers is None and present.get(service.name)
    }
    if not jobs:
        return cluster, []
    told, time = run_jobs(reporter, STAGE, TITLE, jobs)
    for service in cluster.services:
        if isinstance(error := told.get(str(service)), HeadfirstError):
            reporter.warn(
                STAGE,
                "image-answer",
                service.hosts[0].name,
                f"{image_of(service)} did not answer: {error.what}. The plan uses the engine's snapshot.",
            )
    answered = {
        service.name: answers
        for service in cluster.services
        if isinstance(answers := told.get(str(service)), Answers)
    }
    return with_answers(cluster, answered), [time]


def missing(cluster: Cluster, present: Images) -> list[str]:
    """The images that the hosts of the first heads lack."""
    return [image_of(named(cluster, name)) for name, id in present.items() if not id]


def refuse_commands(cluster: Cluster, plan: Plan, present: Images, reporter: Reporter) -> list[StageTime]:
    """Raise InputError with the engine's sentence where it refuses the command of a rank.

    A command that it cannot judge on this host gets a warning.
    """
    jobs = {}
    for planned in plan.services:
        service = named(cluster, planned.name)
        if present.get(service.name):
            questions = _questions(cluster, planned)
            jobs[str(service)] = partial(_judge, cluster, service, present[service.name], questions)
    if not jobs:
        return []
    judged, time = run_jobs(reporter, STAGE, "The engine reads its commands", jobs)
    for planned in plan.services:
        service = named(cluster, planned.name)
        for rank, asked in judged.get(str(service), {}).items():
            if asked.problem:
                raise InputError(
                    f"{planned.engine} {planned.engine_version} refuses {rank}: {asked.problem}",
                    where=_place(service, asked.problem),
                    hint=f"Correct the inventory: `deploy plan {cluster.inventories[0]} --image` asks again.",
                )
            if asked.why:
                reporter.warn(
                    STAGE,
                    "command-not-read",
                    service.hosts[0].name,
                    f"the command of {rank} was not read by {image_of(service)}: {asked.why}",
                )
    return [time]


def _ask(cluster: Cluster, service: Service, id: str, advance: JobAdvance) -> Answers | HeadfirstError:
    """What the image answers, which is kept; or why it does not."""
    head = host_access(cluster)[service.hosts[0].name]
    try:
        with ssh(head) as connection:
            answer = container.ask(
                head,
                connection,
                service.settings.engine,
                id,
                _gpus(cluster, service),
                _NOTHING | {"answers": True},
            )
        return kept.keep_answers(
            service.settings.engine, id, answer.document, where=f"{head.host}: {image_of(service)}"
        )
    except (NotReadyError, UntrustedError) as error:
        return error


def _judge(
    cluster: Cluster,
    service: Service,
    id: str,
    questions: Mapping[str, Mapping[str, Any]],
    advance: JobAdvance,
) -> dict[str, AskedCommand]:
    """What the engine makes of each command, by the rank's name."""
    name = service.settings.engine
    known = {rank: asked for rank, each in questions.items() if (asked := kept.command(name, id, each))}
    unread = [rank for rank in questions if rank not in known]
    if not unread:
        return known
    head = host_access(cluster)[service.hosts[0].name]
    question = _NOTHING | {
        "commands": [questions[rank]["command"] for rank in unread],
        "files": {path: text for rank in unread for path, text in questions[rank]["files"].items()},
    }
    try:
        with ssh(head) as connection:
            answer = container.ask(head, connection, name, id, _gpus(cluster, service), question)
    except (NotReadyError, UntrustedError) as error:
        return known | dict.fromkeys(unread, AskedCommand(why=error.what))
    for rank, asked in zip(unread, answer.commands, strict=True):
        kept.keep_command(name, id, questions[rank], asked)
        known[rank] = asked
    return known


def _gpus(cluster: Cluster, service: Service) -> dict[str, Any]:
    if service.settings.engine_device != "cuda":
        return {}
    return gpu_options(cluster.settings.container_runtime, service.replicas[0].places[0].devices)


def _questions(cluster: Cluster, planned: PlannedService) -> dict[str, dict[str, Any]]:
    """The command and the files of each kind of rank, by its name: the head's, and the first worker's."""
    files = _texts(cluster, planned)
    settings = {
        name: blanks.joined(text, plain=str, blank=lambda _: "probe")
        for name, text in planned.config_file.items()
    }
    questions = {}
    for title, node in _kinds(planned):
        config = names.engine_config(node.container.name)
        text = "".join(f"{name}: {value}\n" for name, value in settings.items())
        words = [*([node.container.entrypoint] if node.container.entrypoint else []), *node.container.command]
        questions[title] = {
            "command": {"argv": words, "env": node.container.environment},
            "files": files | {config: text},
        }
    return questions


def _kinds(planned: PlannedService) -> Iterator[tuple[str, Node]]:
    for _, replicas in planned.pools:
        role = f" of {replicas[0].role}" if replicas[0].role else ""
        for node in replicas[0].nodes[:2]:
            yield f"rank {node.rank}{role}", node


def _texts(cluster: Cluster, planned: PlannedService) -> dict[str, str]:
    """The small files at their paths in the container; none of a vocabulary that is no text."""
    texts = {}
    for folder, files in model_files(cluster, planned).items():
        for name, content in files.items():
            with contextlib.suppress(UnicodeDecodeError):
                texts[f"{folder}/{name}"] = content.decode()
    return texts


def _place(service: Service, sentence: str) -> str | None:
    """The line that the sentence is about: that of the arguments, where it names one, else of the model."""
    user = [
        word.partition("=")[0].lstrip("-") for word in service.settings.engine_args if arguments.is_flag(word)
    ]
    named = any(name and (name in sentence or name.replace("-", "_") in sentence) for name in user)
    return service.given.get("engine_args" if named else "model")
