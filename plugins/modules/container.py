#!/usr/bin/python
"""One container as its spec defines it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: container
short_description: Keep one container as its spec defines it
description:
  - Creates, recreates, starts, stops or removes one container through the docker SDK.
  - A container is recreated when the fingerprint of its spec (which includes the image's ID) differs from
    the one in its label C(headfirst.spec).
  - A container is created and started without its restart policy, so that a crash while it starts is seen.
    V(kept), and M(headfirst.serving.container_generations), set the policy when the container has served.
  - In check mode a node without a Docker Engine counts as a node without the container.
options:
  name:
    description: Name of the container.
    type: str
    required: true
  state:
    description:
      - V(created) creates the container of the spec; a new one does not run yet.
      - V(started) starts the container that exists.
      - V(kept) gives it the restart policy of its spec, now that it has served.
      - V(stopped) stops it if it runs, and keeps it stopped; its logs stay.
      - V(absent) stops and removes it.
    type: str
    choices: [created, started, kept, stopped, absent]
    required: true
  stop_timeout:
    description: Seconds between SIGTERM and SIGKILL.
    type: int
    default: 30
  spec:
    description: What the container is. Required with O(state=created).
    type: dict
    suboptions:
      image: {description: Image name or ID; it must be on the node., type: str, required: true}
      user: {description: User in place of the image's., type: str}
      entrypoint: {description: Program to start in place of the image's entrypoint., type: str}
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
      cgroup_parent: {description: "Slice of systemd that the container is in.", type: str}
      shm_size: {description: "Size of /dev/shm, for instance V(32g).", type: str}
      volumes: {description: "Mounts, V(/source:/target:ro).", type: list, elements: str, default: []}
      files:
        description:
          - Text files by their paths on the node, mode 0644, for O(spec.volumes) to mount. They are written
            where they differ. A container is not recreated for them, so other text needs another path.
        type: dict
        default: {}
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
      init:
        description: An init process is PID 1; an engine that crashes as PID 1 exits 0.
        type: bool
        default: true
  labels:
    description: Labels of a new container that are not part of its spec.
    type: dict
    default: {}
  compile_cache:
    description: What a new container has of code that was compiled before. It is not part of its spec.
    type: dict
    suboptions:
      name: {description: Name of the folder that is kept., type: str, required: true}
      environment: {description: Variables of the engine for it., type: dict, required: true}
      program: {description: "What runs before the command, text by path.", type: dict, required: true}
attributes:
  check_mode: {support: full, description: Reports what would change.}
  diff_mode: {support: full, description: Shows the spec before and after.}
author: The Headfirst authors (@headfirst)
"""

EXAMPLES = r"""
- name: Create a page
  headfirst.serving.container:
    name: headfirst-page
    state: created
    spec:
      image: nginx:1.27
      network_mode: host
"""

RETURN = r"""
exists: {description: The container existed before., type: bool, returned: always}
running: {description: It ran before., type: bool, returned: always}
differs: {description: It differed from the spec., type: bool, returned: with spec}
fingerprint: {description: Fingerprint of the spec., type: str, returned: with spec}
image_id: {description: ID of the image that the spec names., type: str, returned: with spec}
exit_code: {description: Exit code of a container that had ended., type: int, returned: when it did not run}
"""

import json
import os
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.headfirst.serving.plugins.module_utils import (
    compile_cache,
    container_runtime,
    container_spec,
    docker_client,
)

if t.TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {
                "type": "str",
                "choices": ["created", "started", "kept", "stopped", "absent"],
                "required": True,
            },
            "stop_timeout": {"type": "int", "default": 30},
            "spec": {"type": "dict", "options": container_spec.SPEC_OPTIONS},
            "labels": {"type": "dict", "default": {}},
            "compile_cache": {"type": "dict", "options": compile_cache.OPTIONS},
        },
        required_if=[("state", "created", ("spec",))],
        supports_check_mode=True,
    )
    client = docker_client.connect(module)
    try:
        module.exit_json(**_apply(module, client, container_runtime.of_engine(module, client)))
    except docker_client.DockerException as error:
        # The engine's own words, where it answered, without the HTTP around them.
        words = getattr(error, "explanation", None) or error
        module.fail_json(msg="Container {}: {}".format(module.params["name"], words))


def _apply(
    module: AnsibleModule, client: t.Optional[DockerClient], runtime: container_runtime.Runtime
) -> t.Dict[str, t.Any]:
    params = module.params
    container = docker_client.find(client, params["name"])
    running = container is not None and container.attrs["State"]["Running"]
    result: t.Dict[str, t.Any] = {"changed": False, "exists": container is not None, "running": running}
    if container is not None and not running:
        result["exit_code"] = container.attrs["State"]["ExitCode"]
    if params["state"] == "created":
        return {**result, **_created(module, client, runtime, container)}
    if params["state"] == "started":
        return {**result, **_started(module, runtime, container, running)}
    if params["state"] == "kept":
        runs = container is not None and container_runtime.keep_running(runtime, container, module.check_mode)
        return {**result, "changed": runs}
    if params["state"] == "stopped":
        if container is not None:
            # A restart that is planned must not come after the stop.
            policy = runtime.set_restart_policy(container, "no", module.check_mode)
            result["changed"] = running or policy
        if running and not module.check_mode:
            container.stop(timeout=params["stop_timeout"])
        return result
    result["changed"] = container is not None
    if container is not None and not module.check_mode:
        container_runtime.remove(runtime, container, params["stop_timeout"])
    return result


def _created(
    module: AnsibleModule,
    client: t.Optional[DockerClient],
    runtime: container_runtime.Runtime,
    container: t.Optional[Container],
) -> t.Dict[str, t.Any]:
    spec = module.params["spec"]
    secret_env = _secret_env(module, spec.get("env_file"))
    image_id = _image_id(module, client, spec["image"])
    canonical = container_spec.canonical(spec, image_id, secret_env)
    fingerprint = container_spec.fingerprint(canonical)
    old_labels = container.labels if container is not None else {}
    differs = old_labels.get(container_spec.SPEC_LABEL) != fingerprint
    cache = module.params["compile_cache"]
    if cache:
        spec = compile_cache.added(spec, cache, module.params["name"])
    if not module.check_mode:
        if cache:
            compile_cache.create(cache, module.params["name"])
        _write(module, spec["files"])
    if differs and not module.check_mode:
        missing = container_spec.missing_sources(spec, os.path.exists)
        if missing:
            module.fail_json(msg="{} is not on this node; the container mounts it.".format(missing[0]))
        if container is not None:
            container_runtime.remove(runtime, container, module.params["stop_timeout"])
        more_labels = {str(key): str(value) for key, value in module.params["labels"].items()}
        labels = {**container_spec.labels(canonical), **more_labels}
        runtime.create(module.params["name"], spec, secret_env, labels)
    before = json.loads(old_labels.get(container_spec.SPEC_JSON_LABEL, "{}"))
    return {
        "changed": differs,
        "differs": differs,
        "fingerprint": fingerprint,
        "image_id": image_id,
        "diff": {"before": before, "after": canonical},
    }


def _started(
    module: AnsibleModule, runtime: container_runtime.Runtime, container: t.Optional[Container], running: bool
) -> t.Dict[str, t.Any]:
    if module.check_mode:
        return {"changed": not running}
    if container is None:
        module.fail_json(msg="There is no container {}.".format(module.params["name"]))
    runtime.set_restart_policy(container, "no", check=False)
    if not running:
        container.start()
    return {"changed": not running}


def _image_id(module: AnsibleModule, client: t.Optional[DockerClient], image: str) -> str:
    if client is not None:
        try:
            return str(client.images.get(image).id)
        except docker_client.ImageNotFound:
            pass
    if not module.check_mode:
        module.fail_json(
            msg="Image {} is not on this node. Load it with the role headfirst.serving.engine_image.".format(
                image
            )
        )
    return ""


def _write(module: AnsibleModule, files: t.Dict[str, str]) -> None:
    for path, text in files.items():
        file = Path(path)
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            written = Path(module.tmpdir, file.name)
            written.write_text(text, encoding="utf-8")
            written.chmod(0o644)
            module.atomic_move(str(written), path)


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


if __name__ == "__main__":
    main()
