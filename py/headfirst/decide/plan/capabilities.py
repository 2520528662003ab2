"""What clients can ask of a service: tool calls, reasoning apart from the answer, long requests. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from headfirst.decide.engines import arguments
from headfirst.decide.engines.base import Engine
from headfirst.decide.engines.presets import Purpose, destination
from headfirst.decide.plan.pool import Pool
from headfirst.decide.plan.presets import GENERATING, foreign, why_nothing
from headfirst.decide.plan.types import Capabilities, Capability, Fit, PlannedReplica

# Of each engine, by destination.
_LENGTHS = ("context_length", "max_model_len", "session_len")


def of(
    engine: Engine, pools: Sequence[Pool], replicas: Sequence[PlannedReplica], version: str | None
) -> Capabilities:
    """Those of the planned arguments. `version`: of an image without tables."""
    main, dialect = pools[-1], engine.request_dialect(pools[-1].values)
    context = min(_context(its, replicas[-1]) for its in pools)
    return Capabilities(
        tools=_capability("tools", dialect.tool_parser, main, version),
        reasoning=_capability("reasoning", dialect.reasoning_parser, main, version),
        context_tokens=context,
        full_requests=_full_requests(main.sized.fit, context, len(main.service.replicas)),
    )


def sentence(capabilities: Capabilities) -> str:
    """The capabilities for people, in one line."""
    its = capabilities
    parts = [f"{title}: {each.state} ({each.reason})." for title, each in _titled(its)]
    if its.context_tokens:
        fit = f", {its.full_requests:,} such requests at once" if its.full_requests is not None else ""
        parts.append(f"Context {its.context_tokens:,} tokens{fit}.")
    return " ".join(parts).replace(" 1 such requests", " 1 such request")


def _titled(its: Capabilities) -> list[tuple[str, Capability]]:
    return [("Tools", its.tools), ("Reasoning", its.reasoning)]


def _capability(purpose: Purpose, parser: str | None, main: Pool, version: str | None) -> Capability:
    if parser:
        return Capability(state="on", reason=parser)
    if main.task not in GENERATING:
        return Capability(state="off", reason=why_nothing(main.task))
    if version:
        return Capability(state="unknown", reason=foreign(version))
    if main.service.settings.parsers == "none":
        return Capability(state="off", reason="parsers=none")
    return Capability(state="off", reason=main.choice.absent.get(purpose, "engine_args sets it so"))


def _context(its: Pool, replica: PlannedReplica) -> int:
    """Tokens of the longest request; those of the argument where the memory is not known."""
    fit = its.sized.fit
    if fit.gpu_memory_bytes is not None:
        return fit.longest_request or fit.context
    given = [its.values.get(name) or 0 for name in _LENGTHS]
    for flag, *value in arguments.each(replica.nodes[0].container.command):  # what the plan sets for CPUs
        if destination(flag) in _LENGTHS and value and value[0].isdecimal():
            given.append(int(value[0]))
    return next((length for length in given if length > 0), fit.context)


def _full_requests(fit: Fit, context: int, replicas: int) -> int | None:
    """Requests of `context` tokens, each in the KV cache of one group of ranks."""
    if not fit.kv_tokens or fit.kv_tokens_of_replica is None:
        return None
    groups, at_once = fit.kv_tokens_of_replica // fit.kv_tokens, fit.kv_tokens // context
    return replicas * groups * (at_once if fit.requests is None else min(at_once, fit.requests))
