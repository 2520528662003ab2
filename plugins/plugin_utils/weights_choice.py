"""Which hosts give the weights, which receive them, and in which order, from what the hosts report. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_NOBODY: Mapping[str, Any] = {"digest": "", "whole": "", "files": {}}


def choose(
    states: Mapping[str, Mapping[str, Any]],
    members: Sequence[str],
    writers: Mapping[str, str],
    parts: Mapping[str, str],
    folders: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """What the role does next.

    `states` are what the hosts of the play report ({} where a host reports nothing), in the order of the
    play. `members` are the addresses of all hosts with the model, the head first. `writers` has for each host
    the one that writes into its folder; `parts` the layers of each address where hosts have not all of them.
    `folders` has the model folder of each host, as shared_folder_facts returns it ({} where the model is no
    folder).
    """
    reports = [state for state in states.values() if state]
    requested = next((report["asked"] for report in reports if report.get("asked")), "")
    # Copies of some layers differ from host to host; they are compared by what they are a part of.
    identity = "whole" if parts else "digest"
    complete = [
        report
        for report in reports
        if report["digest"] and report["answers"] and (not requested or report["pinned"] == requested)
    ]
    first = complete[0] if complete else _NOBODY  # decides where they differ
    # What a host reports as its address counts only where it is a member's.
    alike = [
        report for report in complete if report[identity] == first[identity] and report["address"] in members
    ]
    # These have no part in a transfer: they share the folder of another host, or serve one that is not ours.
    apart = {report["address"] for report in alike if report["in_place"]} - {members[0]}
    apart |= {state.get("address", "") for host, state in states.items() if host not in writers.values()}
    present = {report["address"] for report in reports} - apart
    return {
        "asked": requested,
        "identity": identity,
        "first": dict(first),
        "digest": first[identity],
        "holders": [report["address"] for report in alike],
        # What all hosts together serve: where two differ in a file, one of them differs from this.
        "files": {name: digest for report in reports for name, digest in report["files"].items()},
        # The head signs what the others receive. Where it holds all of it, it passes it on; else it fetches.
        "head_gives": any(report["is_whole"] and report["address"] == members[0] for report in alike),
        # Whether all hosts can serve the model folder where it is: it is whole, and none has a copy.
        "all_see_it": all(folder.get("exists") and not folder["leads_out"] for folder in folders.values())
        and not any(report.get("occupied") for report in reports),
        "order": [member for member in members if member in present],
    }


def first_alike(values: Mapping[str, str]) -> dict[str, str]:
    """For each host the first one with the same value; "" is a value that is not known, and like no other."""
    first: dict[str, str] = {}
    return {host: first.setdefault(value, host) if value else host for host, value in values.items()}


def differences(files: Mapping[str, str], right: Mapping[str, str]) -> list[str]:
    """A reason for each file (name to hash) in which a host differs from the one that is right."""
    missing = [f"{name} is missing" for name in right if name not in files]
    other = [f"{name} has other content" for name in right if files.get(name, right[name]) != right[name]]
    return sorted(missing + other + [f"{name} is not on the head" for name in files if name not in right])
