"""What a container should be, as one comparable value (Python 3.8 or newer)."""

from __future__ import annotations

import hashlib
import json
import typing as t

SPEC_LABEL = "headfirst.spec"
SPEC_JSON_LABEL = "headfirst.spec.json"
# Which specification of the whole service the container belongs to, and its place in it.
GENERATION_LABEL = "headfirst.generation"
RANK_LABEL = "headfirst.rank"
RANKS_LABEL = "headfirst.ranks"

Spec = t.Dict[str, t.Any]

SPEC_OPTIONS: t.Dict[str, t.Dict[str, t.Any]] = {
    "image": {"type": "str", "required": True},
    "user": {"type": "str"},
    "entrypoint": {"type": "str"},
    "command": {"type": "list", "elements": "str", "default": []},
    "environment": {"type": "dict", "default": {}},
    "env_file": {"type": "path"},
    "network_mode": {"type": "str", "default": "bridge"},
    "ipc_mode": {"type": "str"},
    "cgroup_parent": {"type": "str"},
    "shm_size": {"type": "str"},
    "volumes": {"type": "list", "elements": "str", "default": []},
    "files": {"type": "dict", "default": {}},
    "devices": {"type": "list", "elements": "str", "default": []},
    "gpus": {"type": "str"},
    "cap_add": {"type": "list", "elements": "str", "default": []},
    "cap_drop": {"type": "list", "elements": "str", "default": []},
    "ulimits": {"type": "dict", "default": {}},
    "labels": {"type": "dict", "default": {}},
    "restart_policy": {
        "type": "str",
        "default": "no",
        "choices": ["no", "on-failure", "unless-stopped", "always"],
    },
    "init": {"type": "bool", "default": True},
}


def read_env_file(text: str) -> t.Dict[str, str]:
    """Return the variables of an env file: one KEY=VALUE a line, values as they are, # starts a comment.

    ValueError names the line that has no `=`, by number only: its text may be a secret.
    """
    variables: t.Dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals:
            raise ValueError("line {} is not KEY=VALUE".format(number))
        variables[key] = value
    return variables


def canonical(spec: Spec, image_id: str, secret_env: t.Dict[str, str]) -> Spec:
    """Return the spec as it is compared: no empty options, the image's ID, secrets only as a digest.

    Other files have other paths, which are in the command.
    """
    kept: Spec = {
        key: value for key, value in spec.items() if key != "files" and value not in (None, [], {}, "")
    }
    kept["environment"] = {key: env_value(value) for key, value in spec.get("environment", {}).items()}
    kept["image_id"] = image_id
    if secret_env:
        kept["env_file_sha256"] = _sha256(secret_env)
    return kept


def fingerprint(kept: Spec) -> str:
    """Return the SHA-256, in hex, of a canonical spec."""
    return _sha256(kept)


def labels(kept: Spec) -> t.Dict[str, str]:
    """Return the container's labels: the spec's own, its fingerprint, and the spec itself for the diff."""
    spec_labels = {str(key): str(value) for key, value in kept.get("labels", {}).items()}
    return {**spec_labels, SPEC_LABEL: fingerprint(kept), SPEC_JSON_LABEL: json.dumps(kept, sort_keys=True)}


def env_value(value: t.Any) -> str:
    """Return an environment value as a program reads it; YAML's true becomes `True`."""
    return str(value)


def create_arguments(spec: Spec, secret_env: t.Dict[str, str]) -> t.Dict[str, t.Any]:
    """Return docker SDK arguments of `containers.create`, but for name, labels and what needs SDK types.

    Without the restart policy: a container that has not served yet must end when it crashes.
    """
    environment = {key: env_value(value) for key, value in spec["environment"].items()}
    arguments: t.Dict[str, t.Any] = {
        "image": spec["image"],
        "environment": {**environment, **secret_env},
        "network_mode": spec["network_mode"],
        "init": spec["init"],
    }
    optional = ("user", "entrypoint", "command", "ipc_mode", "cgroup_parent", "shm_size", "volumes")
    for key in (*optional, "devices", "cap_add", "cap_drop"):
        if spec.get(key):
            arguments[key] = spec[key]
    return arguments


def podman_create(name: str, spec: Spec, secrets: t.List[str], given_labels: t.Dict[str, str]) -> t.List[str]:
    """Return the `podman create` line of a spec. It takes the values of `secrets` from its environment."""
    line = ["podman", "create", "--pull=never", "--name=" + name]
    line += ["--init"] if spec["init"] else []
    line += ["--network=" + spec["network_mode"]]
    # Podman refuses a size for memory that is the host's.
    sized = spec.get("shm_size") and spec.get("ipc_mode") != "host"
    for option, value in (
        ("user", spec.get("user")),
        ("entrypoint", spec.get("entrypoint")),
        ("ipc", spec.get("ipc_mode")),
        ("cgroup-parent", spec.get("cgroup_parent")),
        ("shm-size", spec["shm_size"] if sized else None),
    ):
        line += ["--{}={}".format(option, value)] if value else []
    line += ["--device=" + device for device in [*spec["devices"], *cdi_devices(spec.get("gpus") or "")]]
    line += ["--cap-drop=" + capability for capability in spec["cap_drop"]]
    line += ["--cap-add=" + capability for capability in spec["cap_add"]]
    line += ["--ulimit={}={}".format(limit, value) for limit, value in spec["ulimits"].items()]
    line += ["--label={}={}".format(key, value) for key, value in given_labels.items()]
    line += ["--env={}={}".format(key, env_value(value)) for key, value in spec["environment"].items()]
    line += ["--env=" + secret for secret in secrets]
    line += ["--volume=" + volume for volume in spec["volumes"]]
    return [*line, spec["image"], *spec["command"]]


def cdi_devices(gpus: str) -> t.List[str]:
    """Return the CDI names of `all`, a number, or `device=0,1`; none for ""."""
    if gpus.startswith("device="):
        names = gpus[len("device=") :].split(",")
    else:
        names = [str(index) for index in range(int(gpus))] if gpus.isdigit() else [gpus] if gpus else []
    return ["nvidia.com/gpu=" + name for name in names]


def missing_sources(spec: Spec, exists: t.Callable[[str], bool]) -> t.List[str]:
    """Return mounted folders and files, and devices, that the node does not have."""
    mounts = [volume.split(":")[0] for volume in spec["volumes"]]
    devices = [device.split(":")[0] for device in spec["devices"]]
    # A name without a slash is a volume of Docker's own.
    return [path for path in mounts + devices if path.startswith("/") and not exists(path)]


def gpu_request(gpus: str) -> t.Dict[str, t.Any]:
    """Return the arguments of a docker SDK DeviceRequest for `all`, a number, or `device=0,1`."""
    request: t.Dict[str, t.Any] = {"capabilities": [["gpu"]]}
    if gpus.startswith("device="):
        return {**request, "device_ids": gpus[len("device=") :].split(",")}
    return {**request, "count": -1 if gpus == "all" else int(gpus)}


def _sha256(value: t.Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
