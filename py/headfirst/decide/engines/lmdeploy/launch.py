"""LMDeploy's command for one rank.

One node: `lmdeploy serve api_server`. Several nodes: TurboMind's own launcher; the PyTorch engine over Ray
(docs/en/advance/pytorch_multinodes.md); with --dp, one API server for each DP rank behind LMDeploy's proxy on
the head (docs/en/advance/metrics.md, "Usage (DP > 1)").
"""

from __future__ import annotations

from headfirst.common.errors import InputError
from headfirst.decide.engines import arguments, nccl, ray
from headfirst.decide.engines.answers import Answers
from headfirst.decide.engines.base import Launch, LaunchRequest, Values
from headfirst.decide.engines.lmdeploy.backend import PYTORCH, TURBOMIND, choose

NO_CPU = "Remove engine_device=cpu, or take an engine that has one: engine=sglang or engine=vllm."
"""What to do where LMDeploy is to run on CPUs."""

# LMDeploy takes the API key from --api-keys alone, where everybody who lists processes could read it. This
# program reads it from the file and hands it to the command in memory. The PyTorch engine starts Ray for
# several GPUs of one node, too: it gets the token of engines/ray.py. The API servers of --dp register at the
# proxy with the admin key, and listen on --server-name: they would take the address of the route to 8.8.8.8,
# which not every node has.
PROGRAM = """\
import functools, hashlib, os, sys, yaml
with open(sys.argv.pop(1), "rb") as file:
    text = file.read()
keys = yaml.safe_load(text)["api-key"]
keys = keys if isinstance(keys, list) else [keys]
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=hashlib.sha256(text).hexdigest())
from lmdeploy.cli import entrypoint, serve
def with_key(start):
    @functools.wraps(start)
    def run(args):
        args.api_keys = keys
        if getattr(args, "dp", 1) > 1:
            args.proxy_url = args.proxy_url.replace("://", "://admin:%s@" % keys[-1])
            from lmdeploy.serve.openai import launch_server
            launch_server.get_host_ip = lambda: args.server_name
        start(args)
    return staticmethod(run)
serve.SubCliServe.api_server = with_key(serve.SubCliServe.api_server)
serve.SubCliServe.proxy = with_key(serve.SubCliServe.proxy)
entrypoint.run()
"""

# Two commands that end together: the first has as many words as the first argument states.
_BOTH = """\
set -eu
words=$1
shift
"${@:1:words}" &
"${@:words+1}" &
trap 'kill $(jobs -p)' TERM
wait -n
exit 1
"""


def launch(answers: Answers, request: LaunchRequest) -> Launch:
    """`lmdeploy serve api_server …`, over several nodes in a script that starts Ray or the proxy."""
    if request.device == "cpu":
        raise InputError("LMDeploy has no back end for CPUs.", hint=NO_CPU)
    specification = arguments.load(answers, "LMDeploy", {})
    values = arguments.check(specification, request.extra_args).values
    backend = choose(
        answers.support,
        request.checkpoint,
        values,
        nodes=request.nodes,
        runtime=request.runtime,
        adapters=bool(request.adapters),
    )
    if request.runtime == "ray" and backend == TURBOMIND:
        raise InputError(
            "TurboMind does not run in Ray.",
            hint="Remove engine_runtime, or write --backend pytorch in engine_args.",
        )
    environment = nccl.environment(request) | _environment(request, backend, values)
    argv = _argv(request, backend, values)
    programs = ray.PROGRAMS if ray.starts(argv) else ()
    return Launch(argv, environment | dict(request.extra_env), programs=programs)


def _argv(request: LaunchRequest, backend: str, values: Values) -> list[str]:
    """The container's command. `values` are those of the request's extra arguments."""
    if values.get("dp", 1) > 1:
        return _data_parallel(request, backend, values)
    server = ["serve", "api_server", *_model(request, backend), "--tp", str(request.layout.tensor)]
    if request.nodes > 1 and backend == TURBOMIND:
        return _turbomind_nodes(request, server)
    server += ["--server-name", request.listen_address, "--server-port", str(request.port)]
    serve = _with_key(request, [*server, *request.extra_args])
    if request.nodes == 1 and request.runtime != "ray":
        return serve
    return ray.command(request, serve, gpus=request.layout.world // request.nodes)


def _turbomind_nodes(request: LaunchRequest, server: list[str]) -> list[str]:
    """A rank above 0 has an API server too, which answers nobody: it needs no key and stays on loopback."""
    address = request.listen_address if request.rank == 0 else "127.0.0.1"
    server += ["--server-name", address, "--server-port", str(request.port)]
    server += ["--nnodes", str(request.nodes), "--node-rank", str(request.rank)]
    server += ["--dist-init-addr", f"{request.head_address}:{request.dist_port}", *request.extra_args]
    return _with_key(request, server) if request.rank == 0 else ["lmdeploy", *server]


def _environment(request: LaunchRequest, backend: str, values: Values) -> dict[str, str]:
    """Where the PyTorch engine's ranks meet: torch's store beside Ray's head, or that of the DP ranks."""
    if values.get("dp", 1) > 1:
        return {
            "LMDEPLOY_DP_MASTER_ADDR": request.head_address,
            "LMDEPLOY_DP_MASTER_PORT": str(request.dist_port),
        }
    if request.nodes > 1 and backend == PYTORCH:
        master = {"LMDEPLOY_DIST_MASTER_ADDR": request.head_address}
        return master | {"LMDEPLOY_DIST_MASTER_PORT": str(request.dist_port + 1)}
    return {}


def _model(request: LaunchRequest, backend: str) -> list[str]:
    words = [request.model_dir, "--model-name", request.served_name]
    if "--backend" not in {word.partition("=")[0] for word in request.extra_args}:
        words += ["--backend", backend]
    if request.trust_remote_code and "--trust-remote-code" not in request.extra_args:
        words += ["--trust-remote-code"]
    if request.adapters:
        words += ["--adapters", *(f"{name}={folder}" for name, folder in request.adapters.items())]
    return words


def _data_parallel(request: LaunchRequest, backend: str, values: Values) -> list[str]:
    """Rank 0 runs the proxy at the engine's port; the API servers of every node have the ports after it."""
    server = ["serve", "api_server", *_model(request, backend)]
    # With --ep the dense layers are not divided, as in LMDeploy's own example.
    server += [] if values.get("ep", 1) > 1 else ["--tp", str(request.layout.tensor)]
    server += ["--server-name", request.address, "--server-port", str(request.port + 1)]
    server += ["--nnodes", str(request.nodes), "--node-rank", str(request.rank)]
    server += ["--proxy-url", f"http://{request.head_address}:{request.port}", *request.extra_args]
    if request.rank > 0:
        return _with_key(request, server)
    proxy = ["serve", "proxy", "--server-name", request.listen_address, "--server-port", str(request.port)]
    proxy = _with_key(request, [*proxy, "--disable-cache-status"])
    return ["bash", "-c", _BOTH, "lmdeploy-dp", str(len(proxy)), *proxy, *_with_key(request, server)]


def _with_key(request: LaunchRequest, arguments: list[str]) -> list[str]:
    if request.config_file is None:
        return ["lmdeploy", *arguments]
    return ["python3", "-c", PROGRAM, request.config_file, *arguments]
