"""The images of services, asked on the host of the first head: what they can do, and what they refuse.

A plan is made once more with the answers, before any byte of the weights.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from headfirst.common import container_names as names
from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.hosts.running import images
from headfirst.control.deployment.kept_answers import Images, image_of, with_answers, with_kept
from headfirst.control.deployment.model_files import model_files
from headfirst.control.deployment.prepare import Prepared
from headfirst.control.deployment.running.local_work import JobAdvance, run_jobs
from headfirst.control.image_probe import container, kept
from headfirst.control.image_probe.container import Answer
from headfirst.control.image_probe.kept import AskedCommand
from headfirst.control.live.ssh_access.ssh import ssh
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.result import StageTime
from headfirst.decide import engines
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.containers import blanks
from headfirst.decide.containers.spec import gpu_options
from headfirst.decide.engines.answers import Answers
from headfirst.decide.plan.answered import Change, changes
from headfirst.decide.plan.types import Node, Plan, PlannedService

STAGE, TITLE, READING = "probe", "Ask the engine in its image", "The engine reads its commands"
Questions = Mapping[str, Mapping[str, Any]]
"""By the name of a rank, the command that it runs, and the files that the command reads, by path."""


class Answered(NamedTuple):
    """The plan with the answers. `missing`: images that the hosts of the heads lack: not asked."""

    prepared: Prepared
    stages: list[StageTime]
    missing: list[str]
    changes: list[Change]  # of the plan, by the answers


def answered(prepared: Prepared, reporter: Reporter, only: Service | None = None) -> Answered:
    """Ask the images that are there, of all services or of one, plan again, and let the engines read it.

    Each difference is a warning. InputError where an engine refuses a command.
    """
    present = images(prepared.cluster, only)
    cluster, asked = _with_asked(prepared.cluster, prepared.plan, present, reporter)
    again = prepared.answered(cluster)
    changed = changes(prepared.plan, again.plan)
    for change in changed:
        reporter.warn(STAGE, "plan-changed", change.service, f"With the answers of the image: {change.text}")
    read = _refuse_commands(cluster, again.plan, present, reporter)
    missing = [image_of(cluster.service(name)) for name, id in present.items() if not id]
    return Answered(again, [*asked, *read], missing, changed)


def refuse_changes(told: Answered) -> None:
    """InputError where the plan with the answers differs in more than arguments that a preset had chosen."""
    differing = [change for change in told.changes if not change.left_out]
    if differing:
        raise InputError(
            f"with the answers of its image the plan of {differing[0].service} differs: "
            + "; ".join(change.text for change in differing[:5]),
            where=str(told.prepared.cluster.inventories[0]),
            hint="`deploy plan --probe` shows the new plan. Run `deploy up` again to carry it out.",
        )


def _with_asked(
    cluster: Cluster, plan: Plan, present: Images, reporter: Reporter
) -> tuple[Cluster, list[StageTime]]:
    """The cluster with what these images answer; those that were not asked before are asked now.

    The engines read the commands of the plan on the way. An image that does not answer gets a warning, and
    its service the engine's snapshot.
    """
    cluster = with_kept(cluster, present)
    asking = {
        str(service): service
        for service in cluster.services
        if service.answers is None and present.get(service.name)
    }
    if not asking:
        return cluster, []
    jobs = {
        title: partial(
            _ask, cluster, service, present[service.name], _questions(cluster, plan, service, None)
        )
        for title, service in asking.items()
    }
    told, time = run_jobs(reporter, STAGE, TITLE, jobs)
    for title, service in asking.items():
        if isinstance(error := told[title], HeadfirstError):
            what = f"{image_of(service)} did not answer: {error.what}. The plan uses the engine's snapshot."
            reporter.warn(STAGE, "image-answer", service.hosts[0].name, what)
    answered = {asking[title].name: each for title, each in told.items() if isinstance(each, Answers)}
    return with_answers(cluster, answered), [time]


def _refuse_commands(cluster: Cluster, plan: Plan, present: Images, reporter: Reporter) -> list[StageTime]:
    """Raise InputError with the engine's sentence where it refuses the command of a rank.

    A command that it cannot judge on this host gets a warning.
    """
    judged: dict[str, dict[str, AskedCommand]] = {}
    unread = {}
    services = {str(service): service for service in cluster.services if present.get(service.name)}
    for title, service in services.items():
        id, questions = present[service.name], _questions(cluster, plan, service, reporter)
        judged[title], rest = {}, {}
        for rank, question in questions.items():
            if (asked := kept.command(service.settings.engine, id, question)) is None:
                rest[rank] = question
            else:
                judged[title][rank] = asked
        if rest:
            unread[title] = partial(_judge, cluster, service, id, rest)
    read, times = run_jobs(reporter, STAGE, READING, unread) if unread else ({}, None)
    for title, service in services.items():
        engine, _ = engines.of_service(service)
        for rank, asked in (judged[title] | read.get(title, {})).items():
            if asked.problem:
                raise InputError(
                    f"{engine.title} {engine.version} refuses {rank}: {asked.problem}",
                    where=_place(cluster, service, asked.problem),
                    hint=f"Correct the inventory: `deploy plan {cluster.inventories[0]} --image` asks again.",
                )
            if asked.why:
                what = f"the command of {rank} was not read by {image_of(service)}: {asked.why}"
                reporter.warn(STAGE, "command-not-read", service.hosts[0].name, what)
    return [times] if times else []


def _ask(
    cluster: Cluster, service: Service, id: str, questions: Questions, advance: JobAdvance
) -> Answers | HeadfirstError:
    """What the image answers, which is kept, as is what it makes of the commands; or why it does not."""
    try:
        answer = _answer(cluster, service, id, questions, answers=True)
        where = f"{service.hosts[0].name}: {image_of(service)}"
        return kept.keep_answers(service.settings.engine, id, answer.document, where=where)
    except (NotReadyError, UntrustedError) as error:
        return error


def _judge(
    cluster: Cluster, service: Service, id: str, questions: Questions, advance: JobAdvance
) -> dict[str, AskedCommand]:
    """What the engine makes of each command, by the rank's name."""
    try:
        read = _answer(cluster, service, id, questions, answers=False).commands
        return dict(zip(questions, read, strict=True))
    except (NotReadyError, UntrustedError) as error:
        return dict.fromkeys(questions, AskedCommand(why=error.what))


def _answer(cluster: Cluster, service: Service, id: str, questions: Questions, *, answers: bool) -> Answer:
    """What a container of the image answers; what it makes of commands is kept."""
    head, engine = host_access(cluster)[service.hosts[0].name], service.settings.engine
    request = {
        "answers": answers,
        "commands": [question["command"] for question in questions.values()],
        "files": {path: text for each in questions.values() for path, text in each["files"].items()},
    }
    with ssh(head) as connection:
        answer = container.ask(head, connection, engine, id, _gpus(cluster, service), request)
    for question, asked in zip(questions.values(), answer.commands, strict=True):
        kept.keep_command(engine, id, question, asked)
    return answer


def _gpus(cluster: Cluster, service: Service) -> dict[str, Any]:
    if service.settings.engine_device != "cuda":
        return {}
    return gpu_options(cluster.settings.container_runtime, service.replicas[0].places[0].devices)


def _questions(cluster: Cluster, plan: Plan, service: Service, reporter: Reporter | None) -> Questions:
    """The command and the files of each kind of rank, by its name: the head's, and the first worker's.

    None where the model's files cannot be read here, which `reporter` shows.
    """
    planned = next(each for each in plan.services if each.name == service.name)
    try:
        files = _texts(cluster, planned)
    except HeadfirstError as error:
        if reporter:
            what = f"the engine did not read the commands of {service}: {error.what}"
            reporter.warn(STAGE, "command-not-read", service.hosts[0].name, what, fix=error.hint or "")
        return {}
    keys = {
        name: blanks.joined(text, plain=str, blank=lambda _: "probe")
        for name, text in planned.config_file.items()
    }
    settings = "".join(f"{name}: {value}\n" for name, value in keys.items())
    questions = {}
    for title, node in _kinds(planned):
        words = [*filter(None, [node.container.entrypoint]), *node.container.command]
        questions[title] = {
            "command": {"argv": words, "env": node.container.environment},
            "files": {**files, names.engine_config(node.container.name): settings},
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


def _place(cluster: Cluster, service: Service, sentence: str) -> str:
    """The line that a sentence is about: of the arguments, where it names a word of them, or of the model."""
    words = [word.lstrip("-") for text in service.settings.engine_args for word in text.split("=", 1)]
    named = any(len(word) > 2 and _plain(word) in _plain(sentence) for word in words)
    line = service.given.get("engine_args" if named else "model")
    return line or str(cluster.inventories[0])


def _plain(text: str) -> str:
    return text.replace("-", "_").lower()
