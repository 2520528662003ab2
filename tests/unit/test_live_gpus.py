"""What nvidia-smi of a host reports, and what of it belongs to a rank."""

from __future__ import annotations

from typing import Any

import pytest
from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.live import gpus
from headfirst.control.live.ssh_access.ssh import CommandOutput

# nvidia-smi 575, --query-gpu with --format=csv,noheader,nounits.
TWO = """\
1, GPU-11111111-0000-0000-0000-000000000000, 70000, 81559, 97, 65, 512.34
0, GPU-00000000-0000-0000-0000-000000000000, 3, 81559, 0, [N/A], [Not Supported]
"""


def test_memory_use_temperature_and_power() -> None:
    first, second = gpus.parsed(TWO)
    assert (second.memory_used_bytes, second.memory_total_bytes) == (70000 << 20, 81559 << 20)
    assert (second.use, second.celsius, second.watts) == (97, 65, 512.34)
    assert (first.index, first.use, first.celsius, first.watts) == (0, 0, None, None)


@pytest.mark.parametrize(
    ("devices", "indices"),
    [(None, [0, 1]), (["1"], [1]), (["GPU-00000000-0000-0000-0000-000000000000"], [0]), (["7"], [])],
)
def test_a_rank_has_its_devices(devices: list[str] | None, indices: list[int]) -> None:
    assert [gpu.index for gpu in gpus.of_rank(gpus.parsed(TWO), devices)] == indices


@pytest.mark.parametrize(
    "text",
    [
        "Failed to initialize NVML: Driver/library version mismatch",
        "0, GPU-1, 1, 2, 3, 4",
        "0, GPU-1, 1, 2, 101, 4, 5",
        "0, GPU-1\x1b[2J, 1, 2, 3, 4, 5",
        "-1, GPU-1, 1, 2, 3, 4, 5",
        "0, GPU-1, 1, 2, 3, 4, nan",
    ],
)
def test_nonsense_is_no_gpu(text: str) -> None:
    with pytest.raises(UntrustedError, match="the answer of nvidia-smi is not valid"):
        gpus.parsed(text)


def answered(monkeypatch: pytest.MonkeyPatch, code: int, out: str) -> Any:
    monkeypatch.setattr(gpus, "run", lambda _client, _command: CommandOutput(code, out, ""))
    return gpus.gpus(None)  # type: ignore[arg-type]


def test_a_host_without_a_driver_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answered(monkeypatch, 127, "") == []
    assert [gpu.index for gpu in answered(monkeypatch, 0, TWO)] == [0, 1]
    with pytest.raises(NotReadyError, match="nvidia-smi fails"):
        answered(monkeypatch, 9, "No devices were found")
