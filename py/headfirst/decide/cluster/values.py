"""Checks of values that a person writes into an inventory; the message shows the form that is right."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import HUB_ID

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(?:ib)?)?", re.IGNORECASE)
_DECIMAL = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt])b\s*", re.IGNORECASE)
_UNIT = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_LEAST, _MOST = 2**20, 2**50

# Folders of the system: what is below them is not for data either.
_SYSTEM_TREES = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr")
_DATA_IN_THEM = ("/dev/shm",)  # noqa: S108 - a name to compare with
# Folders that hold more than models.
_SYSTEM_FOLDERS = ("/", "/home", "/opt", "/root", "/tmp", "/var", "/var/lib", "/var/log", "/var/tmp")  # noqa: S108

# A reference of the distribution specification: [HOST[:PORT]/]PATH[:TAG][@DIGEST].
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9.-]+(?::\d+)?/)?[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"(?P<tag>:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?P<digest>@sha256:[0-9a-f]{64})?"
)
_ADAPTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
# A name of DNS, with * for its first part, or the text of an IPv4 address.
_HOST_NAME = re.compile(
    r"(?:\*\.)?[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*"
)
_ENVIRONMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GPU_VARIABLES = {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"}
_HCA = re.compile(r"[A-Za-z0-9_.-]+(?::\d+)?")
# As docker run --gpus takes them, and `nvidia-smi -L` prints them; a UUID may be cut short.
_DEVICE = re.compile(
    r"(?P<index>[0-9]{1,3})|(?P<UUID>GPU-[0-9a-f-]{1,36})|(?P<MIG>MIG-(?:GPU-)?[0-9a-f/-]{1,48})"
    r"|(?P<part>[0-9]{1,3}:[0-9]{1,3})"
)
_PROXY = re.compile(r"https?://(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):(?P<port>[0-9]{1,5})")
# A name or a domain, an address, or a network as 10.0.0.0/8.
_EXCEPTION = re.compile(r"\.?[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}|[0-9A-Fa-f:.]{2,45}(?:/[0-9]{1,3})?")
_CORES = re.compile(r"[0-9]{1,5}(?:-[0-9]{1,5})?")


def memory(text: str) -> str:
    """An amount of memory as Docker takes it: 32g, 512m. 32GiB and 1t are written so."""
    number, unit = _amount(text)
    return f"{number * 1024:g}g" if unit == "t" else f"{number:.12g}{unit}"


def memory_bytes(text: Any) -> int:
    """An amount of memory in bytes: 94g, 95830m."""
    number, unit = _amount(text)
    return int(number * _UNIT[unit])


def _amount(text: Any) -> tuple[float, str]:
    text = text if isinstance(text, str) else ""
    match = _MEMORY.fullmatch(text.strip())
    if match is None:
        form = "a number and k, m or g, such as 32g"
        decimal = _DECIMAL.fullmatch(text)
        meant = f"{decimal[1]}{decimal[2].lower()} ({form})" if decimal else form
        raise ValueError(f"write {meant}")
    number, unit = float(match[1]), (match[2] or "").lower()
    if number * _UNIT[unit] < _LEAST:
        raise ValueError("this is less than 1m; write a number and k, m or g, such as 32g")
    if number * _UNIT[unit] > _MOST:
        raise ValueError("this is more than any host has; write a number and k, m or g, such as 32g")
    return number, unit


def data_folder(text: str) -> str:
    """An absolute folder for large files, which `deploy` may fill and empty."""
    path = PurePosixPath(text)
    if not text.startswith("/"):
        raise ValueError("it must be an absolute path such as /data/models")
    if ".." in path.parts or not text.isprintable() or ":" in text or "," in text:
        raise ValueError("it must be a path without `..`, `:`, `,` and control characters")
    folder = "/" + text.strip("/")
    below = any(path.is_relative_to(tree) for tree in _SYSTEM_TREES)
    data = any(path.is_relative_to(tree) for tree in _DATA_IN_THEM)
    if folder in _SYSTEM_FOLDERS or (below and not data):
        raise ValueError("this is a folder of the system; write one for models, such as /data/models")
    return text


def image(text: str) -> str:
    """A container image with a tag or a digest: without one the registry decides what runs."""
    match = _IMAGE.fullmatch(text)
    if match is None:
        raise ValueError("it must be an image name such as registry.example.org/engine:v1.0")
    if not match["tag"] and not match["digest"]:
        raise ValueError(f"the image has no tag; write {text}:TAG, for example {text}:v1.0")
    return text


def volume(text: str) -> str:
    """A folder of the host in every rank: SOURCE:TARGET or SOURCE:TARGET:ro, absolute paths."""
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not (source.startswith("/") and target.startswith("/") and mode in ("", "ro", "rw")):
        raise ValueError("write SOURCE:TARGET with absolute paths, such as /data/templates:/templates:ro")
    if not text.isprintable() or ".." in (*PurePosixPath(source).parts, *PurePosixPath(target).parts):
        raise ValueError("it must be paths without `..` and control characters")
    return text


def environment(variables: dict[str, str]) -> dict[str, str]:
    """Environment of a container, in what a shell, Docker and Kubernetes take."""
    for name, value in variables.items():
        if not _ENVIRONMENT.fullmatch(name):
            raise ValueError("a name has other characters than letters, digits and _, or starts with a digit")
        if "\0" in value:
            raise ValueError(f"the value of {name} has a NUL character")
    return variables


def engine_environment(variables: dict[str, str]) -> dict[str, str]:
    """Environment of the ranks; the variables that number the GPUs of a container again are refused."""
    for name in _GPU_VARIABLES & variables.keys():
        devices = " ".join(re.split(r"[\s,]+", variables[name].strip()))
        raise ValueError(f'the plan gives each container its GPUs; write gpu_devices="{devices}" for {name}')
    return variables


def words(value: Any) -> list[str]:
    """Texts or numbers with commas or spaces between them, or a list of such."""
    if isinstance(value, list):
        return [word for item in value for word in words(item)]
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise ValueError("it must be a text, or a list of texts")
    return re.split(r"\s*,\s*|\s+", str(value).strip()) if value != "" else []


_NO_DEVICES = ("auto", "all", "any", "true", "false", "yes", "no")  # NCCL would look for such a device


def hcas(names: list[str]) -> str:
    """RDMA devices, `none`, or NCCL's ^ and = in front, with commas between them."""
    first, *rest = names or [""]
    alone = (first.removeprefix("^").removeprefix("="), *rest)
    if not all(_HCA.fullmatch(name) and name.lower() not in _NO_DEVICES for name in alone):
        raise ValueError(
            "it must be device names separated by commas, such as mlx5_0,mlx5_1, or none; "
            "leave the line out, and the plan chooses"
        )
    return ",".join(names)


def cores(ranges: list[str]) -> str:
    """Cores and ranges of them, with commas between them."""
    if not ranges or not all(_CORES.fullmatch(text) for text in ranges):
        raise ValueError("it must be cores separated by commas, such as 0-15 or 0,2,4-7")
    return ",".join(ranges)


def devices(names: list[str]) -> list[str]:
    """GPUs by index or by UUID, all in one way: which index has which UUID only the host states."""
    matches = [_DEVICE.fullmatch(name) for name in names]
    if not all(matches):
        wrong = next(name for name, match in zip(names, matches, strict=True) if not match)
        raise ValueError(f"{wrong!r} is no GPU: write indices, such as 0,1,2,3, or UUIDs of `nvidia-smi -L`")
    if len({device_kind(name) for name in names}) > 1:
        raise ValueError("a GPU may have both: write all by index, or all by UUID")
    return [str(int(name)) if name.isdecimal() else name for name in names]


def device_kind(name: str) -> str:
    """How a GPU is named: index, UUID, or MIG, a part of one. Only names of one kind can be compared."""
    match = _DEVICE.fullmatch(name)
    return match.lastgroup or "" if match else ""


def adapters(sources: dict[str, str]) -> dict[str, str]:
    """LoRA adapters: a name in the API, and an absolute folder, or a hub id with or without a revision."""
    for name, source in sources.items():
        if not _ADAPTER.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot be an adapter's name: write at most 64 letters, digits, dots, dashes and "
                "underscores, such as support-v2"
            )
        id, at, revision = pinned(source)
        _source(id, f"of adapter {name}")
        if at and not _REVISION.fullmatch(revision):
            raise ValueError(
                f"{source!r} has no revision after the @ of adapter {name}: write a branch, a tag or a commit"
            )
    return sources


def pinned(source: str) -> tuple[str, str, str]:
    """A folder or a hub id, an @, and what the id is pinned to; the last two are empty where it is not."""
    return (source, "", "") if source.startswith("/") else source.partition("@")


def draft_model(source: str) -> str:
    """A model that drafts: a hub id, or an absolute folder."""
    _source(source, "of a draft model")
    return source


def _source(source: str, whose: str) -> None:
    if source.startswith("/"):
        data_folder(source)
    elif not HUB_ID.fullmatch(source):
        raise ValueError(f"{source!r} is neither a hub id (org/repository) nor an absolute folder {whose}")


def host_names(names: list[str]) -> list[str]:
    """Names and IPv4 addresses for a certificate; a name that browsers can open is first."""
    for name in names:
        if not _HOST_NAME.fullmatch(name) or len(name) > 253:
            raise ValueError(f"{name!r} is not a name in lower case, such as llm.example.org, or an address")
    if names and names[0].startswith("*"):
        raise ValueError(f"{names[0]!r} is a pattern: write a name that browsers can open before it")
    return names


def proxy_url(text: str) -> str:
    """A proxy as http://HOST:PORT, or nothing. A login would be in plans, logs and argument lists."""
    url = text.removesuffix("/")
    if "@" in url:
        raise ValueError(
            "the URL has a login; write USER:PASSWORD into a file, chmod 600 it, and name it in "
            "http_proxy_login_file"
        )
    match = _PROXY.fullmatch(url)
    if url and not (match and 0 < int(match["port"]) < 1 << 16):
        raise ValueError("it must be http://HOST:PORT or https://HOST:PORT")
    return url


def proxy_exceptions(names: list[str]) -> list[str]:
    """Names, domains and addresses that are reached without a proxy, in the form that all programs read."""
    if wrong := next((name for name in names if not _EXCEPTION.fullmatch(name)), None):
        raise ValueError(f"{wrong!r} is no name, domain (`.example.org`) or address; write no * and no port")
    return names
