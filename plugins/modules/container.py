#!/usr/bin/python
"""One container as its spec says."""

from __future__ import annotations

DOCUMENTATION = r"""
module: container
short_description: Keep one container as its spec says
description:
  - Creates, recreates, starts, stops or removes one container through the docker SDK.
  - A container is recreated when the fingerprint of its spec (which includes the image's ID) differs from
    the one in its label C(headfirst.spec).
  - An init process is always PID 1, because an engine that crashes as PID 1 exits 0.
  - In check mode a node without a Docker Engine counts as a node without the container.
options:
  name:
    description: Name of the container.
    type: str
    required: true
  state:
    description:
      - V(present) makes the container exist as the spec says and run.
      - V(stopped) stops it if it runs; its logs stay.
      - V(absent) stops and removes it.
    type: str
    choices: [present, stopped, absent]
    default: present
  stop_timeout:
    description: Seconds between the polite signal and the kill.
    type: int
    default: 30
  spec:
    description: What the container is. Required with O(state=present).
    type: dict
    suboptions:
      image: {description: Image name or ID; it must be on the node., type: str, required: true}
      command:
        description: Arguments; none keeps the image's own command.
        type: list
        elements: str
        default: []
      environment: {description: Environment that may be seen., type: dict, default: {}}
      env_file:
        description: File on the node with more KEY=VALUE lines, for secrets; only its digest is ever shown.
        type: path
      network_mode: {description: Docker's network mode., type: str, default: bridge}
      ipc_mode: {description: Docker's IPC mode., type: str}
      shm_size: {description: "Size of /dev/shm, for instance V(32g).", type: str}
      volumes: {description: "Mounts, V(/source:/target:ro).", type: list, elements: str, default: []}
      devices: {description: "Devices, V(/dev/x:/dev/x:rwm).", type: list, elements: str, default: []}
      gpus: {description: "As docker run --gpus, V(all), a number, or V(device=0,1).", type: str}
      cap_add: {description: Capabilities to add., type: list, elements: str, default: []}
      cap_drop: {description: Capabilities to drop., type: list, elements: str, default: []}
      ulimits: {description: "Limits by name, soft and hard alike; V(-1) is none.", type: dict, default: {}}
      labels: {description: Labels to add., type: dict, default: {}}
      restart_policy:
        description: Docker's restart policy.
        type: str
        choices: ["no", on-failure, unless-stopped, always]
        default: "no"
attributes:
  check_mode: {support: full, description: Says what would change.}
  diff_mode: {support: full, description: Shows the spec before and after.}
author: The Headfirst authors (@headfirst)
"""

EXAMPLES = r"""
- name: Serve a page
  headfirst.serving.container:
    name: headfirst-page
    spec:
      image: nginx:1.27
      network_mode: host
"""

RETURN = r"""
exists: {description: The container existed before., type: bool, returned: always}
running: {description: It ran before., type: bool, returned: always}
differs: {description: It was not what the spec says., type: bool, returned: with spec}
image_id: {description: ID of the image that the spec names., type: str, returned: with spec}
exit_code: {description: Exit code of a container that had ended., type: int, returned: when it did not run}
"""

import contextlib
import json
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.headfirst.serving.plugins.module_utils import container_spec
from ansible_collections.headfirst.serving.plugins.module_utils.docker_client import DockerException, connect

# Without the SDK connect() ends the module, or check mode goes on without an engine.
with contextlib.suppress(ImportError):
    from docker.errors import ImageNotFound, NotFound
    from docker.types import DeviceRequest, Ulimit

if t.TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "stopped", "absent"], "default": "present"},
            "stop_timeout": {"type": "int", "default": 30},
            "spec": {"type": "dict", "options": container_spec.SPEC_OPTIONS},
        },
        required_if=[("state", "present", ("spec",))],
        supports_check_mode=True,
    )
    client = connect(module)
    try:
        module.exit_json(**_apply(module, client))
    except DockerException as error:
        # The engine's own words, where it answered, without the HTTP around them.
        words = getattr(error, "explanation", None) or error
        module.fail_json(msg="Container {}: {}".format(module.params["name"], words))


def _apply(module: AnsibleModule, client: t.Optional[DockerClient]) -> t.Dict[str, t.Any]:
    params = module.params
    found = _find(client, params["name"])
    running = found is not None and found.attrs["State"]["Running"]
    result: t.Dict[str, t.Any] = {"changed": False, "exists": found is not None, "running": running}
    if found is not None and not running:
        result["exit_code"] = found.attrs["State"]["ExitCode"]
    if params["state"] == "present":
        return {**result, **_present(module, client, found, running)}
    if params["state"] == "stopped":
        result["changed"] = running
        if running and not module.check_mode:
            found.stop(timeout=params["stop_timeout"])
        return result
    result["changed"] = found is not None
    if found is not None and not module.check_mode:
        _remove(found, params["stop_timeout"])
    return result


def _present(
    module: AnsibleModule, client: t.Optional[DockerClient], found: t.Optional[Container], running: bool
) -> t.Dict[str, t.Any]:
    spec = module.params["spec"]
    secret_env = _secret_env(module, spec.get("env_file"))
    image_id = _image_id(module, client, spec["image"])
    wanted = container_spec.canonical(spec, image_id, secret_env)
    old_labels = found.labels if found is not None else {}
    differs = old_labels.get(container_spec.SPEC_LABEL) != container_spec.fingerprint(wanted)
    if not module.check_mode:
        if differs and found is not None:
            _remove(found, module.params["stop_timeout"])
        if differs:
            found = client.containers.create(
                name=module.params["name"],
                labels=container_spec.labels(wanted),
                **container_spec.create_arguments(spec, secret_env),
                **_typed_arguments(spec),
            )
        if differs or not running:
            found.start()
    before = json.loads(old_labels.get(container_spec.SPEC_JSON_LABEL, "{}"))
    return {
        "changed": differs or not running,
        "differs": differs,
        "image_id": image_id,
        "diff": {"before": {**before, "running": running}, "after": {**wanted, "running": True}},
    }


def _find(client: t.Optional[DockerClient], name: str) -> t.Optional[Container]:
    if client is None:
        return None
    try:
        return client.containers.get(name)
    except NotFound:
        return None


def _remove(container: Container, stop_timeout: int) -> None:
    container.stop(timeout=stop_timeout)
    container.remove(v=True, force=True)


def _image_id(module: AnsibleModule, client: t.Optional[DockerClient], image: str) -> str:
    if client is not None:
        try:
            return str(client.images.get(image).id)
        except ImageNotFound:
            pass
    if not module.check_mode:
        module.fail_json(
            msg="Image {} is not on this node. Load it with the role headfirst.serving.engine_image.".format(
                image
            )
        )
    return ""


def _secret_env(module: AnsibleModule, path: t.Optional[str]) -> t.Dict[str, str]:
    if path is None:
        return {}
    try:
        return container_spec.read_env_file(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        if not module.check_mode:
            module.fail_json(msg="env_file {} is not on this node.".format(path))
        return {}
    except ValueError as error:
        module.fail_json(msg="env_file {}: {}".format(path, error))
        raise


def _typed_arguments(spec: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
    arguments: t.Dict[str, t.Any] = {}
    if spec["ulimits"]:
        arguments["ulimits"] = [
            Ulimit(name=name, soft=int(limit), hard=int(limit)) for name, limit in spec["ulimits"].items()
        ]
    if spec.get("gpus"):
        arguments["device_requests"] = [DeviceRequest(**container_spec.gpu_request(spec["gpus"]))]
    return arguments


if __name__ == "__main__":
    main()
