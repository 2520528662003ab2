"""Which starts may share what an engine compiles: of one image, with the same arguments and GPUs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files

from ansible_collections.headfirst.serving.plugins.module_utils.compile_cache import LIVE

from headfirst.decide import engines
from headfirst.decide.containers.spec import program_file
from headfirst.decide.engines.base import Engine, LaunchRequest
from headfirst.decide.plan.types import CompileCache

_TEXT = files(engines).joinpath("compile_cache.py").read_text(encoding="utf-8")
PROGRAM = {program_file("compile_cache", _TEXT): _TEXT}


def compile_caches(
    engine: Engine, requests: Sequence[LaunchRequest], *what: str | None
) -> list[CompileCache | None]:
    """The cache of each rank of a replica, None where the engine has none; `what` else must be the same."""
    environments = [_environment(engine, request) for request in requests]
    launches = [engine.launch(_anywhere(request)) for request in requests]
    same = json.dumps([what, [[launch.command, launch.environment] for launch in launches]], sort_keys=True)
    group = hashlib.sha256(same.encode()).hexdigest()[:24]
    return [
        CompileCache(name=f"{group}-{rank}", environment=environment) if environment else None
        for rank, environment in enumerate(environments)
    ]


def _environment(engine: Engine, request: LaunchRequest) -> dict[str, str]:
    """The variables by which the engine compiles into a folder, without those of the user."""
    before = engine.launch(request).environment
    after = engine.launch(replace(request, cache_dir=LIVE)).environment
    return {name: text for name, text in after.items() if name not in before}


def _anywhere(request: LaunchRequest) -> LaunchRequest:
    """The rank on any hosts, at any ports."""
    return replace(
        request,
        head_address="",
        dist_port=0,
        address="",
        port=0,
        shares_host=False,
        listen_address="",
        config_file=None,
        transfer=replace(request.transfer, port=0) if request.transfer else None,
        nic=None,
        hca=None,
        ib_gid_index=None,
        cpu_cores=(),
    )
