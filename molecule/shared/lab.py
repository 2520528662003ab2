"""Start or remove the lab of a molecule scenario.

Usage: lab.py up SCENARIO NODES SHARED_FOLDER INVENTORY | lab.py down SCENARIO SHARED_FOLDER
Each scenario has a lab and a network of its own, so one can be looked at while another runs.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

from headfirst.control.lab import lifecycle, types
from headfirst.control.paths import state_dir

INVENTORY = """[head]
{head}

[workers]
{workers}

[all:vars]
ansible_user={access.user}
ansible_ssh_private_key_file={access.private_key}
ansible_ssh_common_args=-o UserKnownHostsFile={access.known_hosts} -o IdentitiesOnly=yes
ansible_python_interpreter=/usr/bin/python3
"""


def describe(scenario: str, nodes: int, shared: Path) -> types.Lab:
    """The lab of a scenario, with node1 to node`nodes` in 10.213.100.0/24 to 10.213.199.0/24."""
    name = "molecule-" + scenario.replace("_", "-")
    base = f"10.213.{100 + zlib.crc32(scenario.encode()) % 100}"
    return types.Lab(
        name=name,
        subnet=f"{base}.0/24",
        nodes=tuple(types.LabNode(f"node{i}", f"{base}.{10 + i}") for i in range(1, nodes + 1)),
        state_dir=state_dir("lab", name),
        shared_dir=shared,
    )


def progress(what: str, done: int, total: int) -> None:
    """Print one line for each step of the lab."""
    print(f"{what} {done}/{total}")


def main() -> None:
    """Carry out the command."""
    command, scenario, *arguments = sys.argv[1:]
    if command == "down":
        lifecycle.down(describe(scenario, 1, Path(arguments[0])), progress)
        return
    nodes, shared, inventory = int(arguments[0]), Path(arguments[1]), Path(arguments[2])
    shared.mkdir(parents=True, exist_ok=True)
    wanted = describe(scenario, nodes, shared)
    access = lifecycle.up(wanted, progress)
    rows = [f"{node.name} ansible_host={node.address}" for node in wanted.nodes]
    inventory.parent.mkdir(parents=True, exist_ok=True)
    inventory.write_text(INVENTORY.format(head=rows[0], workers="\n".join(rows[1:]), access=access))


if __name__ == "__main__":
    main()
