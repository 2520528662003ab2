"""The variables a person may write in an inventory: names, types, defaults. Only this knows them."""

from __future__ import annotations

import json
import re
import shlex
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from headfirst.cluster import values


def _words(value: Any) -> Any:
    """INI has only strings: split a shell-quoted one into words."""
    return shlex.split(value) if isinstance(value, str) else value


def _pairs(value: Any) -> Any:
    """`A=1 B=2`, a JSON object or a mapping to a mapping of strings."""
    if isinstance(value, str):
        if value.lstrip().startswith("{"):
            value = json.loads(value)
        else:
            words = shlex.split(value)
            if bad := [word for word in words if "=" not in word]:
                raise ValueError(f"{bad[0]!r} is not of the form NAME=VALUE")
            value = dict(word.split("=", 1) for word in words)
    return {str(key): str(item) for key, item in value.items()} if isinstance(value, dict) else value


def _text(value: Any) -> Any:
    """Ansible reads `1.10` in an INI host line as a number; these variables are texts."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


_RATE = re.compile(r"(\d+(?:\.\d+)?)([kmgt]?)(bit|byte)(?:/s)?", re.IGNORECASE)
_POWER = {"": 0, "k": 3, "m": 6, "g": 9, "t": 12}


def _rate(value: Any) -> Any:
    """`10gbit` or `500mbyte` a second to bytes a second; a bare b or B is refused: it is read as either."""
    match = _RATE.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("a rate is a number and a unit, such as 10gbit or 500mbyte (a second, k = 1000)")
    number, power, unit = match.groups()
    rate = round(float(number) * 10 ** _POWER[power.lower()] / (8 if unit.lower() == "bit" else 1))
    if rate == 0:
        raise ValueError("a rate must be more than zero")
    return rate


Words = Annotated[list[str], BeforeValidator(_words)]
Pairs = Annotated[dict[str, str], BeforeValidator(_pairs)]
Text = Annotated[str, BeforeValidator(_text)]
Port = Annotated[int, Field(ge=1, le=65535)]
# Ports of a container that may run as any user.
HighPort = Annotated[int, Field(ge=1024, le=65535)]
Rate = Annotated[int, BeforeValidator(_rate)]  # bytes a second
Bytes = Annotated[str, BeforeValidator(_text), AfterValidator(values.memory)]
Folder = Annotated[str, AfterValidator(values.data_folder)]
Image = Annotated[str, BeforeValidator(_text), AfterValidator(values.image)]
Hcas = Annotated[str, BeforeValidator(_text), AfterValidator(values.hcas)]


class ClusterSettings(BaseModel):
    """Variables of the whole cluster, written under `[all:vars]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster_name: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$")] | None = Field(
        None, description="Name in paths and in the summary. Default: the inventory's file name."
    )
    model: Text = Field(
        "", description="Hub id (`deepseek-ai/DeepSeek-R1`) or an absolute folder on the head."
    )
    model_source: Literal["modelscope", "huggingface", "path", "demo"] = Field(
        "modelscope",
        description="Where the checkpoint comes from; `demo` is the small one that Headfirst carries.",
    )
    model_revision: Text | None = Field(
        None, description="Branch, tag or commit on the hub. Default: the catalogue's commit, or the branch."
    )
    trust_remote_code: bool | None = Field(
        None,
        description="Run Python code that the model's repository brings, in the engine's container. Default: "
        "only at a commit that the built-in catalogue lists.",
    )
    served_model_name: Text | None = Field(
        None, description="Name in the API. Default: the model's last part."
    )
    weights_dir: Folder = Field(
        "/var/lib/headfirst/models",
        description="Folder for checkpoints on every node; give it a fast, large disk.",
    )
    keep_fp8: bool = Field(False, description="Keep the FP8 checkpoint where it is converted to BF16.")
    download_rate: Rate | None = Field(
        None, description="The head's line to the hub, e.g. 1gbit; `deploy plan` reckons with it."
    )
    engine: Literal["sglang"] = "sglang"
    engine_device: Literal["cuda", "cpu"] = "cuda"
    engine_image: Image | None = Field(
        None, description="repo:tag or repo:tag@sha256:… Default: the engine's own."
    )
    engine_image_source: Literal["registry", "tarball", "build"] = Field(
        "registry", description="`build` makes the CPU image from Debian and PyPI packages on this machine."
    )
    engine_image_tarball: Text | None = Field(None, description="`docker save` file on this machine.")
    engine_args: Words = Field(default_factory=list, description="More engine flags, as on a command line.")
    engine_env: Pairs = Field(default_factory=dict, description="More environment for every rank: `A=1 B=2`.")
    engine_port: HighPort = Field(30000, description="The engine's HTTP port on the head.")
    dist_port: HighPort = Field(5000, description="Rendezvous port on the head.")
    tensor_parallel: int | None = Field(None, ge=1, description="Default: chosen by the plan.")
    pipeline_parallel: int | None = Field(None, ge=1, description="Default: chosen by the plan.")
    shm_size: Bytes = "32g"
    ready_timeout: int = Field(3600, ge=10, description="Seconds until the service must answer a chat.")
    webui_port: Port = 8080
    webui_image: Image | None = Field(None, description="Default: the official image.")
    webui_image_source: Literal["registry", "build"] = "registry"
    webui_env: Pairs = Field(
        default_factory=dict, description="More environment for the chat page: `A=1 B=2`."
    )
    webui_origins: Words = Field(
        default_factory=list,
        description="Further addresses at which browsers open the chat page, such as "
        "`https://chat.example.org` of a proxy. At any other address it does not work.",
    )
    webui_data_dir: Annotated[str, Field(pattern=r"^/")] = Field(
        "/var/lib/headfirst/webui", description="Folder of the chat page's accounts and chats, on its host."
    )
    drivers: Literal["install", "keep"] = Field(
        "install",
        description="`install` NVIDIA's driver, its container toolkit and RDMA where they are missing; "
        "`keep` what the hosts have.",
    )
    allow_reboot: bool = Field(False, description="A host may be rebooted where its driver needs that.")
    lab_subnet: IPv4Network | None = Field(None, description="Network of lab nodes, made on this machine.")
    own_variables: Words = Field(
        default_factory=list,
        description="Names of variables of your own, or patterns such as `site_*`, that are not compared "
        "with the names above.",
    )


class HostSettings(BaseModel):
    """Variables of one host, written on its line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: IPv4Address | None = Field(None, description="Address the ranks use. Default: ansible_host.")
    gpus: int | None = Field(None, ge=0, le=64, description="GPUs that serve on this host.")
    gpu: Text | None = Field(None, description="GPU model, e.g. A100-80G. Default: what the host reports.")
    nic: Text | None = Field(
        None, description="Interface that holds `address`. Default: found by asking the host."
    )
    hca: Hcas | None = Field(
        None, description="RDMA devices, e.g. mlx5_1,mlx5_2; `none` for no RDMA. Default: chosen by the plan."
    )
    ib_gid_index: int | None = Field(
        None, ge=0, description="GID index of RoCE v2 with IPv4. Default: chosen by the plan."
    )
    network_rate: Rate | None = Field(
        None, description="The link of `nic`, e.g. 25gbit; `deploy plan` reckons with it."
    )
    disk_rate: Rate | None = Field(
        None, description="What the disk of weights_dir keeps up, e.g. 3gbyte; `deploy plan` reckons with it."
    )
    cpu_cores: Annotated[str, BeforeValidator(_text), Field(pattern=r"^\d+(-\d+)?(,\d+(-\d+)?)*$")] | None = (
        Field(
            None,
            description="With engine_device=cpu, the cores that its ranks share, e.g. 0-15. Default: all.",
        )
    )
    lab: bool = Field(False, description="This host is a node to be made on this machine.")
    lab_memory: Bytes | None = None
    lab_cpus: float | None = Field(None, gt=0)


CLUSTER_NAMES = frozenset(ClusterSettings.model_fields)
HOST_NAMES = frozenset(HostSettings.model_fields)
