"""Slurm: one batch script a replica. Task N is rank N, one task a host, the head on the first host."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Literal

from headfirst.decide.containers.blanks import ADDRESS, CONFIG_FILE, HEAD_ADDRESS
from headfirst.decide.plan.types import Plan, PlannedReplica, PlannedService, Scheduled
from headfirst.decide.render import scheduled_options, secret_files
from headfirst.decide.render.files import Files, comment, script
from headfirst.decide.render.shell import (
    ASK,
    CHECK_CACHE,
    CHECK_MODEL,
    FAIL,
    RANK,
    VARIABLES,
    ranks,
)

ContainerOf = Literal["pyxis", "apptainer", "none"]

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
_PORTS_ARE_FREE = """\
ports_are_free() { # ADDRESS PORT...
  local address=$1 port
  shift
  for port; do
    ! (: <>"/dev/tcp/$address/$port") 2>/dev/null ||
      fail "Port $port of $(hostname) is in use. Render with others: -e engine_port=… -e dist_port=…"
  done
}
"""


def files(plan: Plan, header: Sequence[str], container: ContainerOf) -> Files:
    """A script for each replica, and the one that makes the secrets."""
    made = {
        f"{replica.nodes[0].container.name}.sbatch": script(
            _job(header, service, replica, scheduled, container)
        )
        for service in plan.services
        for replica, scheduled in zip(service.replicas, service.scheduled, strict=True)
    }
    secrets = secret_files.make_script(header, secret_files.scheduled(plan), secret_files.given(plan))
    return {secret_files.SCRIPT: script(secrets), **made}


def _job(
    header: Sequence[str],
    service: PlannedService,
    replica: PlannedReplica,
    scheduled: Scheduled,
    container: ContainerOf,
) -> str:
    about = [
        *header,
        "",
        f"{service.served_model_name}, replica {replica.index}: one rank a host, the head on the first host.",
        _ABOUT[container],
        f"Submit it in a folder that all hosts see, after {secret_files.SCRIPT} there (HEADFIRST_SECRETS",
        "names another folder of secrets). Options such as --partition and --time: sbatch OPTIONS THIS_FILE",
        *scheduled.notes,
        *_left_out(replica),
    ]
    return "\n".join(
        [
            f"#!/bin/bash\n{comment(about)}{_options(replica, scheduled)}set -euo pipefail\n"
            # An engine may print its settings, and its key with them.
            "umask 077\n",
            FAIL,
            ASK,
            _secrets(service, replica),
            _check(service, replica, scheduled),
            _start(service, replica, scheduled, container),
            _await(service, replica),
        ]
    )


def _options(replica: PlannedReplica, scheduled: Scheduled) -> str:
    whole = all(node.gpu_devices is None for node in replica.nodes)
    options = [
        f"--job-name={replica.nodes[0].container.name}",
        f"--nodes={len(replica.nodes)}",
        "--ntasks-per-node=1",
        "--distribution=block",  # task 0 on the first host
        *([f"--gres=gpu:{scheduled.gpus}"] if scheduled.gpus else []),
        *(["--exclusive", "--mem=0"] if whole else []),
        "--output=%x-%j.log",
    ]
    return "".join(f"#SBATCH {option}\n" for option in options)


def _secrets(service: PlannedService, replica: PlannedReplica) -> str:
    config = shlex.quote(secret_files.of_replica(service, replica).name)
    key = shlex.quote(secret_files.key_file(service).rpartition("/")[2])
    return (
        f"secrets=${{HEADFIRST_SECRETS:-$SLURM_SUBMIT_DIR/{secret_files.FOLDER}}}\n"
        f"config=$secrets/{config}\nkey=$secrets/{key}\nexport config\n"
        f'[ -s "$config" ] || fail "$config is not there. Make it: ./{secret_files.SCRIPT}"\n'
    )


def _check(service: PlannedService, replica: PlannedReplica, scheduled: Scheduled) -> str:
    """Before anything starts: every host has the weights, the cache and the key, and the head free ports."""
    ports = " ".join(str(port) for port in (replica.engine_port, *replica.rendezvous_ports))
    lines = [
        *(f"check_model {shlex.quote(folder)}\n" for folder in service.model_folders),
        f"check_cache {shlex.quote(service.cache_dir)}\n" if service.cache_dir else "",
        '[ -r "$config" ] || fail "$(hostname) cannot read $config: submit in a shared folder."\n',
        f"address=$(own_address {shlex.quote(scheduled.nic or '')})\n",
        '[ -n "$address" ] || fail "$(hostname) has no IPv4 address'
        + (
            f' on {scheduled.nic}"\n'
            if scheduled.nic
            else ' under its own name: set nic= in the inventory."\n'
        ),
        f'[ "$SLURM_PROCID" != 0 ] || ports_are_free "$address" {ports}\n',
        'echo "$SLURM_PROCID $address"\n',
    ]
    body = "\n".join([FAIL, CHECK_MODEL, CHECK_CACHE, _OWN_ADDRESS, _PORTS_ARE_FREE, "".join(lines)])
    return (
        f"addresses=$(\n  srun --kill-on-bad-exit=1 {_from_input(body, 'CHECK')}"
        ') || fail "A host is not ready; nothing was started."\n'
        "HEADFIRST_ADDRESSES=$(sort -n <<<\"$addresses\" | awk '{print $2}' | xargs)\n"
        "export HEADFIRST_ADDRESSES\n"
        "head_address=${HEADFIRST_ADDRESSES%% *}\n"
        'echo "hosts: $(scontrol show hostnames "$SLURM_JOB_NODELIST" | xargs); head: $head_address"\n'
    )


def _start(
    service: PlannedService, replica: PlannedReplica, scheduled: Scheduled, container: ContainerOf
) -> str:
    before, runner = _runner(service, replica, scheduled, container)
    inside = "$config" if container == "none" else secret_files.of_replica(service, replica).path
    body = [
        FAIL,
        f"{RANK}=$SLURM_PROCID\n"
        'read -ra addresses <<<"$HEADFIRST_ADDRESSES"\n'
        f"{VARIABLES[HEAD_ADDRESS]}=${{addresses[0]}}\n"
        f"{VARIABLES[ADDRESS]}=${{addresses[$SLURM_PROCID]}}\n"
        f'{VARIABLES[CONFIG_FILE]}="{inside}"\n',
        _limits(replica, scheduled),
        # A virtual environment's script reads variables that need not be there.
        'set +u\n. "$HEADFIRST_VENV/bin/activate"\nset -u\n' if container == "none" else "",
        ranks(scheduled),
    ]
    text = "\n".join(piece for piece in body if piece)
    return (
        f"{before}srun --kill-on-bad-exit=1 --cpu-bind=none --output=%x-%j-rank%t.log \\\n"
        f"  {runner}{_from_input(text, 'RANK', ' &')}ranks=$!\n"
    )


def _from_input(text: str, end: str, after: str = "") -> str:
    """A shell on every host that reads `text`: srun hands its input to all tasks."""
    while end in text:
        end += "_END"
    return f"bash -s <<'{end}'{after}\nset -euo pipefail\n{text}{end}\n"


def _limits(replica: PlannedReplica, scheduled: Scheduled) -> str:
    """Slurm hands on the limits of the host where the job was submitted; RDMA pins memory."""
    consequences = {"memlock": ": RDMA may fail"} if scheduled.rdma else {}
    lines = scheduled_options.limits(replica.nodes[0].container.ulimits, consequences)
    return f"{scheduled_options.LIMIT}{lines}" if lines else ""


def _left_out(replica: PlannedReplica) -> list[str]:
    planned = replica.nodes[0].container
    # The size of the host's shared memory is the host's.
    carried = _CARRIED | ({"shm_size"} if planned.ipc_mode == "host" else set())
    return scheduled_options.stated(planned, carried, _GIVEN, "Slurm")


def _runner(
    service: PlannedService, replica: PlannedReplica, scheduled: Scheduled, container: ContainerOf
) -> tuple[str, str]:
    """Lines before the start, and what is before the shell of a rank."""
    if container == "none":
        why = "HEADFIRST_VENV must name a virtual environment that has the engine, on every host"
        return f': "${{HEADFIRST_VENV:?{why}}}"\nexport HEADFIRST_VENV\n', ""
    planned, secret = replica.nodes[0].container, secret_files.of_replica(service, replica)
    volumes = [volume for volume in planned.volumes if not volume.startswith(f"{secret.path}:")]
    mounts = [shlex.quote(volume) for volume in volumes] + [f'"$config:{secret.path}:ro"']
    if container == "pyxis":
        return (
            f"image=${{HEADFIRST_IMAGE:-{shlex.quote(_enroot(planned.image))}}}\n"
            f"mounts=({' '.join(mount.replace(',', '+') for mount in mounts)})\n"
            + ("export MELLANOX_VISIBLE_DEVICES=all\n" if scheduled.rdma else ""),
            '--container-image="$image" --container-mounts="$(IFS=,; echo "${mounts[*]}")" \\\n'
            "  --no-container-mount-home --no-container-entrypoint \\\n  ",
        )
    binds = " ".join(f"--bind {mount}" for mount in mounts)
    graphics = "--nv " if scheduled.gpus else ""
    return (
        f"image=${{HEADFIRST_IMAGE:-{shlex.quote(f'docker://{planned.image}')}}}\n",
        f'apptainer exec {graphics}--no-home {binds} "$image" \\\n  ',
    )


def _enroot(image: str) -> str:
    """enroot writes # after a registry: it has a dot or a port before the first slash."""
    first, slash, rest = image.partition("/")
    return f"{first}#{rest}" if slash and ("." in first or ":" in first) else image


def _await(service: PlannedService, replica: PlannedReplica) -> str:
    ready = service.readiness
    return (
        f'api="http://$head_address:{replica.engine_port}"\n'
        f'until ask "$key" "$api"{shlex.quote(ready.path)} --output /dev/null 2>/dev/null; do\n'
        '  kill -0 "$ranks" 2>/dev/null || break\n'
        f'  [ "$SECONDS" -lt {ready.start_seconds} ] ||\n'
        f'    fail "The service does not answer after {ready.start_seconds} s."\n'
        "  sleep 5\ndone\n"
        '! kill -0 "$ranks" 2>/dev/null || echo "ready: $api/v1"\n'
        # The job ends as the ranks end.
        'wait "$ranks"\n'
    )
