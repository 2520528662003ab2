"""What a rollout reports to a person."""

from __future__ import annotations

from collections.abc import Sequence

from ansible_collections.headfirst.serving.plugins.module_utils.rollout import Change, Ended

Finding = dict[str, str]
DOING = {
    "create": "creating the container beside the one that serves",
    "drain": "waiting for the requests that run",
    "displace": "stopping the container in its place",
    "stop": "stopping",
    "back_up": "backing up its data",
    "restore": "restoring its data",
    "start": "starting",
    "wait": "waiting until it serves",
    "prove": "checking its answer",
    "route": "waiting until the routers use it",
    "revive": "starting the previous version",
    "revive_displaced": "starting the stopped containers",
}


def finding(kind: str, what: str, fix: str = "") -> Finding:
    """A warning."""
    return {"id": kind, "severity": "warning", "what": what, **({"fix": fix} if fix else {})}


def outage(last_start_s: float) -> Finding:
    """Nothing answers while the ranks start; 0: how long that takes is not known."""
    took = f": the last start took {last_start_s:.0f} s" if last_start_s else ""
    return finding(
        "outage",
        f"No other replica can answer: the service does not answer until its ranks have started again{took}",
        "Two replicas, or two of each part, change one after the other without an outage.",
    )


def displacement(name: str, displaced: Sequence[str]) -> Finding:
    """What runs in the place of a service stops for it."""
    return finding(
        "outage",
        f"{', '.join(displaced)} stops, because {name} needs its GPUs or its address: nothing answers there "
        f"until {name} serves",
    )


def failure(name: str, change: Change, ended: Ended, *, together: bool) -> str:
    """Why a service does not change, and what serves now. `together`: it has ranks."""
    lines = [ended.failure, *ended.stuck]
    if not ended.stopped:
        runs = ": the previous version still runs" if change["running"] else ""
        return "\n".join([*lines, *([f"No container was stopped{runs}."] if together else [])])
    if ended.again:
        lines += ["The previous version was started again, but it does not serve either:", ended.again]
    elif ended.returned:
        lines.append("The previous version serves again.")
    aside = ended.returned or ended.before
    failed = f"{name}.{change['generation']}" if aside else name
    lines += ["The log of the failed start, on its host:", f"docker logs {failed}"]
    for host, other, serves in ended.revived:
        state = "serves" if serves else "does not answer yet"
        lines.append(f"{other} was started again on {host} and {state}.")
    return "\n".join(lines)
