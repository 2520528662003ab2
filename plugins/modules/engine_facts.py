"""Module: what roles docker_engine and podman_engine read before they decide. Standard library only."""

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_facts
short_description: Read which container runtime a node has, and its configuration
description:
  - Reads in one round trip which one is there, whether it answers, and how it is configured.
  - Changes nothing. Does not need Python's docker SDK.
author: The Headfirst authors (@headfirst)
extends_documentation_fragment: headfirst.serving.read_only
options:
  program:
    description: The program of the runtime.
    type: str
    choices: [dockerd, podman]
    default: dockerd
  files:
    description: Glob patterns of further files that the engine reads when it starts.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Read the engine
  headfirst.serving.engine_facts:
    files: [/etc/systemd/system/docker.service.d/*.conf]
"""

RETURN = r"""
engine:
  description:
    - Keys installed (whether the program is there), dockerd, podman_docker (whether Podman's command docker
      is there), snap, sdk and stale (bools; stale means that the engine started before its files were
      written), os_id, os_codename, config (what daemon.json holds), files (path to SHA-256), info, the
      engine's answer to GET /info, empty when it does not answer.
  type: dict
  returned: always
"""

import glob
import hashlib
import importlib.util
import json
import os
import shutil
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.headfirst.serving.plugins.module_utils import docker_api
from ansible_collections.headfirst.serving.plugins.module_utils.host_facts import os_release
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource

CONFIG = "/etc/docker/daemon.json"
PID_FILE = "/var/run/docker.pid"
PODMAN_DOCKER = "/var/lib/dpkg/info/podman-docker.list"


def config(module: AnsibleModule) -> t.Dict[str, t.Any]:
    """The content of daemon.json; empty when it is absent."""
    if not os.path.exists(CONFIG):
        return {}
    with open(CONFIG, encoding="utf-8") as file:
        text = file.read()
    try:
        return json.loads(text or "{}")
    except ValueError as error:
        module.fail_json(
            msg=f"{CONFIG} is not JSON: {error}. Correct it, or move it away; the role would merge into it."
        )


def stale(paths: t.List[str]) -> bool:
    """True when one of `paths` is younger than the running engine."""
    if not os.path.exists(PID_FILE):
        return False
    started = os.stat(PID_FILE).st_mtime
    return any(os.stat(path).st_mtime > started for path in paths if os.path.exists(path))


def main() -> None:
    """Read the state and exit."""
    module = AnsibleModule(
        argument_spec={
            "program": {"type": "str", "choices": ["dockerd", "podman"], "default": "dockerd"},
            "files": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    source = HostSource()
    release = os_release(source.read("/etc/os-release"))
    paths = [path for pattern in module.params["files"] for path in sorted(glob.glob(pattern))]
    engine = {
        "installed": shutil.which(module.params["program"]) is not None,
        "dockerd": shutil.which("dockerd") is not None,
        "podman_docker": os.path.exists(PODMAN_DOCKER),
        "snap": os.path.exists("/snap/docker"),
        "sdk": importlib.util.find_spec("docker") is not None,
        "os_id": release.get("ID", ""),
        "os_codename": release.get("VERSION_CODENAME", ""),
        "config": config(module),
        "files": {path: hashlib.sha256(source.read_bytes(path)).hexdigest() for path in paths},
        "stale": stale([CONFIG, *paths]),
        "info": docker_api.get("/info"),
    }
    module.exit_json(changed=False, engine=engine)


if __name__ == "__main__":
    main()
