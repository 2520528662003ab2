"""The plan once more, with what the images of its services answer, before any byte of the weights."""

from __future__ import annotations

from typing import NamedTuple

from headfirst.common.errors import InputError
from headfirst.control.deployment.asked_images import STAGE, images, missing, refuse_commands, with_asked
from headfirst.control.deployment.prepare import Prepared
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.result import StageTime
from headfirst.decide.cluster.types import Service
from headfirst.decide.plan.answered import Change, changes


class Answered(NamedTuple):
    """The plan with the answers. `missing`: images that the hosts of the heads lack: not asked."""

    prepared: Prepared
    stages: list[StageTime]
    missing: list[str]
    changes: list[Change]  # of the plan, by the answers


def answered(prepared: Prepared, reporter: Reporter, only: Service | None = None) -> Answered:
    """Ask the images that are there, of all services or of one, plan again, and let the engines read it.

    Each difference is a warning. InputError where an engine refuses a command.
    """
    present = images(prepared.cluster, only)
    cluster, asked = with_asked(prepared.cluster, prepared.plan, present, reporter)
    again = prepared.answered(cluster)
    changed = changes(prepared.plan, again.plan)
    for change in changed:
        reporter.warn(STAGE, "plan-changed", change.service, f"With the answers of the image: {change.text}")
    read = refuse_commands(cluster, again.plan, present, reporter)
    return Answered(again, [*asked, *read], missing(cluster, present), changed)


def refuse_changes(told: Answered) -> None:
    """InputError where the plan with the answers differs in more than arguments that a preset had chosen."""
    differing = [change for change in told.changes if not change.left_out]
    if differing:
        raise InputError(
            f"with the answers of its image the plan of {differing[0].service} differs: "
            + "; ".join(change.text for change in differing[:5]),
            where=str(told.prepared.cluster.inventories[0]),
            hint="`deploy plan --probe` shows the new plan. Run `deploy up` again to carry it out.",
        )
