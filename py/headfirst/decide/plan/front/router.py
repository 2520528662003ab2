"""The routers' part of the plan: smg (Shepherd Model Gateway), one container per service and router host."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils import service_containers

from headfirst.common import container_names as names
from headfirst.decide.cluster import types as cluster_types
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.containers.blanks import (
    ADDRESS,
    Text,
    api_key,
    head_address_of,
    mark,
    parse,
    parsed,
    secret,
)
from headfirst.decide.containers.spec import Container, docker_run, program_file, with_text
from headfirst.decide.plan.types import PlannedReplica, PlannedRouter

VERSION = "1.13.0"
OFFICIAL_IMAGE = f"lightseekorg/smg:{VERSION}"
# What control/images/recipes.py names SMG; the same program, from its PyPI package.
BUILT_IMAGE = f"headfirst/smg:{VERSION}"
# smg takes keys as arguments only, which every user of the host can read: they are added inside the process.
_START = (
    "import os, sys; sys.argv += os.environ.pop('ROUTER_ARGUMENTS').split(); "
    "from smg.launch_router import main; main()"
)
# With prefill and decode divided.
_DOOR = files(__package__).joinpath("router_door.py").read_text(encoding="utf-8")
_DOOR_FILE = program_file("router_door", _DOOR)
# The list of replicas is an argument here, and a file for smg; without a container, /tmp is the host's.
_LISTED = (
    "import sys, tempfile; listed = tempfile.NamedTemporaryFile('w', suffix='.json'); "
    "listed.write(sys.argv.pop(1)); listed.flush(); sys.argv += ['--discovery-file', listed.name]\n"
)
READY_PATH = "/readiness"  # 200 once a request can be answered; without a key
SHUTDOWN_S = 55  # and the 5 s in which smg still takes requests
# A replica that dies gets no new request at once; these probes take it out and find it again.
_HEALTH = {
    "--health-check-interval-secs": 2,
    "--health-failure-threshold": 3,
    "--health-success-threshold": 1,
}


# Retries do not exclude the replica that failed, so there are enough to meet another.
_RETRIES = {"--retry-max-retries": 10, "--retry-initial-backoff-ms": 100}
# Requests go to replicas of either shape, as they register: to one, or to one that prefills and one that
# decodes. So a router serves the shape before a change, and after a rollback.
_EITHER_SHAPE = "--enable-igw"
# Of listed replicas. A decode replica that dies opens the breaker of the prefill replica, too, which has
# answered: for a minute nobody would prefill. Replicas that register have that in their own settings.
_DIVIDED = ["--pd-disaggregation", "--disable-circuit-breaker"]


def routers(cluster: Cluster, service: Service, replicas: Sequence[PlannedReplica]) -> list[PlannedRouter]:
    """The routers of a service; their keys come from an env file that the role writes."""
    return [_router(cluster, service, router, replicas) for router in service.routers]


def command(address: str, port: int, metrics_port: int, policy: str, *, divided: bool = False) -> list[str]:
    """Arguments of Python in the image. The keys are in the environment, as ROUTER_ARGUMENTS.

    `divided`: each request goes to a prefill and to a decode replica.
    """
    options = {
        "--host": address,
        "--port": port,
        "--prometheus-host": address,
        "--prometheus-port": metrics_port,
        "--policy": policy,
        **_HEALTH,
        **_RETRIES,
        "--shutdown-grace-period-secs": SHUTDOWN_S,
        "--history-backend": "none",  # else it keeps what people wrote in its memory
    }
    words = [str(word) for option in options.items() for word in option]
    program = [_DOOR_FILE] if divided else ["-c", _START]
    return [*program, *words, _EITHER_SHAPE, "--disable-tokenizer-autoload"]


def with_replicas(command: Sequence[str], workers: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The command for replicas that need not be registered: fields of a worker by address.

    One that does not answer yet is asked again. smg takes more than an address from a file only, and lists of
    one shape only.
    """
    command = [word for word in with_text(command, {_DOOR_FILE: _DOOR}) if word != _EITHER_SHAPE]
    if not any(workers.values()):
        return [*command, "--worker-urls", *workers]
    listed = {"version": 1, "workers": [{"url": url, **fields} for url, fields in workers.items()]}
    flag, program, *words = command
    return [
        *[flag, _LISTED + program, json.dumps(listed, separators=(",", ":")), *words, *_DIVIDED],
        *["--discovery-provider", "file"],
    ]


def scheduled_command(router: PlannedRouter, replicas: Sequence[PlannedReplica]) -> list[Text]:
    """`fixed_command` where a scheduler chooses the hosts: the addresses are blank.

    They are `ADDRESS` of the router and `head_address_of` each replica.
    """
    divided = any(replica.role for replica in replicas)
    run = command(mark(ADDRESS), router.port, router.metrics_port, router.policy, divided=divided)
    workers = {
        f"http://{mark(head_address_of(replica.index))}:{replica.engine_port}": replica.worker
        for replica in replicas
    }
    # JSON escapes the NUL of a mark.
    return [parse(word.replace("\\u0000", "\0")) for word in with_replicas(run, workers)]


def _router(
    cluster: Cluster, service: Service, router: cluster_types.Router, replicas: Sequence[PlannedReplica]
) -> PlannedRouter:
    settings, policy = cluster.settings, service.settings.router_policy
    image = BUILT_IMAGE if settings.router_image_source == "build" else OFFICIAL_IMAGE
    name, address = names.router(service.name), router.host.address
    admin_key = mark(secret("router-key"))
    divided = service.roles[0] is not None
    run = command(address, router.port, router.metrics_port, policy, divided=divided)
    programs = {_DOOR_FILE: _DOOR} if divided else {}
    container = Container(
        **service_containers.BASES["router"],
        name=name,
        image=settings.router_image or image,
        entrypoint="python3",
        command=run,
        volumes=[f"{path}:{path}:ro" for path in programs],
        files=programs,
        env_file=names.env_file(name),
    )
    return PlannedRouter(
        host=router.host.name,
        address=address,
        port=router.port,
        metrics_port=router.metrics_port,
        url=router.url,
        policy=policy,
        container=container,
        docker_run=docker_run(container, settings.container_runtime),
        env_file=parsed(service_containers.router_secrets(api_key(service.name), admin_key)),
        fixed_command=with_replicas(run, {replica.engine_url: replica.worker for replica in replicas}),
    )
