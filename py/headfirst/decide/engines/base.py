"""The contract of an engine: everything that differs between SGLang, vLLM and LMDeploy is asked of it.

An engine is a description, of what its image or the snapshot answered, and not a process: everything here is
pure, and no engine is installed. docs/new-engine.md describes how to add one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

from headfirst.common.errors import InputError
from headfirst.common.metrics import Metrics as Metrics
from headfirst.decide.cluster.settings import KvCarrier, Role
from headfirst.decide.containers.image import ImageRecipe
from headfirst.decide.engines import arguments
from headfirst.decide.engines.answers import Answers, snapshot
from headfirst.decide.engines.arguments import Arguments, RefusedOption, Specification
from headfirst.decide.engines.arguments import Values as Values
from headfirst.decide.engines.host_memory import NOTHING, HostRequest, KeptMemory
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.hardware.gpus import MIB, Gpu
from headfirst.decide.model.adapter import AdapterConfig
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.task import Task as Task

if TYPE_CHECKING:
    from headfirst.decide.diagnose.types import Live, NodeFacts, Tuning


@dataclass(frozen=True)
class KvTransfer:
    """How a prefill or decode replica exchanges its KV cache with the others.

    `rdma`: whether RDMA connects them; None: not known.
    """

    role: Role
    carrier: KvCarrier
    port: int
    rdma: bool | None


KEY_FILE = "the API key of the file"  # stands in variable_aliases for what no variable sets


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
    port: int
    shares_host: bool = False  # a replica of the service before it has the first ports of the host
    listen_address: str = "0.0.0.0"  # noqa: S104 - the chat page and clients come from other hosts
    device: str = "cuda"  # cuda | cpu
    task: Task = "chat"
    trust_remote_code: bool = False
    config_file: str | None = None  # holds the API key, which must not be in an argv
    adapters: Mapping[str, str] = field(default_factory=dict)  # LoRA: name in the API -> folder
    cache_dir: str | None = None  # for code that the engine compiles; kept between starts
    checkpoint: Checkpoint | None = None  # what is served, where the command depends on it
    runtime: str | None = None  # another launcher than the engine's own, such as ray
    transfer: KvTransfer | None = None  # where prefill and decode are divided
    extra_args: tuple[str, ...] = ()
    extra_env: Mapping[str, str] = field(default_factory=dict)
    nic: str | None = None
    hca: str | None = None  # NCCL_IB_HCA
    ib_gid_index: int | None = None
    ready_seconds: int | None = None  # until then the replica must serve
    cpu_cores: tuple[str, ...] = ()  # with device=cpu, the cores of each rank of this node, as `0-3`


@dataclass(frozen=True)
class Launch:
    """What a rank's container runs. `command` follows the image; `environment` has no secrets.

    `entrypoint` is the program that takes `command` in place of the image's own entrypoint. `programs` are
    those that the image must have beside the engine. `files` are programs in `command`, by path.
    """

    command: list[str]
    environment: dict[str, str]
    entrypoint: str | None = None
    programs: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MissingProgram:
    """A program that the images of a repository lack from the version `since` on, and what to do there."""

    program: str
    repository: str
    since: str
    hint: str


# Values of the engines' --dtype.
FLOAT_NAMES = {"half": "fp16", "float16": "fp16", "bfloat16": "bf16", "float": "fp32", "float32": "fp32"}


BF16_CAPABILITY = (8, 0)
# vllm/config/model.py, _FLOAT16_NOT_SUPPORTED_MODELS, by beginnings of architectures.
_OVERFLOWING = ("Gemma2", "Gemma3F", "Glm4F")


def overflow(title: str, checkpoint: Checkpoint, gpu: Gpu | None, values: Values) -> list[str]:
    """Why an engine that computes FP16 where a GPU has no BF16 gives no answers of this model, a clause."""
    dtype = FLOAT_NAMES.get(str(values.get("dtype", "auto")).lower(), checkpoint.dtype)
    without = gpu is not None and gpu.lacks(BF16_CAPABILITY)
    if not checkpoint.architecture.startswith(_OVERFLOWING) or not (without or dtype == "fp16"):
        return []
    why = f"{gpu} has no BF16" if without else "write --dtype bfloat16"
    return [f"{title} computes in FP16, in which {checkpoint.architecture} overflows: {why}"]


@dataclass(frozen=True)
class Computing:
    """The type in which an engine computes a checkpoint that is not quantised, and why it is not its own."""

    dtype: str  # bf16 | fp16 | fp32
    reason: str


@dataclass(frozen=True)
class ArgumentNeeds:
    """What LoRA adapters or a draft model need of the engine's arguments: flags with values, and why.

    `note`: what is not known; `problem`: why the engine refuses them, a clause.
    """

    arguments: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    source: str = ""
    note: str = ""
    problem: str = ""


@dataclass(frozen=True)
class DraftRequest:
    """A draft model: its folder on every node, and its kind.

    `target.draft` is its checkpoint, None where it was not read. `kind` is drafting.Kind or `standalone`; ""
    where it is not known. `values` are those of the user's arguments.
    """

    target: Checkpoint
    kind: str
    folder: str
    values: Values


@dataclass(frozen=True)
class AdapterSlots:
    """The argument for how many LoRA adapters have buffers on the GPU, and its default.

    `base`: requests without an adapter take a slot, too.
    """

    flag: str
    default: int
    base: bool = False


@dataclass(frozen=True)
class CacheRoom:
    """What a KV cache holds on one rank: `tokens` of all requests, as the engine reports them.

    `longest`: tokens of the longest request that fits. `requests`: how many at a time, where these keep a
    state of constant size; None: as many as the tokens allow.
    """

    tokens: int
    longest: int
    requests: int | None = None


def room_by_token(bytes_per_token: int, cap: int | None = None) -> Callable[[int], CacheRoom]:
    """What a cache holds that takes the same for each token; `cap`: the user's own limit in tokens."""

    def room(size: int) -> CacheRoom:
        tokens = size // bytes_per_token if bytes_per_token else 0
        tokens = tokens if cap is None else min(tokens, cap)
        return CacheRoom(tokens, tokens)

    return room


@dataclass(frozen=True)
class MemoryFraction:
    """The engine's argument for its share of a GPU's memory, and the value with which it starts."""

    flag: str
    value: float
    is_set: bool  # by the inventory or a preset; else the engine's own, by its formula


@dataclass(frozen=True)
class MemoryUse:
    """What the engine does with one GPU's memory, before the model is loaded.

    `terms` are bytes reserved outside weights and KV cache; `static_fraction` of the memory that is free
    before loading is for these two. `outside` bytes are in use by then: CUDA's context, NCCL's buffers.
    `estimates` are the terms which the engine measures at its start, so that they are not known before.
    `room` is what a KV cache of a number of bytes holds; a request takes `state_bytes_per_request` of it and
    `kv_bytes_per_token` for each token. The KV cache takes `pool_fraction` of what the weights leave.
    `max_context`: tokens of one request that the user's arguments allow (None: what the model allows).
    The engine ends at start where such a request does not fit into the cache, or where it has room for fewer
    than `requests`; `context_flag` and `requests_flag` lower these. None: it starts all the same.
    `context_given` and `requests_given`: the arguments set them.
    """

    terms: Mapping[str, int]
    static_fraction: float
    kv_bytes_per_token: int
    attention_tensor: int  # ranks that share one request's attention
    draft_layers: int  # multi-token-prediction layers of the checkpoint that are loaded
    room: Callable[[int], CacheRoom]
    state_bytes_per_request: int = 0
    max_context: int | None = None
    context_flag: str | None = None
    context_given: bool = False
    requests: int = 1
    requests_given: bool = False
    requests_flag: str | None = None
    estimates: frozenset[str] = frozenset()
    draft_tensor: int = 1  # ranks that divide a draft model
    embedding_tensor: int | None = None  # ranks that divide the embedding; None: those of attention
    head_tensor: int | None = None  # ranks that divide the head; None: all of them
    expert_growth: float = 1.0  # bytes of routed experts in memory for each byte in the checkpoint
    vision_whole: bool = False  # each rank has the vision encoder
    # Of the bytes of a stage's layers, those that stay in the host's memory.
    host_weights: Callable[[float], float] = lambda layers: 0
    outside: int = 0
    pool_fraction: float = 1.0
    fraction: MemoryFraction | None = None


# In use before the weights are loaded: CUDA's context, NCCL's buffers, what the driver keeps of the memory
# that nvidia-smi reports. One GPU: 23.99 − 3.64 − 18.82 GiB on an RTX 4090 (sglang #4895). Several GPUs:
# 140.4 − 12.25 − 125.65 GiB on H200 (InferenceX #2128), 80 − 36.5 − 41.2 GiB on A100 (sglang #4161, #3784).
_ONE_GPU = 1536 * MIB
_SEVERAL_GPUS = 2560 * MIB


def cuda_overhead(layout: Layout) -> int:
    """Bytes of each GPU that CUDA's context, NCCL's buffers and the driver take."""
    return _ONE_GPU if layout.world == 1 else _SEVERAL_GPUS


# Of options that all engines have: where a person finds the key, and how TLS and texts come about.
OWN_KEY = (
    "The plan makes a key and passes it in a file, so that no process list shows it: leave it out. For a key "
    "that clients have already, set api_key_file=PATH. `deploy credentials` prints the key; with proxy=true "
    "`deploy keys add` makes one for each user."
)
TLS = RefusedOption(
    "The checks, the router and the chat page use HTTP: set tls=files or tls=local-ca in the inventory, "
    "which puts a proxy with TLS in front."
)
TEXTS = RefusedOption(
    "Clients, the chat page and the checks send texts, which need the tokenizer: leave it out."
)
# With 0 the service refuses, or leaves waiting, each request.
SOME = RefusedOption(
    "No request would be answered: write 1 or more.", harmless=lambda number: number is None or number > 0
)
WAITING = "The service answers nobody until another program sends it"

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
    the pattern goes. `ignored` maps a parameter of OpenAI's API that has no effect here to the reason,
    `left_out` a case of `deploy test` that the arguments rule out. `named_tool`: whether a grammar makes the
    model call the tool that a request names. `at_once`: the requests that are accepted at a time;
    None: no limit is set.
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
    left_out: Mapping[str, str] = field(default_factory=dict)
    named_tool: str = ""
    at_once: int | None = None

    def paths_outside_v1(self, task: Task) -> list[str]:
        """Paths of the task's requests that are not below /v1/, where routers and proxies expect them."""
        paths = {self.classify, self.reward.path if self.reward else None} if task == "reward" else set()
        return sorted(path for path in paths if path and not path.startswith("/v1/"))


def without_images(values: Values, flag: str, limits: object) -> dict[str, str]:
    """`RequestDialect.left_out` of a service that takes no images; `limits` are those of `flag`."""
    if values.get("language_model_only"):
        return {"vision.image": "--language-model-only takes no images"}
    if isinstance(limits, Mapping) and limits.get("image") == 0:
        return {"vision.image": f"{flag} takes no images"}
    return {}


@dataclass(frozen=True)
class ReadinessProbe:
    """When a replica counts as ready; only rank 0 is asked.

    GET `path` answers 200, and POST `probe_path` with `probe_body` answers with something at `answer`: keys
    and indices of the JSON document, as `("usage", "completion_tokens")`. Both carry the API key, and the
    body the served name as `model`. `generates`: 200 at `path` alone proves that the model computes, so that
    a running service need not be probed.
    """

    path: str
    probe_path: str
    probe_body: Mapping[str, Any]
    answer: tuple[str | int, ...]
    generates: bool = False


@dataclass(frozen=True)
class Diagnostics:
    """What `deploy diagnose` reads of an engine beside its log.

    Flags are those of the command line, as `--node-rank`; "" where the engine has none.
    `tune` gives advice from the nodes (rank 0 first), the live figures (None: the engine gives none) and the
    flags that have a value; it returns None where these report nothing. No `tune`: there are no tuning rules.
    """

    rank_flag: str = ""  # two ranks with one value are a mistake
    head_flag: str = ""  # the same on all ranks
    own_flags: frozenset[str] = frozenset()  # what one rank has and another does not
    secret_flags: frozenset[str] = frozenset()  # their values are never shown
    slow_start_flags: frozenset[str] = frozenset()  # with one the start of a large model takes 20 minutes
    tune: Callable[[Sequence[NodeFacts], Live | None, Mapping[str, str]], Tuning | None] | None = None


@dataclass(frozen=True)
class DummyWeights:
    """Arguments with which ranks start without weights, or why there are none, a clause."""

    arguments: tuple[str, ...] = ()
    problem: str = ""


_NO_DUMMIES = DummyWeights(problem="the engine cannot start without weights")
_NO_DRAFT = ArgumentNeeds(problem="the engine takes no draft model")

Adapters = Mapping[str, AdapterConfig | None]
"""LoRA adapters by name; None: its adapter_config.json was not read."""


@dataclass(frozen=True)
class RoleLayout:
    """The prefill or the decode replicas of a service, which are alike."""

    layout: Layout
    values: Values


@dataclass(frozen=True)
class Disaggregation:
    """How an engine divides prefill and decode. `carriers` of the KV cache: the first is the default.

    `problems` are why prefill replicas and decode replicas cannot exchange it, a clause each. `side` is the
    argument, by its destination, whose value is the role, where memory depends on it. `probe_body` is
    what a request has that one replica alone answers. `worker` is what a router (smg) must be given of a
    replica beside its address: fields of a worker in its API.
    """

    carriers: Sequence[KvCarrier]
    problems: Callable[[Checkpoint, RoleLayout, RoleLayout], Iterable[str]]
    worker: Callable[[KvTransfer], Mapping[str, Any]]
    probe_body: Mapping[str, Any] = field(default_factory=dict)
    side: str | None = None

    def values(self, role: Role | None) -> Values:
        """What is added to the values of arguments of a replica of this role."""
        return {self.side: role} if self.side and role else {}


@dataclass(frozen=True)
class EngineStart:
    """What an engine starts with, beside the checkpoint. `cuda`: of the image; "" where it is not known."""

    image: str
    cuda: str
    gpu: Gpu | None
    nodes: int
    values: Values


class LayoutProblems(Protocol):
    """What the engine would refuse about a layout, a clause each; empty when nothing."""

    def __call__(
        self, checkpoint: Checkpoint, machines: Machines, layout: Layout, *, dtype: str, values: Values
    ) -> list[str]:
        """`dtype` is what is served."""


@dataclass(frozen=True, eq=False)
class Engine:
    """One serving engine: data, and pure functions."""

    name: str  # `engine=` in an inventory, and the name of the engine's folder
    title: str  # as its own project writes it
    answers: Answers  # its version, options and tables
    images: Mapping[str, str]  # with their tags, by device: cuda, cpu
    # Options that the plan sets, by destination: the sentence that states where a person sets them.
    owned: Mapping[str, str]
    metrics: Metrics  # the figures that rank 0 publishes, by the names of this version
    probes: Mapping[Task, ReadinessProbe]  # a task that is not there is asked as chat is
    # Why this version cannot serve the checkpoint on the GPU, a clause each: architecture, quantisation,
    # compute capability, task. Empty: it can.
    support_problems: Callable[[Checkpoint, Gpu | None, Task, Values], list[str]]
    # The lowest compute capability on which this FP8 checkpoint is served as it is; None: on none.
    fp8_capability: Callable[[Checkpoint], tuple[int, int] | None]
    # The layout that results from the tensor and the pipeline size and the user's arguments.
    layout: Callable[[int, int, Values], Layout]
    layout_problems: LayoutProblems
    memory_use: Callable[[Checkpoint, Gpu, Layout, Values], MemoryUse]
    # The container's command and environment for a rank. InputError for a served name or a runtime that this
    # version cannot have.
    launch: Callable[[LaunchRequest], Launch]
    # Ports of the head that every rank connects to; a message to one of them may run code there.
    rendezvous_ports: Callable[[LaunchRequest], Sequence[int]]
    # How clients write what OpenAI's API lacks.
    request_dialect: Callable[[Values], RequestDialect]
    # Further ports of a rank's host that only this rank may have; by default none.
    more_ports: Callable[[LaunchRequest], Sequence[int]] = lambda request: ()
    # The hidden layers that a pipeline stage loads, of the stage, the number of stages and of layers, and the
    # user's environment. InputError for what the engine refuses there. By default all: it has no such stages.
    pipeline_layers: Callable[[int, int, int, Mapping[str, str]], range] = (
        lambda stage, stages, layers, environment: range(layers)
    )
    # The type in which it computes; None, and by default: that of the checkpoint.
    computing: Callable[[Checkpoint, Gpu | None, Values], Computing | None] = lambda model, gpu, values: None
    # What the adapters need, or why one is refused; by default nothing.
    adapter_needs: Callable[[Adapters, Values], ArgumentNeeds] = lambda adapters, values: ArgumentNeeds()
    # What a draft model needs, or why it is refused.
    draft_needs: Callable[[DraftRequest], ArgumentNeeds] = lambda request: _NO_DRAFT
    # The draft that arguments name, and the flag that names it; two empty texts where they name none.
    named_draft: Callable[[Values], tuple[str, str]] = lambda values: ("", "")
    # The buffers of adapters; None: it has no such argument.
    adapter_slots: AdapterSlots | None = None
    # Why the longest request that the arguments set is refused, of the checkpoint, the arguments' values and
    # the user's environment, a clause each. By default nothing: it accepts every length.
    length_problems: Callable[[Checkpoint, Values, Mapping[str, str]], list[str]] = (
        lambda checkpoint, values, environment: []
    )
    # How it divides prefill and decode; None: not as these routers need it.
    disaggregation: Disaggregation | None = None
    ports_alone: range = range(0)  # of which a replica on one host takes a port, on every interface
    # Why what is in the image cannot serve the checkpoint on the GPU, a clause each. By default nothing.
    start_problems: Callable[[Checkpoint, EngineStart], list[str]] = lambda checkpoint, start: []
    publishes: Callable[[Values], bool] = lambda values: True  # whether rank 0 publishes the metrics
    # Options with which the service would not answer clients, checks or monitoring, by destination.
    refused: Mapping[str, RefusedOption] = field(default_factory=dict)
    bounds: Mapping[str, RefusedOption] = field(default_factory=dict)  # of numbers, by destination
    parse: Callable[[Specification, Sequence[str]], Arguments] = arguments.check
    key_name: str = "api-key"  # of the API key in the file named by LaunchRequest.config_file
    # Of the admin key there; the same name: it is a list of both. None: the engine has none.
    admin_key_name: str | None = None
    diagnostics: Diagnostics = Diagnostics()
    recipes: Sequence[ImageRecipe] = ()  # of images that are built here instead of pulled
    # Other names under which it reads variables that the plan sets.
    variable_aliases: Mapping[str, str] = field(default_factory=dict)
    # Variables of the environment that name packages with model classes of the user.
    package_variables: frozenset[str] = frozenset()
    image_cuda: Mapping[str, str] = field(default_factory=dict)  # end of an image -> its CUDA version
    no_device: str = ""  # what to do where `images` lacks a device
    # What the ranks of a host keep in its memory and in folders.
    host_memory: Callable[[HostRequest], KeptMemory] = lambda request: NOTHING
    missing_programs: Sequence[MissingProgram] = ()  # of the project's own images
    # How it starts without weights, of the checkpoint that is served and the arguments' values.
    dummy_weights: Callable[[Checkpoint, Values], DummyWeights] = lambda checkpoint, values: _NO_DUMMIES

    @property
    def version(self) -> str:
        """What the image answered; else what its tag, or the inventory, states."""
        return self.answers.version

    @property
    def described_by(self) -> str:
        """Who stated options and tables: the image, or the snapshot."""
        if self.answers.image:
            return f"the image {self.answers.image[: len('sha256:') + 12]}"
        return f"the snapshot of {self.title} {snapshot(self.name).version}"

    @cached_property
    def specification(self) -> Specification:
        """The options of this version."""
        return arguments.load(self.answers, self.title, self.owned, self.refused, self.bounds)

    def default_image(self, device: str) -> str:
        """The image, with its tag, that serves this version on `device`; InputError where it has none."""
        if device not in self.images:
            raise InputError(f"{self.title} has no back end for {device.upper()}s.", hint=self.no_device)
        return self.images[device]

    def image_version(self, image: str) -> str | None:
        """The version in tags like v0.5.23, v0.33.0-cu129, 0.32.1rc2 and v0.5.23.post1-rocm700; else None."""
        tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
        match = re.match(r"v?(\d+\.\d+\.\d+(?:\.post\d+|rc\d+)?)(?![\w.])", tag)
        return match[1] if match else None

    def missing(self, programs: Sequence[str], image: str) -> MissingProgram | None:
        """The first of `programs` that an image is known to lack; an image of another name may have all."""
        repository = image.removeprefix("docker.io/").partition("@")[0].partition(":")[0]
        version = self.image_version(image)
        return next(
            (
                lack
                for lack in self.missing_programs
                if lack.program in programs
                and lack.repository == repository
                and (version is None or version_numbers(version) >= version_numbers(lack.since))
            ),
            None,
        )

    def image_recipe(self, device: str) -> ImageRecipe | None:
        """How the image for `device` is built on this machine; None where it can only be pulled."""
        return next((recipe for recipe in self.recipes if recipe.tag == self.images.get(device)), None)

    def cuda(self, image: str) -> str:
        """The CUDA version in an image: answered, by -cu129 in its tag, or as published; "" if unknown."""
        if self.answers.image and re.fullmatch(r"\d+\.\d+", self.answers.cuda):
            return self.answers.cuda
        if match := re.search(r"-cu(\d\d)\.?(\d)\b", image):
            return f"{match[1]}.{match[2]}"
        return next((version for end, version in self.image_cuda.items() if image.endswith(end)), "")

    def check_arguments(self, words: Sequence[str]) -> Arguments:
        """Read the user's extra arguments as this version's own parser would."""
        return self.parse(self.specification, words)

    def sets(self, words: Sequence[str], values: Values) -> bool:
        """Whether the arguments set one of the values."""
        return not self.check_arguments(words).values.keys().isdisjoint(values)

    def readiness(self, task: Task) -> ReadinessProbe:
        """How to find out that a replica serves `task`."""
        return self.probes.get(task, self.probes["chat"])

    def config_file(self, *, api_key: str, admin_key: str | None = None) -> dict[str, Any]:
        """What the file named by LaunchRequest.config_file must hold; its options are the engine's own."""
        if admin_key is not None and self.admin_key_name == self.key_name:
            return {self.key_name: [api_key, admin_key]}
        if admin_key is None or f"--{self.admin_key_name}" not in self.answers.by_flag:
            return {self.key_name: api_key}
        return {self.key_name: api_key, str(self.admin_key_name): admin_key}

    def log(self) -> Mapping[str, Any]:
        """The data of the engine's log.yml: what its log reports. Keys: plugin_utils/engine_log_rules.py."""
        return _log(self.name)


def version_numbers(version: str) -> tuple[int, ...]:
    """A version's numbers, for the order; a candidate counts as its release."""
    return tuple(map(int, re.findall(r"\d+", version.partition("rc")[0])))


@cache
def _log(engine: str) -> dict[str, Any]:
    import yaml

    text = files(f"{__package__}.{engine}").joinpath("log.yml").read_text(encoding="utf-8")
    data: dict[str, Any] = yaml.safe_load(text)
    return data
