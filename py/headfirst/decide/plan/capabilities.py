"""What clients can ask of a service: tool calls, reasoning apart from the answer, long requests. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from headfirst.decide.engines.base import Engine
from headfirst.decide.engines.presets import Purpose
from headfirst.decide.plan.pool import Pool
from headfirst.decide.plan.presets import GENERATING, why_nothing
from headfirst.decide.plan.types import Capabilities, Capability, Fit, PlannedReplica


def of(engine: Engine, pools: Sequence[Pool], replicas: Sequence[PlannedReplica]) -> Capabilities:
    """Those of the planned arguments."""
    main, dialect = pools[-1], engine.request_dialect(pools[-1].values)
    started = of_command(engine, replicas[-1].nodes[0].container.command)  # with what the plan sets for CPUs
    context = min(_context(pool.sized.fit, started.context_tokens) for pool in pools)
    return Capabilities(
        tools=_capability("tools", dialect.tool_parser, main),
        reasoning=_capability("reasoning", dialect.reasoning_parser, main),
        context_tokens=context,
        full_requests=_full_requests(main.sized.fit, context, len(main.service.replicas)),
    )


def of_command(engine: Engine, command: Sequence[str]) -> Capabilities:
    """What the command of a rank alone proves; words that are no arguments of the engine are passed over."""
    values = engine.check_arguments(command).values
    dialect = engine.request_dialect(values)
    tools, reasoning = (
        Capability(state="on" if parser else "off", reason=parser or "the engine runs without a parser")
        for parser in (dialect.tool_parser, dialect.reasoning_parser)
    )
    lengths = [values.get(name) or 0 for name in ("context_length", "max_model_len", "session_len")]
    context = next((length for length in lengths if length > 0), None)
    return Capabilities(tools=tools, reasoning=reasoning, context_tokens=context, full_requests=None)


def sentence(capabilities: Capabilities) -> str:
    """The capabilities for people, in one line."""
    its = capabilities
    titled = {"Tools": its.tools, "Reasoning": its.reasoning}
    parts = [f"{title}: {each.state} ({each.reason})." for title, each in titled.items()]
    if its.context_tokens:
        requests = "request" if its.full_requests == 1 else "requests"
        fit = f", {its.full_requests:,} such {requests} at once" if its.full_requests is not None else ""
        parts.append(f"Context {its.context_tokens:,} tokens{fit}.")
    return " ".join(parts)


def _capability(purpose: Purpose, parser: str | None, main: Pool) -> Capability:
    if parser:
        return Capability(state="on", reason=parser)
    if main.task not in GENERATING:
        return Capability(state="off", reason=why_nothing(main.task))
    if main.service.settings.parsers == "none":
        return Capability(state="off", reason="parsers=none")
    return Capability(state="off", reason=main.choice.absent.get(purpose, "engine_args sets it so"))


def _context(fit: Fit, started: int | None) -> int:
    """Tokens of the longest request; those of the argument where the memory is not known."""
    if fit.gpu_memory_bytes is None:
        return started or fit.context
    return fit.longest_request or fit.context


def _full_requests(fit: Fit, context: int, replicas: int) -> int | None:
    """Requests of `context` tokens, each in the KV cache of one group of ranks."""
    if not fit.kv_tokens or fit.kv_tokens_of_replica is None:
        return None
    groups, at_once = fit.kv_tokens_of_replica // fit.kv_tokens, fit.kv_tokens // context
    return replicas * groups * (at_once if fit.requests is None else min(at_once, fit.requests))
