"""What every engine answers: its command line, its environment, its arguments, and how to tell it is ready.

An engine is a description, not a process: everything here is pure and needs no engine installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headfirst.errors import InputError
from headfirst.model.checkpoint import Checkpoint
from headfirst.plan.gpus import Gpu
from headfirst.plan.parallel import Parallel


@dataclass(frozen=True)
class LaunchRequest:
    """One rank's launch. Addresses are IPv4 strings; paths are those inside the container."""

    model_dir: str
    served_name: str
    parallel: Parallel
    nodes: int
    rank: int
    head_address: str
    dist_port: int
    address: str  # this rank's own address on the data plane
    port: int = 30000
    listen_address: str = "0.0.0.0"  # noqa: S104 - the chat page and clients come from other hosts
    device: str = "cuda"  # cuda | cpu
    trust_remote_code: bool = False
    config_file: str | None = None  # holds the API key, which must not stand in an argv
    extra_args: tuple[str, ...] = ()
    extra_env: Mapping[str, str] = field(default_factory=dict)
    nic: str | None = None
    hca: str | None = None
    ib_gid_index: int | None = None
    cpu_cores: tuple[str, ...] = ()  # with device=cpu, the cores of each rank of this node, as `0-3`


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an argument: what, and the nearest thing that would be right."""

    argument: str
    what: str
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.what} {self.hint}" if self.hint else self.what


@dataclass(frozen=True)
class Arguments:
    """The user's engine arguments, understood: destination name -> typed value, and what is wrong."""

    values: Mapping[str, Any]
    problems: tuple[Problem, ...]

    def require(self, *, where: str | None = None) -> Mapping[str, Any]:
        """The values; InputError listing every problem when there is one."""
        if self.problems:
            raise InputError(
                " ".join(problem.what for problem in self.problems),
                where=where,
                hint=" ".join(problem.hint for problem in self.problems if problem.hint) or None,
            )
        return self.values


@dataclass(frozen=True)
class Readiness:
    """When rank 0 counts as ready: GET `path` answers 200 and a chat request to `chat_path` answers.

    `auth` says whether `path` wants the API key; ranks above 0 are never asked (they answer 200 always).
    """

    path: str
    chat_path: str
    auth: bool


@dataclass(frozen=True)
class MemoryUse:
    """What the engine does with one GPU's memory, before the model is loaded.

    `terms` are bytes reserved outside weights and KV cache; `static_fraction` of the memory is for these two.
    """

    terms: Mapping[str, int]
    static_fraction: float
    kv_bytes_per_token: int
    attention_tensor: int  # ranks that share one request's attention
    draft_layers: int  # multi-token-prediction layers that are loaded
    max_tokens: int | None  # the user's own cap on the KV pool


class Engine(Protocol):
    """One serving engine of one pinned version."""

    name: str
    version: str
    readiness: Readiness

    def default_image(self, device: str) -> str:
        """The image, with its tag, that serves this version on `device` (cuda or cpu)."""

    def cuda(self, image: str) -> str:
        """The CUDA version inside the image, as its tag says or as the project ships it; "" if unknown."""

    def launch_argv(self, request: LaunchRequest) -> list[str]:
        """The container's command for this rank."""

    def environment(self, request: LaunchRequest) -> dict[str, str]:
        """The container's environment for this rank, without secrets."""

    def check_arguments(self, arguments: Sequence[str]) -> Arguments:
        """Understand the user's extra arguments against this version's own parser."""

    def memory_use(
        self, checkpoint: Checkpoint, gpu: Gpu, parallel: Parallel, values: Mapping[str, Any]
    ) -> MemoryUse:
        """The memory this engine sets aside, given the values of `check_arguments`."""

    def config_file(self, *, api_key: str) -> dict[str, str]:
        """What the file named by LaunchRequest.config_file must hold."""
