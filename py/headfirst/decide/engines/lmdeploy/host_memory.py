"""Host memory of LMDeploy: Mooncake's store alone (0.18.0, pytorch/kv_connector/mooncake/store/data.py)."""

from __future__ import annotations

from headfirst.decide.engines.host_memory import HostRequest, KeptMemory, connectors

_NOTE = (
    "--kv-transfer-config: each rank keeps global_segment_size and local_buffer_size of Mooncake's file in "
    "host memory, 4 GiB each by default, which the plan does not count."
)


def host_memory(request: HostRequest) -> KeptMemory:
    """A note: the sizes are in a file that is not read."""
    return KeptMemory(notes=(_NOTE,) if any(connectors(request.values.get("kv_transfer_config"))) else ())
