"""Names, addresses and ports of the stand-ins."""

from __future__ import annotations

from headfirst.decide.cluster.settings import ClusterSettings, ServiceSettings

ENGINE_PORT, WEBUI_PORT = ServiceSettings().engine_port, ClusterSettings().webui_port
MODEL = "stand-in"


def address(number: int) -> str:
    """Address of host `number`, which counts from 1."""
    return f"10.97.{number // 250}.{number % 250 + 1}"


def name(number: int) -> str:
    """Name of host `number` in the inventory, and its host name."""
    return f"node{number:03d}"
