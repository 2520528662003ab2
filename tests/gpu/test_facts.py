"""What the host module reports of GPUs, against nvidia-smi and CUDA; memory by name; names of figures."""

from __future__ import annotations

import csv
import importlib
import subprocess
from pathlib import Path
from typing import Any

MIB = 1 << 20
Results = dict[str, Any]


def smi(*fields: str) -> list[list[str]]:
    """A row of nvidia-smi for each GPU."""
    query = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, check=True)
    return list(csv.reader(done.stdout.splitlines(), skipinitialspace=True))


def facts() -> dict[str, Any]:
    """As module host_facts gathers them."""
    utils = "ansible_collections.headfirst.serving.plugins.module_utils"
    gather = importlib.import_module(f"{utils}.host_gather").gather
    source = importlib.import_module(f"{utils}.host_source").Source()
    found: dict[str, Any] = gather(source, "/", [], [])
    return found


def test_facts_match_nvidia_smi_and_cuda(torch: Any, results: Results) -> None:
    found = facts()
    rows = smi("name", "pci.bus_id", "memory.total", "driver_version", "compute_cap", "vbios_version")
    assert len(found["gpus"]) == len(rows) == torch.cuda.device_count()
    for gpu, (name, bus, memory, driver, capability, vbios) in zip(found["gpus"], rows, strict=True):
        assert gpu["name"] == name
        assert gpu["bus"] == bus.lower()[-12:]
        assert gpu["memory_bytes"] == int(memory) * MIB
        assert gpu["compute_capability"] == capability
        assert gpu["vbios"] == vbios
        assert found["smi_driver"] == driver
    for index, gpu in enumerate(found["gpus"]):
        seen = torch.cuda.get_device_properties(index)
        assert gpu["name"] == seen.name
        assert gpu["compute_capability"] == f"{seen.major}.{seen.minor}"
        # CUDA leaves out what the driver keeps.
        assert 0 <= gpu["memory_bytes"] - seen.total_memory < gpu["memory_bytes"] // 10
    pci, driver = found["gpus_on_pci"], found["driver"]
    assert len(pci) >= len(rows)
    results["facts"] = {
        "driver": found["smi_driver"],
        "cuda_of_driver": found["smi_cuda"],
        "fabric": [gpu["fabric"] for gpu in found["gpus"]],
        "gpus_on_pci": len(pci),
        "nvswitches": found["nvswitches"],
        "driver_facts": {key: value for key, value in driver.items() if isinstance(value, (bool, int))},
        "stuck": found["stuck"],
    }


def test_memory_by_name_is_what_the_driver_reports(torch: Any, results: Results) -> None:
    gpus = importlib.import_module("headfirst.decide.hardware.gpus")
    rows = []
    for name, memory, capability in smi("name", "memory.total", "compute_cap"):
        listed = gpus.find(name)
        rows.append({"name": name, "listed": listed.name, "mib": int(memory)})
        results["memory"] = rows
        assert listed.memory_bytes == int(memory) * MIB
        assert listed.compute_capability == gpus.capability(capability)


def test_nvidia_smi_knows_every_figure_that_is_asked(torch: Any, results: Results) -> None:
    """Those of `deploy status` and `top`, read without the module's SSH."""
    text = (Path(__file__).parents[2] / "py/headfirst/control/live/gpus.py").read_text()
    fields = text.partition('_QUERY = "')[2].partition('"')[0].split(",")
    assert len(fields) > 3
    row = smi(*fields)[0]
    results["figures"] = {
        name: value for name, value in zip(fields, row, strict=True) if name not in ("uuid", "index")
    }
    assert not [value for value in row if "not supported" in value.lower() or not value]
