"""Slurm: one batch script a replica, or a service with prefill and decode replicas.

Each replica is a step. Task N of it is rank N, one task a host, the head on the first host.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from headfirst.decide.containers.blanks import ADDRESS, CONFIG_FILE, HEAD_ADDRESS
from headfirst.decide.plan.front.router import READY_PATH
from headfirst.decide.plan.types import Plan, PlannedReplica, PlannedRouter, PlannedService, Scheduled
from headfirst.decide.render import scheduled_options, secret_files
from headfirst.decide.render.files import Files, comment, script
from headfirst.decide.render.shell import ASK, CHECKS, FAIL, RANK, VARIABLES, checks, ranks
from headfirst.decide.render.slurm_steps import (
    ROUTER_ABOUT,
    ROUTER_CARRIED,
    ContainerOf,
    activated,
    environment,
    exported,
    from_input,
    router_step,
)

_ABOUT = {
    "pyxis": "Containers by pyxis and enroot; HEADFIRST_IMAGE names another image, or a .sqsh file.",
    "apptainer": "Containers by apptainer; HEADFIRST_IMAGE names another image, or a .sif file.",
    "none": "No containers: HEADFIRST_VENV names a virtual environment with the engine, on every host.",
}

# Fields of Container that a job carries out; the host's devices are there, its volumes without a container.
_CARRIED = {
    *("name", "image", "entrypoint", "command", "environment"),
    *("volumes", "devices", "gpus", "ulimits"),
}
# A job has the host's network and shared memory, and no process 1.
_GIVEN = {"network_mode": "host", "ipc_mode": "host", "init": True}

_OWN_ADDRESS = """\
own_address() { # INTERFACE
  if [ -n "$1" ]; then
    ip -4 -o address show dev "$1" | awk '{split($4, part, "/"); print part[1]; exit}'
  else
    getent ahostsv4 "$SLURMD_NODENAME" | awk '$1 !~ /^127\\./ {print $1; exit}'
  fi
}
"""
# Sets `ended` where a step is no longer there.
_RUNNING = """\
running() {
  for ended in "${steps[@]}"; do
    kill -0 "$ended" 2>/dev/null || return 1
  done
}
"""
_PORTS_ARE_FREE = """\
ports_are_free() { # ADDRESS PORT...
  local address=$1 port
  shift
  for port; do
    ! (: <>"/dev/tcp/$address/$port") 2>/dev/null ||
      fail "Port $port of $(hostname) is in use. Render with others: $port_settings"
  done
}
"""


@dataclass(frozen=True)
class _Job:
    """What one script starts: a replica, or all replicas of a divided service and its router."""

    service: PlannedService
    replicas: Sequence[PlannedReplica]
    scheduled: Sequence[Scheduled]
    router: PlannedRouter | None
    container: ContainerOf

    @property
    def name(self) -> str:
        """Of the job and its files."""
        return self.replicas[0].nodes[0].container.name

    @property
    def hosts(self) -> int:
        """One for each rank."""
        return sum(len(replica.nodes) for replica in self.replicas)

    @property
    def parts(self) -> list[tuple[PlannedReplica, Scheduled, int]]:
        """Each replica, and the number of its first host in the job."""
        first = accumulate((len(replica.nodes) for replica in self.replicas), initial=0)
        return list(zip(self.replicas, self.scheduled, first, strict=False))

    @property
    def secret(self) -> secret_files.SecretFile:
        """The file with the engines' key: those of all replicas have the same lines."""
        return secret_files.of_replica(self.service, self.replicas[0])

    @property
    def environments(self) -> dict[str, secret_files.SecretFile]:
        """The files with secret environment, by variables of the script."""
        return {
            f"engine_env_{replica.index}": file
            for replica in self.replicas
            for file in secret_files.of_environment(self.service, replica)
        }


def files(plan: Plan, header: Sequence[str], container: ContainerOf) -> Files:
    """A script for each replica or divided service, and the one that makes the secrets."""
    jobs = [job for service in plan.services for job in _jobs(service, container)]
    secrets = secret_files.make_script(header, plan, secret_files.scheduled(plan))
    return {
        secret_files.SCRIPT: script(secrets),
        **{f"{job.name}.sbatch": script(_text(header, job)) for job in jobs},
    }


def _jobs(service: PlannedService, container: ContainerOf) -> list[_Job]:
    if service.required_routers:
        return [_Job(service, service.replicas, service.scheduled, service.required_routers[0], container)]
    return [
        _Job(service, [replica], [scheduled], None, container)
        for replica, scheduled in zip(service.replicas, service.scheduled, strict=True)
    ]


def _text(header: Sequence[str], job: _Job) -> str:
    about = [
        *header,
        "",
        *_about(job),
        f"Submit it in a folder that all hosts see, after {secret_files.SCRIPT} there (HEADFIRST_SECRETS",
        "names another folder of secrets). Options such as --partition and --time: sbatch OPTIONS THIS_FILE",
        *dict.fromkeys(note for scheduled in job.scheduled for note in scheduled.notes),
        *_left_out(job),
    ]
    hosts = {replica.index: first for replica, _, first in job.parts}
    parts = [
        f"#!/bin/bash\n{comment(about)}{_options(job)}set -euo pipefail\n"
        # An engine may print its settings, and its key with them.
        "umask 077\n",
        FAIL,
        ASK,
        _secrets(job),
        _check(job),
        _start(job),
        router_step(job.router, job.replicas, hosts, job.container) if job.router else "",
        _await(job),
    ]
    return "\n".join(part for part in parts if part)


def _about(job: _Job) -> list[str]:
    what = job.service.served_model_name
    if job.router is None:
        return [
            f"{what}, replica {job.replicas[0].index}: one rank a host, the head on the first host.",
            _ABOUT[job.container],
        ]
    sides = []
    for replica, _, first in job.parts:
        count = len(replica.nodes)
        hosts = f"hosts {first} to {first + count - 1}" if count > 1 else f"host {first}"
        sides.append(f"{hosts}: {replica.role}")
    return [
        f"{what}: its prefill and decode replicas, one rank a host; the router is on the first host.",
        f"By number in the job, {', '.join(sides)}.",
        _ABOUT[job.container],
        ROUTER_ABOUT[job.container],
    ]


def _options(job: _Job) -> str:
    whole = all(node.gpu_devices is None for replica in job.replicas for node in replica.nodes)
    gpus = max(scheduled.gpus for scheduled in job.scheduled)
    options = [
        f"--job-name={job.name}",
        f"--nodes={job.hosts}",
        "--ntasks-per-node=1",
        "--distribution=block",  # task 0 on the first host
        *([f"--gres=gpu:{gpus}"] if gpus else []),
        *(["--exclusive", "--mem=0"] if whole else []),
        "--output=%x-%j.log",
    ]
    return "".join(f"#SBATCH {option}\n" for option in options)


def _secrets(job: _Job) -> str:
    key = shlex.quote(secret_files.key_file(job.service).rpartition("/")[2])
    files = {"config": job.secret, **job.environments}
    if job.router:
        files["router_env"] = secret_files.of_env_file(job.router)
    lines = [
        f"{variable}=$secrets/{shlex.quote(file.name)}\nexport {variable}\n"
        f'[ -s "${variable}" ] || fail "${variable} is not there. Make it: ./{secret_files.SCRIPT}"\n'
        for variable, file in files.items()
    ]
    return (
        f"secrets=${{HEADFIRST_SECRETS:-$SLURM_SUBMIT_DIR/{secret_files.FOLDER}}}\n"
        f"key=$secrets/{key}\n{''.join(lines)}"
    )


def _check(job: _Job) -> str:
    """Before anything starts: every host has the weights, the cache and the key, and the heads free ports."""
    nics = {scheduled.nic for scheduled in job.scheduled}
    nic = nics.pop() if len(nics) == 1 else None
    settings = ["engine_port", "dist_port", *(["kv_transfer_port", "router_port"] if job.router else [])]
    lines = [
        f"port_settings={shlex.quote(' '.join(f'-e {name}=…' for name in settings))}\n",
        checks(job.service),
        '[ -r "$config" ] || fail "$(hostname) cannot read $config: submit in a shared folder."\n',
        f"address=$(own_address {shlex.quote(nic or '')})\n",
        '[ -n "$address" ] || fail "$(hostname) has no IPv4 address'
        + (f' on {nic}"\n' if nic else ' under its own name: set nic= in the inventory."\n'),
        *(
            f'[ "$SLURM_PROCID" != {first} ] || ports_are_free "$address" {" ".join(map(str, ports))}\n'
            for first, ports in _ports(job)
        ),
        'echo "$SLURM_PROCID $address"\n',
    ]
    body = "\n".join([FAIL, CHECKS, _OWN_ADDRESS, _PORTS_ARE_FREE, "".join(lines)])
    return (
        f"addresses=$(\n  srun --kill-on-bad-exit=1 {from_input(body, 'CHECK')}"
        ') || fail "A host is not ready; nothing was started."\n'
        "HEADFIRST_ADDRESSES=$(sort -n <<<\"$addresses\" | awk '{print $2}' | xargs)\n"
        "export HEADFIRST_ADDRESSES\n"
        "head_address=${HEADFIRST_ADDRESSES%% *}\n"
        'echo "hosts: $(scontrol show hostnames "$SLURM_JOB_NODELIST" | xargs); head: $head_address"\n'
    )


def _ports(job: _Job) -> list[tuple[int, list[int]]]:
    """By the number of a host, the ports that must be free there."""
    ports = [
        (first + node.rank, [*([] if node.rank else heads), *node.more_ports])
        for replica, _, first in job.parts
        for heads in [[replica.engine_port, *replica.rendezvous_ports]]
        for node in replica.nodes
        if not node.rank or node.more_ports
    ]
    return ports + ([(0, [job.router.port, job.router.metrics_port])] if job.router else [])


def _start(job: _Job) -> str:
    planned = job.replicas[0].nodes[0].container.without_files()
    volumes = [volume for volume in planned.volumes if not volume.startswith(f"{job.secret.path}:")]
    mounts = [*(shlex.quote(volume) for volume in volumes), f'"$config:{job.secret.path}:ro"']
    mounts += [f'"${name}:{file.path}:ro"' for name, file in job.environments.items()]
    gpus = any(scheduled.gpus for scheduled in job.scheduled)
    before, inside = environment(job.container, "", planned.image, mounts, gpus=gpus)
    if job.container == "none":
        why = "HEADFIRST_VENV must name a virtual environment that has the engine, on every host"
        before = f': "${{HEADFIRST_VENV:?{why}}}"\nexport HEADFIRST_VENV\n'
    if job.container == "pyxis" and any(scheduled.rdma for scheduled in job.scheduled):
        before += "export MELLANOX_VISIBLE_DEVICES=all\n"
    starts = [_replica(job, replica, scheduled, first, inside) for replica, scheduled, first in job.parts]
    return f"{before}steps=()\n{''.join(starts)}"


def _replica(job: _Job, replica: PlannedReplica, scheduled: Scheduled, first: int, inside: str) -> str:
    """The step of a replica; task N of it is rank N."""
    body = [
        FAIL,
        f"{RANK}=$SLURM_PROCID\n"
        'read -ra addresses <<<"$HEADFIRST_ADDRESSES"\n'
        f"{VARIABLES[HEAD_ADDRESS]}=${{addresses[{first}]}}\n"
        f"{VARIABLES[ADDRESS]}=${{addresses[{first} + SLURM_PROCID]}}\n"
        f'{VARIABLES[CONFIG_FILE]}="{"$config" if job.container == "none" else job.secret.path}"\n',
        _limits(replica, scheduled),
        activated("HEADFIRST_VENV") if job.container == "none" else "",
        exported(f"${name}" if job.container == "none" else job.environments[name].path)
        if (name := f"engine_env_{replica.index}") in job.environments
        else "",
        ranks(scheduled),
    ]
    text = "\n".join(piece for piece in body if piece)
    hosts, name = "", ""
    if job.router:
        count = len(replica.nodes)
        hosts = f"--overlap --nodes={count} --ntasks={count} --relative={first} "
        name = f"-replica{replica.index}"
    return (
        f"srun {hosts}--kill-on-bad-exit=1 --cpu-bind=none --output=%x-%j{name}-rank%t.log \\\n"
        f"  {inside}{from_input(text, 'RANK', ' &')}steps+=($!)\n"
    )


def _limits(replica: PlannedReplica, scheduled: Scheduled) -> str:
    """Slurm hands on the limits of the host where the job was submitted; RDMA pins memory."""
    consequences = {"memlock": ": RDMA may fail"} if scheduled.rdma else {}
    return scheduled_options.limits(replica.nodes[0].container.ulimits, consequences)


def _left_out(job: _Job) -> list[str]:
    lines: list[str] = []
    for planned in (node.container.without_files() for replica in job.replicas for node in replica.nodes):
        # The size of the host's shared memory is the host's.
        carried = _CARRIED | ({"shm_size"} if planned.ipc_mode == "host" else set())
        carried |= {"env_file"} if job.environments else set()
        lines += scheduled_options.stated(planned, carried, _GIVEN, "Slurm")
    if job.router:
        options = {**_GIVEN, "ipc_mode": None}
        lines += scheduled_options.stated(
            job.router.container.without_files(), ROUTER_CARRIED, options, "Slurm for the router"
        )
    return list(dict.fromkeys(lines))


def _await(job: _Job) -> str:
    ready = job.service.readiness
    port, path = job.replicas[0].engine_port, ready.path
    if job.router:
        port, path = job.router.port, READY_PATH
    return (
        f"{_RUNNING}"
        f'api="http://$head_address:{port}"\n'
        f'until ask "$key" "$api"{shlex.quote(path)} --output /dev/null 2>/dev/null; do\n'
        "  running || break\n"
        f'  [ "$SECONDS" -lt {ready.start_seconds} ] ||\n'
        f'    fail "The service does not answer after {ready.start_seconds} s."\n'
        "  sleep 5\ndone\n"
        '! running || echo "ready: $api/v1"\n'
        "while running; do sleep 1; done\n"
        # The job ends as the first step ends, and the others end with it.
        'wait "$ended"\n'
    )
