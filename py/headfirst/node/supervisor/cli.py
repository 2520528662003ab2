"""`headfirst-supervisor`: the service itself, and what roles and people ask of it on a node."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import headfirst

if TYPE_CHECKING:
    from headfirst.node.supervisor.records import GenerationRecord

CONFIG = Path("/etc/headfirst/supervisor.json")


def main() -> int:
    """Run the command line; the exit code."""
    arguments = _parser().parse_args()
    if arguments.command == "run":
        from headfirst.node.supervisor.daemon import Daemon, Settings

        Daemon(Settings.read(arguments.config)).run()
        return 0
    from headfirst.node.supervisor.host_state import Holds

    by_run = "HEADFIRST_RUN" in os.environ  # the role engine; node tools of an earlier release ignore it
    if arguments.command == "hold":
        if not Holds().hold(arguments.name, arguments.seconds, by_run=by_run):
            print(
                f"{arguments.name} is held by hand. To end that: {sys.argv[0]} release {arguments.name}",
                file=sys.stderr,
            )
            return 3
    elif arguments.command == "drain":
        return _drain(arguments.name, arguments.seconds)
    elif arguments.command == "wait":
        return _wait(arguments.name, arguments.seconds)
    elif arguments.command == "needed":
        return _needed(arguments.name, arguments.changed)
    elif arguments.command == "release":
        Holds().release(arguments.name, by_run=by_run)
    elif arguments.command == "resume":
        _resume(arguments.name)
    return 0


def _resume(name: str) -> None:
    from headfirst.node.supervisor import host_state
    from headfirst.node.supervisor.daemon import STATE
    from headfirst.node.supervisor.memory import Memories

    phase = host_state.read_object(STATE).get("replicas", {}).get(name, {}).get("phase")
    if phase in ("watching", "starting", "serving", "down"):
        print(f"{name}: the supervisor still tries to start it. Nothing was changed.", file=sys.stderr)
    else:
        Memories().ask_again(name)


def _drain(name: str, seconds: float) -> int:
    """Exit code 3 where the replica is not held: its supervisor would register it again."""
    from headfirst.node.supervisor import records
    from headfirst.node.supervisor.host_state import Holds
    from headfirst.node.supervisor.registration import RouterApi, drain

    if not Holds().is_held(name):
        print(f"{name} is not held. First: headfirst-supervisor hold {name}", file=sys.stderr)
        return 3
    record = _current(name, served=False)
    if record is None:
        return 0
    routers = [RouterApi(router.url, router.key) for router in records.router_keys(record)]
    request_count, unknown = drain(record.url, routers, seconds, record.api_key)
    if request_count:
        print(f"{name}: {request_count} requests still run after {seconds:.0f} s", file=sys.stderr)
    for url, why in unknown.items():
        print(f"{name}: whether requests of the router {url} run is not known: {why}", file=sys.stderr)
    return 0


def _wait(name: str, seconds: float) -> int:
    """Exit code 3 where a router does not use the replica in time."""
    from headfirst.node.supervisor.registration import missing, routers_of

    record = _current(name, served=False)
    reasons = missing(record, routers_of(record), seconds) if record else {}
    for url, why in reasons.items():
        print(f"{name}: the router {url} does not use it after {seconds:.0f} s: {why}", file=sys.stderr)
    return 3 if reasons else 0


def _needed(name: str, changed: list[list[str]]) -> int:
    """Exit code 3 where it runs, and nothing else answers the requests of its service."""
    from headfirst.node.supervisor.registration import is_needed, routers_of

    record = _current(name)
    return 3 if record and is_needed(record.url, routers_of(record), dict(changed)) else 0


def _current(name: str, *, served: bool = True) -> GenerationRecord | None:
    """The record of the generation that has the name and runs, if there is one. Raises EngineDown."""
    from headfirst.node.supervisor import records
    from headfirst.node.supervisor.containers import Containers

    rank = Containers().rank(name)
    return records.read(name, rank.generation, served=served) if rank and rank.running else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headfirst-supervisor",
        description="Supervises the ranks of each replica, without a controller.",
    )
    parser.add_argument("--version", action="version", version=headfirst.__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run the service; systemd starts it")
    run.add_argument("--config", type=Path, default=CONFIG, help="default: %(default)s")
    hold = commands.add_parser("hold", help="pause the supervision of a replica while it is changed by hand")
    hold.add_argument("name", help="of its containers, such as headfirst-engine")
    hold.add_argument("--seconds", type=float, default=3600.0, help="at most; default: %(default)s")
    drain = commands.add_parser("drain", help="wait until a held replica has no requests")
    drain.add_argument("name", help="of its containers")
    drain.add_argument("--seconds", type=float, default=120.0, help="at most; default: %(default)s")
    needed = commands.add_parser("needed", help="exit code 3: without the replica no request is answered")
    needed.add_argument("name", help="of its containers")
    needed.add_argument(
        "--changed",
        nargs=2,
        action="append",
        default=[],
        metavar=("URL", "ROLE"),
        help="a replica that has this role by then",
    )
    ready = commands.add_parser("wait", help="register the replica, and wait until all routers use it")
    ready.add_argument("name", help="of its containers")
    ready.add_argument("--seconds", type=float, default=60.0, help="at most; default: %(default)s")
    release = commands.add_parser("release", help="end a hold")
    release.add_argument("name", help="of its containers")
    resume = commands.add_parser("resume", help="try again to start a replica after too many failures")
    resume.add_argument("name", help="of its containers")
    return parser


if __name__ == "__main__":
    sys.exit(main())
