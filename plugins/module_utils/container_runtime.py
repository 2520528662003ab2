"""What differs between Docker and Podman behind Docker's API: making a container, and its restarts.

Podman's Docker API ignores requests for GPUs before version 5.4 and cannot change a restart policy before
5.1; at boot Podman starts also what was stopped on purpose. So its containers are made by its command, and
a unit of systemd starts them again. Python 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import json
import os
import typing as t
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.module_utils import (
    compile_cache,
    container_spec,
    docker_api,
)

# Without the SDK connect() ends the module, or check mode goes on without an engine.
with contextlib.suppress(ImportError):
    from docker.errors import APIError
    from docker.types import DeviceRequest, Ulimit

if t.TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule
    from docker import DockerClient
    from docker.models.containers import Container

UNITS = "/etc/systemd/system"
UNIT = "headfirst-container@.service"
# The container is no child of the unit, which only waits for its end: stopping the unit stops no container.
UNIT_TEXT = """\
[Unit]
Description=Container %i, started again when it ends
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/bin/env podman start --attach --sig-proxy=false %i
Restart=always
RestartSec=2
KillMode=process
StandardOutput=null
StandardError=journal

[Install]
WantedBy=multi-user.target
"""
Runtime = t.Union["Docker", "Podman"]


def of_engine(module: AnsibleModule, client: t.Optional[DockerClient]) -> Runtime:
    """The runtime behind the client; without one, in check mode, Docker's, which is not called."""
    if client is not None and docker_api.is_podman(client.version()):
        return Podman(module)
    return Docker(client)


def remove(runtime: Runtime, container: Container, stop_timeout: int) -> None:
    """Stop and remove a container, and what was compiled for it alone; nothing starts it again in between."""
    runtime.set_restart_policy(container, "no", check=False)
    container.stop(timeout=stop_timeout)
    container.remove(v=True, force=True)
    compiled = compile_cache.mounted([container.attrs])
    if compiled:
        others = container.client.containers.list(all=True, ignore_removed=True)
        compile_cache.remove(compiled - compile_cache.mounted(other.attrs for other in others))


def keep_running(runtime: Runtime, container: Container, check: bool) -> bool:
    """Give a container that has served the restart policy of its spec; return whether it had another one."""
    spec = json.loads(container.labels.get(container_spec.SPEC_JSON_LABEL, "{}"))
    return runtime.set_restart_policy(container, spec.get("restart_policy", "no"), check)


class Docker:
    """The Docker Engine."""

    def __init__(self, client: t.Optional[DockerClient]) -> None:
        self._client = client

    def create(
        self, name: str, spec: container_spec.Spec, secret_env: t.Dict[str, str], labels: t.Dict[str, str]
    ) -> None:
        """Make the container. Raises DockerException."""
        arguments = container_spec.create_arguments(spec, secret_env)
        if spec["ulimits"]:
            arguments["ulimits"] = [
                Ulimit(name=limit, soft=int(value), hard=int(value))
                for limit, value in spec["ulimits"].items()
            ]
        if spec.get("gpus"):
            arguments["device_requests"] = [DeviceRequest(**container_spec.gpu_request(spec["gpus"]))]
        # Proxies of root's ~/.docker/config.json are for pulls: a rank would ask its peers through them.
        self._client.containers.create(  # type: ignore[union-attr]
            name=name, labels=labels, use_config_proxy=False, **arguments
        )

    def set_restart_policy(self, container: Container, policy: str, check: bool) -> bool:
        """Give a container a restart policy; return whether it had another one."""
        if (container.attrs["HostConfig"]["RestartPolicy"]["Name"] or "no") == policy:
            return False
        if not check:
            try:
                container.update(restart_policy={"Name": policy})
            except APIError as error:  # it is just ending: once it has, Docker takes the policy
                if "cannot update a stopped container" not in str(error.explanation):
                    raise
                container.wait()
                container.update(restart_policy={"Name": policy})
        return True


class Podman:
    """Podman, by its command and by systemd."""

    def __init__(self, module: AnsibleModule, units: str = UNITS) -> None:
        self._module, self._units = module, Path(units)

    def create(
        self, name: str, spec: container_spec.Spec, secret_env: t.Dict[str, str], labels: t.Dict[str, str]
    ) -> None:
        """Make the container; ends the module with Podman's message where it refuses."""
        argv = container_spec.podman_create(name, spec, list(secret_env), labels)
        code, _out, err = self._module.run_command(argv, environ_update=secret_env)
        if code != 0:
            self._module.fail_json(msg="Container {}: {}".format(name, err.strip()))

    def set_restart_policy(self, container: Container, policy: str, check: bool) -> bool:
        """Start the container again when it ends, or not; return whether that was different."""
        unit = UNIT.replace("@", "@{}".format(container.name))
        restart = policy != "no"
        enabled = os.path.lexists(str(self._units / "multi-user.target.wants" / unit))
        changed = enabled != restart
        if restart:
            changed = self._write_unit(check) or changed or not self._is_active(unit)
        if changed and not check:
            self._systemctl(*(["enable"] if restart else ["disable"]), "--now", unit)
        return changed

    def _write_unit(self, check: bool) -> bool:
        path = self._units / UNIT
        if path.exists() and path.read_text(encoding="utf-8") == UNIT_TEXT:
            return False
        if not check:
            path.write_text(UNIT_TEXT, encoding="utf-8")
            path.chmod(0o644)
            self._systemctl("daemon-reload")
        return True

    def _is_active(self, unit: str) -> bool:
        """Whether the unit runs; somebody may have stopped it."""
        return bool(self._module.run_command(["systemctl", "is-active", "--quiet", unit])[0] == 0)

    def _systemctl(self, *words: str) -> None:
        self._module.run_command(["systemctl", *words], check_rc=True)
