"""up, down and status of a lab, in the order in which its parts need one another."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headfirst.common.errors import InputError
from headfirst.common.state_files import exclusive
from headfirst.control.lab import host_settings, image, keys, network, node_settings, nodes, readiness
from headfirst.control.lab.types import Lab, LabAccess, NodeStatus
from headfirst.control.machine import engine
from headfirst.control.machine.packages import Advance
from headfirst.control.paths import state_dir


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """A lab that goes down must not stop the engine, or remove the image, of one that just comes up."""
    with exclusive(state_dir("lab")):
        yield


@_one_at_a_time()
def up(lab: Lab, progress: Advance, warn: Callable[[str], None] | None = None) -> LabAccess:
    """Starts what is missing of the lab, and returns how its nodes are reached.

    What runs as asked is left alone; a node whose description has changed is created again, and a node that
    has other settings than this machine gets these. `warn` is called for each setting that nodes cannot use
    (without it, `progress` is). Raises NotReadyError where this machine cannot carry the lab; the next call
    continues where this one stopped.
    """
    if not lab.shared_dir.is_dir():
        raise InputError(f"The lab's shared folder {lab.shared_dir} does not exist.")
    client = engine.ensure(progress)
    node_image = image.ensure(client, progress)
    public_key = keys.ensure_key(lab)

    planned = {node.name: node for node in lab.nodes}
    present = nodes.find(client, lab)
    for name, container in list(present.items()):
        if name not in planned or not nodes.is_current(container, lab, planned[name], node_image):
            progress(f"removing {name}, which has changed", 0, 1)
            nodes.remove(present.pop(name))
    network.ensure(client, lab)

    stopped = [
        node for node in lab.nodes if node.name not in present or present[node.name].status != "running"
    ]
    settings = host_settings.collect()
    created = {node.name for node in lab.nodes if node.name not in present}
    node_archives = settings.archives() if created else []
    for done, node in enumerate(stopped):
        progress("starting nodes", done, len(stopped))
        if node.name in created:
            present[node.name] = nodes.create(client, lab, node, node_image)
        nodes.start(present[node.name], public_key, node_archives if node.name in created else [])

    # One that runs but is silent was caught by an interruption while it booted.
    silent = [node for node in lab.nodes if node in stopped or not readiness.ssh_answers(node.address)]
    for done, node in enumerate(silent):
        progress("waiting for nodes to boot", done, len(silent))
        readiness.await_boot(present[node.name], node.address)
        progress("waiting for nodes to boot", done + 1, len(silent))
    outdated = [node for node in lab.nodes if not node_settings.is_current(present[node.name], settings)]
    for done, node in enumerate(outdated):
        progress("copying this machine's apt and pip settings to the nodes", done, len(outdated))
        node_settings.update(present[node.name], settings)
    if created or outdated:
        for text in settings.left_out:
            sentence = f"{text}; nodes do not get it"
            warn(sentence) if warn else progress(sentence, 1, 1)
    keys.write_known_hosts(lab, {node.address: keys.host_key(present[node.name]) for node in lab.nodes})
    return keys.access(lab)


@_one_at_a_time()
def down(lab: Lab, progress: Advance = lambda what, done, total: None) -> None:
    """Removes everything the lab made on this machine; packages that were installed stay.

    The node image goes with the last lab, and so does an engine that was started by hand for it.
    Raises NotReadyError where an engine that has stopped since `up` cannot be started: it holds the nodes.
    """
    client = engine.start_installed(progress) if lab.state_dir.exists() else engine.connect()
    if client:
        containers = nodes.find(client, lab)
        for done, container in enumerate(containers.values(), start=1):
            nodes.remove(container)
            progress("removing nodes", done, len(containers))
        nodes.remove_volumes(client, lab)
        network.remove(client, lab)
        image.remove(client)
        if not client.containers.list():
            engine.stop_ours()
    if lab.state_dir.exists():
        shutil.rmtree(lab.state_dir)


def status(lab: Lab) -> list[NodeStatus]:
    """How each node of the lab is; all are `absent` where no engine answers."""
    client = engine.connect()
    containers = nodes.find(client, lab) if client else {}
    statuses = []
    for node in lab.nodes:
        state = containers[node.name].status if node.name in containers else "absent"
        ssh = state == "running" and readiness.ssh_answers(node.address)
        statuses.append(NodeStatus(node.name, node.address, state, ssh))
    return statuses
