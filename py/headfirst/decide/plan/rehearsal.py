"""What of a service is rehearsed: its ranks start with dummy weights while the real ones are on their way."""

from __future__ import annotations

from collections.abc import Sequence

from headfirst.decide.cluster.types import Replica
from headfirst.decide.engines.base import Values
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan import types
from headfirst.decide.plan.launching import Launching

# Shorter than this the real start comes soon enough.
_LONG_S = 180
# Beyond the time in which the service must start: by then whoever watches the ranks has stopped them.
_GRACE_S = 60


def plan(
    launched: Sequence[tuple[Launching, Replica]], served: Checkpoint, values: Values, weights: types.Weights
) -> types.Rehearsal:
    """The rehearsal of all replicas; `served` and `values` as of those that answer."""
    launching = launched[0][0]
    engine, settings = launching.engine, launching.service.settings
    dummies = engine.dummy_weights(served, values)
    seconds, strict = settings.ready_timeout + _GRACE_S, settings.rehearse == "strict"
    left_out = [f"Adapters ({', '.join(launching.adapters)})."] if launching.adapters else []
    return types.Rehearsal(
        not_rehearsed=f"{engine.title}: {dummies.problem}." if dummies.problem else "",
        in_up=strict or (settings.rehearse == "auto" and weights.time.seconds > _LONG_S),
        strict=strict,
        left_out=[] if dummies.problem else left_out,
        seconds=seconds,
        replicas=[]
        if dummies.problem
        else [launching.rehearsal(replica, dummies, seconds) for launching, replica in launched],
    )
