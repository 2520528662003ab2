#!/usr/bin/python
"""Watch one container for a while."""

from __future__ import annotations

DOCUMENTATION = r"""
module: container_watch
short_description: Watch a container until it serves, ends, or the time is up
description:
  - Checks one container every second and returns as soon as its probes answer, or it does not run, or
    the time is up.
  - Changes nothing and never fails because of what it finds; the caller decides.
options:
  name:
    description: Name of the container.
    type: str
    required: true
  seconds:
    description: The longest time to watch.
    type: int
    default: 5
  url:
    description: Address of the service as the node reaches it. Without it nothing is probed.
    type: str
  path:
    description: Path that answers 200 when the service is ready, where its record has no readiness probe.
    type: str
    default: /health
  recorded:
    description: >-
      Take the address, the readiness probe and the API's key from the record of the container's generation,
      which M(headfirst.serving.container_generations) writes. The key is redacted in what is returned. No
      request is sent to a rank above 0.
    type: bool
    default: false
  lines:
    description: How many of the last log lines to return, counted from the container's last start.
    type: int
    default: 500
  timestamps:
    description: Put its time before each log line, as C(docker logs --timestamps) does.
    type: bool
    default: false
attributes:
  check_mode: {support: full, description: Nothing is ever changed.}
  diff_mode: {support: none, description: Nothing is ever changed.}
author: The Headfirst authors (@headfirst)
"""

EXAMPLES = r"""
- name: Wait for the page
  headfirst.serving.container_watch:
    name: headfirst-page
    url: "{{ open_webui_url }}"
    path: /ready
    seconds: 120
  register: page
  failed_when: not page.ready
"""

RETURN = r"""
exists: {description: There is such a container., type: bool, returned: always}
running: {description: It runs and was not restarted meanwhile., type: bool, returned: always}
ready: {description: Its probes answered., type: bool, returned: always}
probe:
  description: The text of a chat's answer, or what the last probe found wrong.
  type: str
  returned: always
exit_code: {description: Exit code of a container that has ended., type: int, returned: always}
finished_at:
  description: When a container has ended, as the engine writes times; empty while it runs.
  type: str
  returned: always
oom_killed: {description: The kernel ended it for memory., type: bool, returned: always}
driver: {description: Version of the host's NVIDIA driver., type: str, returned: always}
cuda: {description: Version of CUDA in its image., type: str, returned: always}
log:
  description: Its last log lines since the start that was seen first.
  type: list
  elements: str
  returned: always
now: {description: "The node's clock, in seconds since 1970.", type: float, returned: always}
"""

import re
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.headfirst.serving.plugins.module_utils import (
    container_spec,
    docker_api,
    docker_client,
    generation_records,
    host_driver,
    host_source,
    http_probe,
    readiness,
)

if t.TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

ABSENT = {
    "exists": False,
    "running": False,
    "ready": False,
    "probe": "",
    "exit_code": 0,
    "finished_at": "",
    "oom_killed": False,
    "driver": "",
    "cuda": "",
    "log": [],
}
INTERVAL_S = 1.0
# An engine that is busy may take this long to generate.
PROBE_TIMEOUT_S = 30.0


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "seconds": {"type": "int", "default": 5},
            "url": {"type": "str"},
            "path": {"type": "str", "default": "/health"},
            "recorded": {"type": "bool", "default": False},
            "lines": {"type": "int", "default": 500},
            "timestamps": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    client = docker_client.connect(module)
    try:
        seen = _watch(module, client)
        module.exit_json(changed=False, now=time.time(), **seen)
    except docker_client.DockerException as error:
        module.fail_json(msg="Container {}: {}".format(module.params["name"], error))


def _watch(module: AnsibleModule, client: t.Optional[DockerClient]) -> t.Dict[str, t.Any]:
    params = module.params
    end = time.monotonic() + params["seconds"]
    container = docker_client.find(client, params["name"])
    if container is None:
        return dict(ABSENT)
    first = container.attrs
    environment = dict(pair.partition("=")[::2] for pair in first["Config"].get("Env") or ())
    ask, probe, model = _probe(module, container)
    while True:
        ready, words = readiness.serves(ask, probe, model) if ask else (False, "")
        container.reload()
        state = container.attrs["State"]
        # Between two tries of a restart policy a container counts as running, too.
        running = state["Running"] and container.attrs["RestartCount"] == first["RestartCount"]
        if ready or not running or time.monotonic() + INTERVAL_S > end:
            return {
                "exists": True,
                "running": running,
                "ready": ready and running,
                "probe": words,
                "exit_code": state["ExitCode"],
                "finished_at": "" if running else state["FinishedAt"],
                "oom_killed": state["OOMKilled"],
                "driver": host_driver.version(host_source.HostSource().read("/proc/driver/nvidia/version")),
                "cuda": environment.get("CUDA_VERSION", ""),
                "log": _log(container, first["State"]["StartedAt"], params["lines"], params["timestamps"]),
            }
        time.sleep(INTERVAL_S)


def _probe(
    module: AnsibleModule, container: Container
) -> t.Tuple[t.Optional[readiness.Ask], readiness.Probe, str]:
    """How to ask the service, None where it is not asked; its readiness probe; the model."""
    url, record = module.params["url"], {}
    if module.params["recorded"]:
        generation = container.labels.get(container_spec.GENERATION_LABEL, "")
        record = generation_records.read(generation_records.path(module.params["name"], generation))
        is_head = container.labels.get(container_spec.RANK_LABEL) == "0"
        url = record.get("url") if is_head else None
    key = record.get("api_key") or None
    if key:
        module.no_log_values.add(key)

    def ask(path: str, body: t.Optional[t.Dict[str, t.Any]]) -> t.Tuple[int, str, str]:
        return http_probe.ask(str(url) + path, key, body, PROBE_TIMEOUT_S)

    probe = record.get("readiness") or {"path": module.params["path"]}
    return ask if url else None, probe, record.get("model", "")


def _log(container: Container, started_at: str, lines: int, timestamps: bool) -> t.List[str]:
    started = int(docker_api.seconds(started_at))  # whole seconds lose no line
    if started <= 0:  # of a container that never started it is in the year 1
        return []
    text = container.logs(since=started, tail=lines, timestamps=timestamps).decode("utf-8", "replace")
    # A progress bar redraws its line with carriage returns.
    return [line for line in re.split(r"[\r\n]+", text) if line.strip()][-lines:]


if __name__ == "__main__":
    main()
