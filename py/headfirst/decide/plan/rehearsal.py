"""What of a service is rehearsed: its ranks start with dummy weights while the real ones are on their way."""

from __future__ import annotations

from collections.abc import Sequence

from headfirst.decide.cluster.types import Replica
from headfirst.decide.engines.base import DummyWeights, Values
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan import types
from headfirst.decide.plan.launching import Launching

# Beyond the time in which the service must start: by then whoever watches the ranks has stopped them.
_GRACE_S = 60


def plan(
    launched: Sequence[tuple[Launching, Replica]], served: Checkpoint, values: Values
) -> types.Rehearsal:
    """The rehearsal of all replicas; `served` and `values` as of those that answer."""
    launching = launched[0][0]
    engine, settings = launching.engine, launching.service.settings
    dummies = engine.dummy_weights(served, values)
    seconds = settings.ready_timeout + _GRACE_S
    if dummies.problem:
        return types.Rehearsal(not_rehearsed=f"{engine.title}: {dummies.problem}.", seconds=seconds)
    return types.Rehearsal(
        seconds=seconds,
        left_out=[f"Adapters ({', '.join(launching.adapters)})."] if launching.adapters else [],
        replicas=_replicas(launched, dummies, seconds),
    )


def _replicas(
    launched: Sequence[tuple[Launching, Replica]], dummies: DummyWeights, seconds: int
) -> list[types.PlannedReplica]:
    return [launching.rehearsal(replica, dummies, seconds) for launching, replica in launched]
