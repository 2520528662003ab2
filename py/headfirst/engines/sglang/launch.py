"""SGLang's command line for one rank (sglang benchmark/deepseek_v3/README.md, and 0.5.23's parser)."""

from __future__ import annotations

from headfirst.engines.base import LaunchRequest

# Without a GPU: torch's own attention kernels and a small KV pool; measured on two cores.
_CPU_DEFAULTS = {
    "--attention-backend": "torch_native",
    "--max-total-tokens": "4096",
    "--mem-fraction-static": "0.2",
    "--dist-timeout": "120",
}


def argv(request: LaunchRequest) -> list[str]:
    """The container's command. Rank 0 listens for clients; the API key comes from the config file."""
    command = ["python3", "-m", "sglang.launch_server", "--model-path", request.model_dir]
    command += ["--served-model-name", request.served_name]
    # argparse takes --tp for --tp-size; the documentation of every release writes it so.
    command += ["--tp", str(request.parallel.tensor)]
    if request.parallel.pipeline > 1:
        command += ["--pp-size", str(request.parallel.pipeline)]
    if request.nodes > 1:
        command += ["--dist-init-addr", f"{request.head_address}:{request.dist_port}"]
        command += ["--nnodes", str(request.nodes), "--node-rank", str(request.rank)]
    if request.trust_remote_code and "--trust-remote-code" not in request.extra_args:
        command += ["--trust-remote-code"]
    # Ranks above 0 only answer health probes, on 127.0.0.1 by SGLang's default.
    if request.rank == 0:
        command += ["--host", request.listen_address]
    command += ["--port", str(request.port)]
    if request.config_file and request.rank == 0:
        command += ["--config", request.config_file]
    if request.device == "cpu":
        # Idle ranks otherwise poll without a pause, on the cores that the others compute with.
        command += ["--device", "cpu", "--sleep-on-idle", *_cpu_defaults(request.extra_args)]
    return [*command, *request.extra_args]


def _cpu_defaults(extra: tuple[str, ...]) -> list[str]:
    """The CPU defaults that the user did not set."""
    given = {word.partition("=")[0] for word in extra}
    return [word for flag, value in _CPU_DEFAULTS.items() if flag not in given for word in (flag, value)]
