"""The contract of an engine: everything that differs between SGLang, vLLM and LMDeploy is asked of it.

An engine is a description of one version, not a process: everything here is pure, and no engine is installed.
docs/new-engine.md describes how to add one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from headfirst.common.errors import InputError
from headfirst.common.metrics import Metrics as Metrics
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.engines.readiness import Readiness as Readiness
from headfirst.decide.hardware.gpus import Gpu
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.task import Task as Task

if TYPE_CHECKING:
    from headfirst.decide.containers.image import ImageRecipe
    from headfirst.decide.engines.diagnostics import Diagnostics


@dataclass(frozen=True)
class LaunchRequest:
    """One rank's launch. Addresses are IPv4 strings; paths are those inside the container.

    An engine puts addresses and `config_file` into its words as they are, and reads nothing in them: for
    hosts that a scheduler chooses they are marks (decide/containers/blanks.py), which the plan finds again.
    """

    model_dir: str
    served_name: str
    layout: Layout
    nodes: int
    rank: int
    head_address: str
    dist_port: int
    address: str  # this rank's own address on the data plane
    port: int = 30000
    listen_address: str = "0.0.0.0"  # noqa: S104 - the chat page and clients come from other hosts
    device: str = "cuda"  # cuda | cpu
    task: Task = "chat"
    trust_remote_code: bool = False
    config_file: str | None = None  # holds the API key, which must not be in an argv
    adapters: Mapping[str, str] = field(default_factory=dict)  # LoRA: name in the API -> folder
    cache_dir: str | None = None  # for code that the engine compiles; kept between starts
    # A replica that only reads prompts, or only generates: the other kind is a replica of its own.
    disaggregation: Literal["prefill", "decode"] | None = None
    bootstrap_port: int = 8998  # on the head of the prefill replica, where decode ranks find it
    transfer_backend: str | None = None  # what carries the KV cache; None: the engine chooses
    checkpoint: Checkpoint | None = None  # what is served, where the command depends on it
    runtime: str | None = None  # another launcher than the engine's own, such as ray
    extra_args: tuple[str, ...] = ()
    extra_env: Mapping[str, str] = field(default_factory=dict)
    nic: str | None = None
    hca: str | None = None
    ib_gid_index: int | None = None
    cpu_cores: tuple[str, ...] = ()  # with device=cpu, the cores of each rank of this node, as `0-3`


@dataclass(frozen=True)
class Launch:
    """What a rank's container runs. `command` follows the image; `environment` has no secrets.

    `entrypoint` is the program that takes `command` in place of the image's own entrypoint.
    """

    command: list[str]
    environment: dict[str, str]
    entrypoint: str | None = None


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
class MoreMemory:
    """An argument with which a larger fraction of the memory is for weights and KV cache."""

    argument: str  # with its value, as in `--mem-fraction-static 0.88`
    static_fraction: float


@dataclass(frozen=True)
class MemoryUse:
    """What the engine does with one GPU's memory, before the model is loaded.

    `terms` are bytes reserved outside weights and KV cache; `static_fraction` of the memory that is free
    before loading is for these two. `outside` bytes are in use by then: CUDA's context, NCCL's buffers.
    `max_context`: tokens of one request that the user's arguments allow (None: what the model allows).
    `context_flag`: the engine ends at start where one request of that length does not fit into the KV cache,
    and this flag lowers it.
    The KV cache takes `pool_fraction` of what the weights leave.
    """

    terms: Mapping[str, int]
    static_fraction: float
    kv_bytes_per_token: int
    attention_tensor: int  # ranks that share one request's attention
    draft_layers: int  # multi-token-prediction layers that are loaded
    max_tokens: int | None  # the user's own cap on the KV pool
    max_context: int | None = None
    context_flag: str | None = None
    outside: int = 0
    pool_fraction: float = 1.0
    more: MoreMemory | None = None  # where the user has not set the fraction


# Stands for the pattern in `RequestDialect.regex` and `grammar`.
PATTERN = "{pattern}"


@dataclass(frozen=True)
class ScoreRequest:
    """A POST to `path` with a model and texts, outside OpenAI's API: rerank, reward.

    The texts go under the name `texts`. `rows` are keys from the answer to its list of results, `score` from
    a result to its number, or to its list of numbers.
    """

    path: str
    texts: str
    rows: tuple[str, ...]
    score: tuple[str, ...]


@dataclass(frozen=True)
class RequestDialect:
    """What clients must write differently for this engine, as it was started; None: it has no such request.

    `regex` and `grammar` (EBNF as in GBNF) are additions to the body of a chat request, with PATTERN where
    the pattern goes. `ignored` maps a parameter of OpenAI's API that has no effect here to the reason.
    """

    tool_parser: str | None
    reasoning_parser: str | None
    regex: Mapping[str, Any] | None = None
    grammar: Mapping[str, Any] | None = None
    rerank: ScoreRequest | None = None
    reward: ScoreRequest | None = None
    classify: str | None = None  # path of a request with `input`, whose `data` are labels and probabilities
    adapter: str = "{adapter}"  # an adapter's name in `model`; {model} is the name of the base model
    ignored: Mapping[str, str] = field(default_factory=dict)


class Engine(Protocol):
    """One serving engine of one version."""

    name: str  # `engine=` in an inventory
    title: str  # as its own project writes it
    version: str

    def default_image(self, device: str) -> str:
        """The image, with its tag, that serves this version on `device` (cuda or cpu).

        Raises InputError where the engine has no such device.
        """

    def image_version(self, image: str) -> str | None:
        """The version that the image's tag names; None where it names none."""

    def image_recipe(self, device: str) -> ImageRecipe | None:
        """How the image for `device` is built on this machine; None where it can only be pulled."""

    def cuda(self, image: str) -> str:
        """The CUDA version inside the image, as its tag states or as the project ships it; "" if unknown."""

    def check_arguments(self, arguments: Sequence[str]) -> Arguments:
        """Read the user's extra arguments as this version's own parser would."""

    def support_problems(
        self, checkpoint: Checkpoint, gpu: Gpu | None, task: Task, values: Mapping[str, Any]
    ) -> list[str]:
        """Why this version cannot serve the checkpoint on the GPU, a clause each: architecture, quantisation,
        compute capability, task. `values` are those of `check_arguments`. Empty: it can."""

    def fp8_capability(self, checkpoint: Checkpoint) -> tuple[int, int] | None:
        """The lowest compute capability on which this FP8 checkpoint is served as it is; None: on none."""

    def layout(self, tensor: int, pipeline: int, values: Mapping[str, Any]) -> Layout:
        """The layout that results from these sizes and the user's arguments."""

    def layout_problems(
        self,
        checkpoint: Checkpoint,
        machines: Machines,
        layout: Layout,
        *,
        dtype: str,
        values: Mapping[str, Any],
    ) -> list[str]:
        """What this version would refuse about the layout, a clause each; empty when nothing."""

    def pipeline_layers(self, stage: int, stages: int, layers: int, environment: Mapping[str, str]) -> range:
        """The hidden layers that pipeline stage `stage` of `stages` loads, of `layers`. All of them where the
        engine has no such stages. `environment` is the user's. InputError for what it refuses there."""

    def memory_use(
        self, checkpoint: Checkpoint, gpu: Gpu, layout: Layout, values: Mapping[str, Any]
    ) -> MemoryUse:
        """The memory this engine sets aside, given the values of `check_arguments`."""

    def launch(self, request: LaunchRequest) -> Launch:
        """The container's command and environment for this rank.

        Raises InputError for a served name that this version cannot have.
        """

    def rendezvous_ports(self, request: LaunchRequest) -> Sequence[int]:
        """Ports of the head that every rank connects to; a message to one of them may run code there."""

    def config_file(self, *, api_key: str) -> dict[str, str]:
        """What the file named by LaunchRequest.config_file must hold."""

    def readiness(self, task: Task) -> Readiness:
        """How to find out that a replica serves `task`."""

    def log(self) -> Mapping[str, Any]:
        """The data of the engine's log.yml: what its log reports. Keys: plugin_utils/engine_log_rules.py."""

    def metrics(self) -> Metrics:
        """The figures that rank 0 publishes, by the names of this version."""

    def publishes(self, values: Mapping[str, Any]) -> bool:
        """Whether rank 0 publishes them; `values` are those of `check_arguments`."""

    def diagnostics(self) -> Diagnostics:
        """What `deploy diagnose` reads of the engine beside its log."""

    def request_dialect(self, values: Mapping[str, Any]) -> RequestDialect:
        """How clients write what OpenAI's API lacks. `values` are those of `check_arguments`."""
