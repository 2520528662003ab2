"""What LMDeploy's own code makes of commands: parsed, configured and checked, as before it uses a GPU.

The question is {"gpu": …, "commands": [[word, …], …], "environments": [{…}, …]}, the words as behind
`lmdeploy serve api_server`; the answers are in the same order (planned_gpu.answers).
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

import planned_gpu

# In the engine's image. Not tile_kernels, which only the images for CUDA 13 have (its docker/install.sh).
ABSENT = ("fla", "flash_mla", "deep_gemm", "deep_ep", "fast_hadamard_transform")
# TurboMind's compiled part, which needs CUDA's libraries.
TURBOMIND = ("lmdeploy.turbomind._turbomind", "_turbomind", "_xgrammar")


def start() -> Any:
    """The parser of LMDeploy's commands; instead of a server that starts, they return what it would get."""
    from lmdeploy.cli.cli import CLI
    from lmdeploy.cli.serve import SubCliServe

    CLI.add_parsers()
    SubCliServe.add_parsers()
    return CLI.parser


def configured(parser: Any, command: list[str]) -> dict[str, Any]:
    """The back end, and what its configuration has."""
    server: dict[str, Any] = {}
    for module, function in (("api_server", "serve"), ("launch_server", "launch_server")):
        there = importlib.import_module(f"lmdeploy.serve.openai.{module}")
        setattr(there, function, lambda *_words, **options: server.update(options))
    arguments = parser.parse_args(["serve", "api_server", *command])
    arguments.run(arguments)
    _check_server(arguments, server)
    config = server["backend_config"]
    check = _check_pytorch if arguments.backend == "pytorch" else _check_turbomind
    check(arguments, config)
    return {"backend": server["backend"], "tp": config.tp}


def _check_server(arguments: Any, server: dict[str, Any]) -> None:
    """What `serve` checks before it makes an engine, and that LMDeploy takes the back end of the command."""
    from lmdeploy.archs import get_task
    from lmdeploy.serve.parsers import validate_parser_names

    assert server["backend"] == arguments.backend, f"{server['backend']} instead of {arguments.backend}"
    validate_parser_names(arguments.reasoning_parser, arguments.tool_call_parser)
    get_task(server["backend"], arguments.model_path, arguments.trust_remote_code, server["backend_config"])


def _check_turbomind(arguments: Any, config: Any) -> None:
    """The ranks and the reader of the checkpoint. What data types a GPU has is in the compiled part."""
    from lmdeploy.turbomind import converter, turbomind

    turbomind.update_parallel_config(config)
    converter._get_executable_dtypes = lambda *_words: {"bfloat16", "float16"}
    converter.get_tm_config(arguments.model_path, config, trust_remote_code=arguments.trust_remote_code)


def _check_pytorch(arguments: Any, config: Any) -> None:
    """Configurations of the PyTorch engine and of its model, and its check of the environment."""
    from lmdeploy.pytorch.config import ModelConfig
    from lmdeploy.pytorch.engine.config_builder import ConfigBuilder
    from lmdeploy.pytorch.models.module_map import MODULE_MAP

    config = ConfigBuilder.update_engine_config(config)
    cache = ConfigBuilder.build_cache_config(config)
    model = ModelConfig.from_pretrained(
        arguments.model_path,
        trust_remote_code=arguments.trust_remote_code,
        dtype=config.dtype,
        hf_overrides=config.hf_overrides,
        dist_config=ConfigBuilder.build_dist_config(config),
        model_format=config.model_format,
        device_type="cuda",
        block_size=cache.block_size,
    )
    model.check_env_func("cuda")
    assert model.hf_config.architectures[0] in MODULE_MAP, model.hf_config.architectures


def main() -> None:
    """Answers one file of questions."""
    question = planned_gpu.question()
    planned_gpu.install(question["gpu"], [*ABSENT, *TURBOMIND])
    planned_gpu.write(planned_gpu.answers(question, partial(configured, start())))


if __name__ == "__main__":
    main()
