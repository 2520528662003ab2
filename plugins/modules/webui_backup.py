#!/usr/bin/python
"""Backups of the chats, accounts and files of a chat page."""

from __future__ import annotations

DOCUMENTATION = r"""
module: webui_backup
short_description: Back up, list and restore the data of a chat page
description:
  - The data is the folder that the container O(name) mounts at its C(DATA_DIR). A backup is a tar archive,
    mode 0600, with a manifest of sizes and SHA-256 digests. A container of the page's image without network,
    which has that folder and nothing else, copies. The page's databases of SQLite are copied as of their last
    transaction and checked.
  - Caches and links are left out.
options:
  name: {description: Name of the container., type: str, required: true}
  folder: {description: Folder of the backups on the node., type: path, required: true}
  state:
    description:
      - V(taken) makes a backup; the page may run. Where there is no data none is made.
      - V(listed) changes nothing.
      - V(restored) verifies O(backup) and replaces the data by it; the container must not run.
    type: str
    choices: [taken, listed, restored]
    required: true
  backup: {description: Name of the backup to restore; empty for the newest., type: str, default: ""}
  reason: {description: Why the backup is made., type: str, default: command}
  present:
    description: With V(restored), back up the present data first.
    type: bool
    default: true
  keep:
    description:
      - Backups that stay, of those with the reason C(command) and of all others. Older ones are removed.
    type: int
    default: 3
attributes:
  check_mode: {support: full, description: Reports what would change.}
  diff_mode: {support: none, description: No differences.}
author: The Headfirst authors (@headfirst)
"""

EXAMPLES = r"""
- name: Back up the chats
  headfirst.serving.webui_backup:
    name: headfirst-webui
    folder: /var/lib/headfirst/webui-backups
    state: taken
"""

RETURN = r"""
backup: {description: "Name of the backup that was made, empty for none.", type: str, returned: always}
restored: {description: Name of the backup whose data is there now., type: str, returned: with V(restored)}
backups:
  description: "The backups, the newest first: name, bytes, files, time, image, reason, problem."
  type: list
  elements: dict
  returned: always
"""

import contextlib
import functools
import inspect
import resource
import threading
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.headfirst.serving.plugins.module_utils import docker_client, page_backup, page_copy

if t.TYPE_CHECKING:
    from docker.models.containers import Container

_COPY_SECONDS = 2 * 3600
_MEMORY_BYTES = 4 << 30


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "folder": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["taken", "listed", "restored"], "required": True},
            "backup": {"type": "str", "default": ""},
            "reason": {"type": "str", "default": page_backup.COMMAND},
            "present": {"type": "bool", "default": True},
            "keep": {"type": "int", "default": 3},
        },
        supports_check_mode=True,
    )
    folder = Path(module.params["folder"])
    # What is read may be what a page that was taken over has written.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    try:
        result = {"changed": False, "backup": ""}
        if module.params["state"] != "listed":
            result = _change(module, folder)
        module.exit_json(**result, backups=page_backup.listed(folder))
    except (page_backup.BackupError, docker_client.DockerException, OSError) as error:
        module.fail_json(msg="Backups of {}: {}.".format(module.params["name"], error))


def _change(module: AnsibleModule, folder: Path) -> t.Dict[str, t.Any]:
    params = module.params
    container = _container(module)
    if container is None:
        return {"changed": True, "backup": ""}
    data, image = _data(container), str(container.attrs["Config"]["Image"])

    def take(reason: str) -> str:
        copied = functools.partial(_copied, container, data)
        return (page_backup.take(folder, image, reason, copied) or "") if data.is_dir() else ""

    if params["state"] == "taken":
        if module.check_mode:
            return {"changed": True, "backup": ""}
        backup_name = take(params["reason"])
        page_backup.prune(folder, params["keep"])
        return {"changed": bool(backup_name), "backup": backup_name}
    names = [backup["name"] for backup in page_backup.listed(folder)]
    name = params["backup"] or next(iter(names), "")
    if not name:
        raise page_backup.BackupError("there are none in {}".format(folder))
    if container.attrs["State"]["Running"]:
        raise page_backup.BackupError("the container runs: stop it first")
    if module.check_mode:
        return {"changed": True, "backup": "", "restored": name}
    backup_name = take("before a restore") if params["present"] else ""
    page_backup.restore(data, folder, name)
    page_backup.prune(folder, params["keep"], also=name)
    return {"changed": True, "backup": backup_name, "restored": name}


def _container(module: AnsibleModule) -> t.Optional[Container]:
    """The container; in check mode it may not be there yet."""
    container = docker_client.find(docker_client.connect(module), module.params["name"])
    if container is None and not module.check_mode:
        raise page_backup.BackupError("there is no such container on this node")
    return container


def _data(container: Container) -> Path:
    """The folder on the node that the page keeps its data in."""
    environment = [text.partition("=") for text in container.attrs["Config"]["Env"] or []]
    inside = next((value for key, _sign, value in environment if key == "DATA_DIR"), "/app/backend/data")
    for mount in container.attrs["Mounts"]:
        if mount["Destination"] == inside:
            return Path(mount["Source"])
    raise page_backup.BackupError("the container mounts nothing at {}".format(inside))


def _copied(page: Container, data: Path, arguments: t.List[str]) -> page_backup.Pieces:
    """What page_copy writes in a container that has the rights of the page to its data, and no others."""
    container = page.client.containers.create(
        page.attrs["Image"],
        ["-I", "-X", "utf8", "-c", inspect.getsource(page_copy), "/data", *arguments],
        entrypoint="python3",
        user="0",
        network_mode="none",
        cap_drop=["ALL"],
        cap_add=["DAC_OVERRIDE"],
        security_opt=["no-new-privileges"],
        volumes=["{}:/data".format(data)],
        log_config={"type": "none"},
        init=True,
        auto_remove=True,
        use_config_proxy=False,
    )
    end = threading.Timer(_COPY_SECONDS, container.kill)
    try:
        pieces = container.attach(stdout=True, stderr=True, stream=True, demux=True)
        container.start()
        end.start()
        yield from pieces
    finally:
        end.cancel()
        with contextlib.suppress(docker_client.APIError):  # it removes itself
            container.remove(force=True)


if __name__ == "__main__":
    main()
