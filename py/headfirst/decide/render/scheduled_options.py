"""Options of a planned container where no container runtime carries them out: in a job of Slurm, in a pod.

A target names the options that it carries out; every other one that is set is stated in the rendered file,
so that a new option is in the file or in a note, and never dropped without a word.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping

from headfirst.decide.containers.spec import Container

# Limits by Docker's names: the flag of bash's ulimit, and the bytes or pieces of its unit.
FLAGS = {
    "core": ("-c", 1024),
    "cpu": ("-t", 1),
    "data": ("-d", 1024),
    "fsize": ("-f", 1024),
    "locks": ("-x", 1),
    "memlock": ("-l", 1024),
    "msgqueue": ("-q", 1),
    "nofile": ("-n", 1),
    "nproc": ("-u", 1),
    "rss": ("-m", 1024),
    "sigpending": ("-i", 1),
    "stack": ("-s", 1024),
}

_LIMIT = """\
limit() { # NAME FLAG VALUE UNIT CONSEQUENCE
  ulimit "$2" "$3" 2>/dev/null ||
    echo "warning: $1 is $(ulimit "$2")$4 on $(hostname), and the plan has $3$5" >&2
}
"""


def stated(
    container: Container,
    carried: Collection[str],
    fixed: Mapping[str, object],
    by: str,
    *,
    limits: Collection[str] = FLAGS,
) -> list[str]:
    """A line for each option that is set, not `carried` and not what `fixed` has: what `by` does in any case.

    `carried` and the keys of `fixed` are fields of Container; `limits` are those of its ulimits that are set.
    """
    unset = type(container)(name=container.name, image=container.image)
    lines = []
    for field, value in container:
        if field in carried or value == fixed.get(field, getattr(unset, field)):
            continue
        lines.append(f"Not carried out by {by}: {field} {json.dumps(value, ensure_ascii=False)}")
    lines += [
        f"Not carried out by {by}: ulimits {name}={value}"
        for name, value in container.ulimits.items()
        if "ulimits" in carried and (name not in FLAGS or name not in limits)
    ]
    return lines


def limits(ulimits: Mapping[str, int], consequences: Mapping[str, str]) -> str:
    """Shell lines that set the limits; a host that refuses one prints a warning.

    `consequences`: by limit, what a host that refuses it has to expect; the end of the warning.
    """
    lines = []
    for name, value in ulimits.items():
        if name in FLAGS:
            flag, unit = FLAGS[name]
            number = "unlimited" if value < 0 else str(value // unit)
            words = [name, flag, number, " KiB" if unit == 1024 else "", consequences.get(name, "")]
            lines.append(f"limit {shlex.join(words)}\n")
    return "".join([_LIMIT, *lines]) if lines else ""
