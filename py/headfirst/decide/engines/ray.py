"""A replica over several nodes with Ray: Ray's head first, then its workers, then the engine on the head.

Every rank's container runs one of two small scripts. Where a configuration file is mounted, the SHA-256 of it
is Ray's token: all ranks have the same file, and a stranger at one of Ray's ports can run nothing.
Source: docs.ray.io, "Launching an on-premise cluster" and "Token authentication" (Ray 2.52 and later; older
versions ignore the variables).
"""

from __future__ import annotations

from collections.abc import Sequence

from headfirst.common.errors import InputError
from headfirst.decide.engines.base import LaunchRequest

PROGRAMS = ("ray",)  # that an image needs for both scripts

# A busy node needs more than Ray's 30 seconds for the start of Ray's own processes.
_COMMON = """\
set -eu
head=$1 port=$2 address=$3 gpus=$4 nodes=$5 config=$6
shift 6
if [ -n "$config" ]; then
  RAY_AUTH_TOKEN=$(sha256sum <"$config" | cut -d ' ' -f 1)
  export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
fi
export RAY_raylet_start_wait_time_s=300
"""

# The engine is started when every node has joined: it would reserve GPUs that are not there yet.
HEAD = (
    _COMMON
    + """\
ray start --head --node-ip-address="$address" --port="$port" --num-gpus="$gpus" \\
  --include-dashboard=false --disable-usage-stats
export RAY_ADDRESS="$head:$port"
python3 -c '
import sys, time, ray
ray.init(log_to_driver=False)
wanted, before = int(sys.argv[1]), 0
while before < wanted:
    joined = sum(node["Alive"] for node in ray.nodes())
    if joined != before:
        print(f"Ray: {joined} of {wanted} nodes have joined", flush=True)
    before = joined
    time.sleep(1)
' "$nodes"
exec "$@"
"""
)

# A worker that comes before the head waits. It ends 20 seconds after the head's Ray (60 by Ray's default).
WORKER = (
    _COMMON
    + """\
echo "Ray: waiting for the head at $head:$port"
until (: <>"/dev/tcp/$head/$port") 2>/dev/null; do sleep 1; done
export RAY_gcs_rpc_server_reconnect_timeout_s=20
exec ray start --address="$head:$port" --node-ip-address="$address" --num-gpus="$gpus" \\
  --disable-usage-stats --block
"""
)


def command(request: LaunchRequest, serve: Sequence[str], *, gpus: int) -> list[str]:
    """The command of a rank's container: `serve` is the engine's own, which rank 0 runs at the end.

    Ray's head listens on the request's dist_port; each node offers Ray `gpus` GPUs. InputError for the
    address of another Ray cluster.
    """
    if "RAY_ADDRESS" in request.extra_env:
        raise InputError(
            "engine_env=RAY_ADDRESS: the ranks start a Ray cluster of their own, and join no other.",
            hint="Remove RAY_ADDRESS. The GPUs of the hosts must be free of what another Ray cluster runs.",
        )
    words = [
        request.head_address,
        str(request.dist_port),
        request.address,
        str(gpus),
        str(request.nodes),
        request.config_file or "",
    ]
    if request.rank > 0:
        return ["bash", "-c", WORKER, "ray-worker", *words]
    return ["bash", "-c", HEAD, "ray-head", *words, *serve]


def starts(words: Sequence[str]) -> bool:
    """Whether a container's command is one of `command`."""
    return any(script in words for script in (HEAD, WORKER))
