"""Which versions of NVIDIA's packages apt can give that fit one another. Python 3.8+."""

from __future__ import annotations

import re
import typing as t

UPSTREAM = re.compile(r"(?:\d+:)?(\d{3}(?:\.\d+)+)")
Versions = t.Dict[str, t.Dict[str, str]]  # name -> upstream version -> apt's version, the newest of its kind


def offered(listing: str) -> Versions:
    """What `apt-cache madison` lists, in lines like `name | 580.126.20-1 | http://... Packages`."""
    versions: Versions = {}
    for line in listing.splitlines():
        words = [word.strip() for word in line.split("|")]
        upstream = UPSTREAM.match(words[1]) if len(words) == 3 else None
        if upstream:
            versions.setdefault(words[0], {}).setdefault(upstream.group(1), words[1])
    return versions


def choose(
    versions: Versions, sets: t.List[t.List[str]], managers: t.List[str], branch: str
) -> t.Optional[t.Dict[str, t.Any]]:
    """{version, packages} of the newest driver in the branch that apt has complete, or None.

    `sets` are names of a driver's packages, one list for each way they are cut, the best first; `managers`
    are names of the fabric manager, any of which will do, and none where none is needed. `branch` is 580 or
    580.126.20. Names promise nothing (nvidia-fabricmanager-550 has led to version 570): only versions count.
    """
    for names in sets or [[]]:
        ways = [[*names, manager] for manager in managers] or [names]
        fitting = [
            (version, way) for way in ways for version in _common(versions, way) if _in(version, branch)
        ]
        if fitting:
            version, way = max(fitting, key=lambda candidate: _number(candidate[0]))
            return {"version": version, "packages": [f"{name}={versions[name][version]}" for name in way]}
    return None


def explain(versions: Versions, names: t.Iterable[str]) -> str:
    """What apt has of these names, for a person."""
    lines = [
        f"{name} {', '.join(sorted(versions[name], key=_number, reverse=True))}"
        for name in names
        if name in versions
    ]
    return "; ".join(lines) or "none of them"


def _common(versions: Versions, names: t.List[str]) -> t.Set[str]:
    return set.intersection(*(set(versions.get(name, {})) for name in names))


def _in(version: str, branch: str) -> bool:
    return version == branch or version.startswith(branch + ".")


def _number(version: str) -> t.List[int]:
    return [int(part) for part in version.split(".")]
