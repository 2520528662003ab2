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

_TEXT: Spec = {"type": "str"}
_LIST: Spec = {"type": "list", "elements": "str", "default": []}
_DICT: Spec = {"type": "dict", "default": {}}


class Field(t.NamedTuple):
    """One field of a spec: what the module takes, and what carries it out."""

    option: Spec
    run: str = ""  # the option of `docker run`; "" where the field is no option
    sdk: bool = True  # an argument of the docker SDK with this name; otherwise container_runtime makes one
    compose: str = ""  # the key of a service of Compose with this value; "" where render/compose.py makes one


# All fields, in the order of a command. Who writes a container goes through this table, and the files of
# schedulers state what they do not carry out: a new field is a row here and one of Container in
# py/headfirst/decide/containers/spec.py, and nobody drops it.
FIELDS: t.Dict[str, Field] = {
    "init": Field({"type": "bool", "default": True}, "--init", compose="init"),
    "user": Field(_TEXT, "--user", compose="user"),
    "entrypoint": Field(_TEXT, "--entrypoint"),
    "network_mode": Field({"type": "str", "default": "bridge"}, "--network", compose="network_mode"),
    "ipc_mode": Field(_TEXT, "--ipc", compose="ipc"),
    "cgroup_parent": Field(_TEXT, "--cgroup-parent", compose="cgroup_parent"),
    "shm_size": Field(_TEXT, "--shm-size", compose="shm_size"),
    "gpus": Field(_TEXT, "--gpus", sdk=False),
    "restart_policy": Field(
        {"type": "str", "default": "no", "choices": ["no", "on-failure", "unless-stopped", "always"]},
        "--restart",
        sdk=False,  # a container that has not served yet must end when it crashes
        compose="restart",
    ),
    "cap_drop": Field(_LIST, "--cap-drop", compose="cap_drop"),
    "cap_add": Field(_LIST, "--cap-add", compose="cap_add"),
    "ulimits": Field(_DICT, "--ulimit", sdk=False, compose="ulimits"),
    "devices": Field(_LIST, "--device", compose="devices"),
    "labels": Field(_DICT, "--label", sdk=False, compose="labels"),
    "env_file": Field({"type": "path"}, "--env-file", sdk=False),
    "environment": Field(_DICT, "--env", compose="environment"),
    "volumes": Field(_LIST, "--volume"),
    "files": Field(_DICT, sdk=False),  # the module writes them; who cannot has Container.without_files
    "image": Field({"type": "str", "required": True}, compose="image"),
    "command": Field(_LIST, compose="command"),
}
SPEC_OPTIONS = {name: field.option for name, field in FIELDS.items()}


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
    canon: Spec = {
        key: value for key, value in spec.items() if key != "files" and value not in (None, [], {}, "")
    }
    canon["environment"] = {key: str(value) for key, value in spec.get("environment", {}).items()}
    canon["image_id"] = image_id
    if secret_env:
        canon["env_file_sha256"] = fingerprint(secret_env)
    return canon


def fingerprint(spec: Spec) -> str:
    """Return the SHA-256, in hex, of a canonical spec, or of a part of one."""
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()


def labels(spec: Spec) -> t.Dict[str, str]:
    """Return the container's labels: the spec's own, its fingerprint, and the spec itself for the diff."""
    spec_labels = {str(key): str(value) for key, value in spec.get("labels", {}).items()}
    return {**spec_labels, SPEC_LABEL: fingerprint(spec), SPEC_JSON_LABEL: json.dumps(spec, sort_keys=True)}


def create_arguments(spec: Spec, secret_env: t.Dict[str, str]) -> t.Dict[str, t.Any]:
    """Return docker SDK arguments of `containers.create`, but for name, labels and what needs SDK types."""
    arguments = {name: spec[name] for name, field in FIELDS.items() if field.sdk and spec.get(name)}
    environment = {key: str(value) for key, value in spec["environment"].items()}
    return {**arguments, "init": spec["init"], "environment": {**environment, **secret_env}}


def run_options(spec: Spec, program: str = "docker") -> t.List[str]:
    """Return the options of `docker run`, or of a program that has the same, for a spec."""
    left_out = [("restart_policy", "no")]
    if program == "podman" and spec.get("ipc_mode") == "host":
        left_out.append(("shm_size", spec.get("shm_size")))  # Podman refuses it, the others ignore it
    words = []
    for name, field in FIELDS.items():
        value = spec.get(name)
        if not value or not field.run or (name, value) in left_out:
            continue
        if name == "gpus" and "," in value:  # the program reads it as CSV
            value = '"{}"'.format(value)
        if isinstance(value, dict):
            value = ["{}={}".format(key, str(text)) for key, text in value.items()]
        for text in value if isinstance(value, list) else [value]:
            words += [field.run] if text is True else [field.run, str(text)]
    return words


def podman_create(name: str, spec: Spec, secrets: t.List[str], given_labels: t.Dict[str, str]) -> t.List[str]:
    """Return the `podman create` line of a spec. It takes the values of `secrets` from its environment."""
    devices = [*spec["devices"], *cdi_devices(spec.get("gpus") or "")]
    elsewhere: Spec = {"gpus": None, "env_file": None, "restart_policy": None}
    options = run_options({**spec, **elsewhere, "devices": devices, "labels": given_labels}, "podman")
    line = ["podman", "create", "--pull=never", "--name", name, *options]
    return [*line, *("--env=" + secret for secret in secrets), spec["image"], *spec["command"]]


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
