"""What the GPUs of a host do now, by nvidia-smi. A host without it has none."""

from __future__ import annotations

import csv
import operator
from collections.abc import Collection

from pydantic import Field

from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.live.ssh_access.ssh import HostConnection, run
from headfirst.decide.frozen import Tolerant

_MIB = 2**20
_MEMORY = ("memory_used_bytes", "memory_total_bytes")
_FIELDS = ("index", "uuid", *_MEMORY, "use", "celsius", "watts")
_QUERY = "index,uuid,memory.used,memory.total,utilization.gpu,temperature.gpu,power.draw"
_COMMAND = f"timeout 15 nvidia-smi --query-gpu={_QUERY} --format=csv,noheader,nounits"
_NOT_FOUND = 127


class GpuUse(Tolerant):
    """One GPU; None is what the driver does not report. `use` is the percentage of time that kernels ran."""

    index: int = Field(ge=0, le=1024)
    uuid: str = Field(pattern=r"^[A-Za-z0-9-]{1,80}$")
    memory_used_bytes: int | None = Field(ge=0, le=1 << 50)
    memory_total_bytes: int | None = Field(ge=0, le=1 << 50)
    use: int | None = Field(ge=0, le=100)
    celsius: int | None = Field(ge=-100, le=1000)
    watts: float | None = Field(ge=0, le=1e5)


def gpus(client: HostConnection) -> list[GpuUse]:
    """The GPUs of a host. NotReadyError where its driver does not answer."""
    answer = run(client, _COMMAND)
    if answer.code == _NOT_FOUND:
        return []
    if answer.code:
        raise NotReadyError(
            "nvidia-smi fails", hint="`deploy check` and `deploy diagnose` read what the driver reports."
        )
    return parsed(answer.out)


def parsed(text: str) -> list[GpuUse]:
    """The GPUs in an answer of nvidia-smi."""
    rows = csv.DictReader(text.splitlines(), _FIELDS, skipinitialspace=True)
    try:
        return sorted(map(_gpu, rows), key=operator.attrgetter("index"))
    except ValueError:  # pydantic's, too
        raise UntrustedError("the answer of nvidia-smi is not valid") from None


def of_rank(listed: Collection[GpuUse], devices: Collection[str] | None) -> list[GpuUse]:
    """Those of a rank: `devices` are indices and UUIDs, None for all."""
    return [gpu for gpu in listed if devices is None or {str(gpu.index), gpu.uuid} & set(devices)]


def _gpu(row: dict[str, str]) -> GpuUse:
    if None in row or None in row.values():
        raise ValueError("another number of fields")
    values = {name: None if value.startswith("[") else value for name, value in row.items()}  # [N/A]
    mebibytes = {name: value for name in _MEMORY if (value := values[name]) is not None}
    return GpuUse.model_validate(values | {name: int(value) * _MIB for name, value in mebibytes.items()})
