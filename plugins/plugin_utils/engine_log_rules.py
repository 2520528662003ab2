"""What an engine's log says, as data: why a rank died, and what a rank is doing."""

from __future__ import annotations

import re
import typing as t


class Rule(t.NamedTuple):
    """A line that tells why a rank died. `echo` marks what a rank writes when another one has died first."""

    pattern: str
    reason: str
    hint: str
    echo: bool = False


class Cause(t.NamedTuple):
    """Why a rank died: in words, what to do next, and the log lines that say so."""

    reason: str
    hint: str
    lines: t.List[str]
    echo: bool


# Lines seen with SGLang 0.5.23 on CPUs; the CUDA ones as in its issue tracker. The first line of a log that
# any rule matches decides.
RULES: t.Tuple[Rule, ...] = (
    Rule(
        r"error: (unrecognized arguments|argument |ambiguous option|the following arguments)",
        "the engine does not know one of its arguments, or refuses the value",
        "Correct engine_args in the inventory; the engine's own message above names the argument.",
    ),
    Rule(
        r"must be divisible by",
        "the parallel sizes do not fit the model or the number of nodes",
        "Correct tensor_parallel and pipeline_parallel in the inventory; `deploy plan` shows what fits.",
    ),
    Rule(
        r"DistStoreError.*clients joined|Timed out after \d+ seconds waiting for clients",
        "not all ranks came to the rendezvous in time",
        "Look at the ranks that are missing: do they run, and do they reach the head's dist_port? A firewall "
        "or a wrong address of the head does this. A slow start needs a larger --dist-timeout.",
        echo=True,
    ),
    Rule(
        r"DistNetworkError|client socket has (timed out|failed to connect)",
        "it did not reach rank 0 on the head's dist_port",
        "Check that rank 0 runs, and from this node that the head's address and dist_port can be reached.",
        echo=True,
    ),
    Rule(
        r"[Aa]ddress already in use|\[Errno 98\]",
        "a port that it needs is taken",
        "Find the owner with `ss -ltnp` on this host, or choose another engine_port or dist_port.",
    ),
    Rule(
        r"MetadataIncompleteBuffer|HeaderTooLarge|InvalidHeaderDeserialization|SafetensorError",
        "a weight file is cut short or damaged",
        "Bring the weights again on this host: the weights stage verifies every shard by hash.",
    ),
    Rule(
        r"CUDA out of memory|OutOfMemoryError|Not enough memory|DefaultCPUAllocator: can't allocate memory",
        "it ran out of memory",
        "Lower --mem-fraction-static or --context-length in engine_args, or spread the model over more GPUs.",
    ),
    Rule(
        r"No space left on device",
        "a file system is full, most likely /dev/shm",
        "Give the container a larger shm_size, or free the disk.",
    ),
    Rule(
        r"connectFullMesh failed|Gloo connectFullMesh",
        "the ranks cannot reach each other over the chosen network interface",
        "Set nic in the inventory to the interface that carries the cluster's addresses.",
    ),
    Rule(
        r"ibv_\w+ .*failed|ibv_reg_mr|NCCL error|ncclSystemError|ncclInternalError|ncclRemoteError",
        "NCCL failed",
        "Check nic, hca and ib_gid_index in the inventory; NCCL_DEBUG=INFO in engine_env tells more.",
    ),
    Rule(
        r"Connection closed by peer|Connection reset by peer|Broken pipe",
        "it lost another rank",
        "Look at the other ranks: the one that died first has the reason.",
        echo=True,
    ),
    Rule(
        r"(FileNotFoundError|OSError|ValueError): .*(config\.json|tokenizer|model)",
        "the model's folder does not hold what the engine needs",
        "Run the weights stage again and compare the folder on this host with the head's.",
    ),
)

# The exception that ended the first traceback, or an engine's own error line.
_ANY_ERROR = re.compile(r"(^|\s)([A-Za-z_.]*(Error|Exception)|error): \S")

# After one of these the engine is on its way out, though its container may still be "running".
DYING = re.compile(
    r"Received sigquit from a child process|SIGQUIT received|Scheduler hit an exception"
    r"|terminated with -?[1-9]|error while attempting to bind|Initialization failed"
)

# What a rank is doing, by the last line that matches; {0}, {1} are the groups of the pattern.
STAGES: t.Tuple[t.Tuple[str, str], ...] = (
    (r"server_args=", "starting"),
    (r"Init (torch distributed|parallel) begin", "joining the other ranks"),
    (r"Init (torch distributed|parallel) ends", "all ranks joined"),
    (r"Load weight begin", "loading weights"),
    (r"[Ll]oading .*shards.*?(\d+)/(\d+)", "loading weights {0}/{1}"),
    (r"Load weight end", "weights loaded"),
    (r"Capture .*begin", "capturing graphs"),
    (r"Application startup complete|Uvicorn running", "warming up"),
    (r"fired up and ready", "ready"),
)

_LINE_LIMIT = 300


def find_cause(log: t.List[str]) -> t.Optional[Cause]:
    """Return why the rank whose log this is died; None when no line tells."""
    for line in log:
        for rule in RULES:
            if re.search(rule.pattern, line):
                return Cause(rule.reason, rule.hint, _decisive(log, line), rule.echo)
    for line in log:
        if _ANY_ERROR.search(line):
            hint = "Read the whole log on that host, `docker logs`, from this line on."
            return Cause("the engine failed", hint, _decisive(log, line), False)
    return None


def doing(log: t.List[str]) -> str:
    """Return in a few words what a rank is doing, `starting` when its log does not tell."""
    for line in reversed(log):
        for pattern, words in STAGES:
            match = re.search(pattern, line)
            if match:
                return words.format(*match.groups())
    return "starting"


def shown(line: str) -> str:
    """Return a log line as it may be shown: short, and without the argument dump that holds the API keys."""
    return re.sub(r"server_args=.*", "server_args=...", line).strip()[:_LINE_LIMIT]


def _decisive(log: t.List[str], first: str) -> t.List[str]:
    """Return the first line that tells and at most two further ones that name an error."""
    lines = [first] + [line for line in log if _ANY_ERROR.search(line)]
    return list(dict.fromkeys(shown(line) for line in lines))[:3]
