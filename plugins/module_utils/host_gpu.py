"""GPUs as `nvidia-smi -q -x` reports them, and the kernel's log of their faults. Python 3.8+."""

from __future__ import annotations

import re
import typing as t
from xml.etree import ElementTree

from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource

MIB = 1 << 20
XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+),? ?(.*)")
CAPABILITY = re.compile(r"^\s*[0-9A-Fa-f]*([0-9A-Fa-f]{4}:[0-9A-Fa-f:.]+)\s*,\s*(\d+\.\d)\s*$", re.MULTILINE)
ECC = ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable")


def gather(source: HostSource) -> t.Dict[str, t.Any]:
    """Keys gpus (a list), smi_driver and smi_cuda (versions or ""), smi_error (its one line)."""
    text = source.run("nvidia-smi", "-q", "-x")
    if not text.strip():
        return {"gpus": [], "smi_driver": "", "smi_cuda": "", "smi_error": ""}
    facts = parse(text)
    # The XML has no compute capability.
    table = source.run("nvidia-smi", "--query-gpu=pci.bus_id,compute_cap", "--format=csv,noheader")
    capabilities = {bus.lower(): capability for bus, capability in CAPABILITY.findall(table)}
    for gpu in facts["gpus"]:
        gpu["compute_capability"] = capabilities.get(gpu["bus"], "")
    return facts


def parse(text: str) -> t.Dict[str, t.Any]:
    """What `gather` returns, from the output of `nvidia-smi -q -x` (DTD v11 to v13)."""
    if "<nvidia_smi_log>" not in text:
        return {"gpus": [], "smi_driver": "", "smi_cuda": "", "smi_error": " ".join(text.split())}
    log = ElementTree.fromstring(text)  # noqa: S314 - the driver's own output
    return {
        "gpus": [_gpu(gpu) for gpu in log.iter("gpu")],
        "smi_driver": log.findtext("driver_version", ""),
        "smi_cuda": log.findtext("cuda_version", ""),
        "smi_error": "",
    }


def xids(log: str) -> t.List[t.Dict[str, t.Any]]:
    """Faults in the kernel's log since boot, each code of a GPU once: {bus, xid, text}, text of the last."""
    faults: t.Dict[t.Tuple[str, int], t.Dict[str, t.Any]] = {}
    for bus, code, text in XID.findall(log):
        faults[bus, int(code)] = {"bus": bus, "xid": int(code), "text": text.strip()}
    return list(faults.values())


def _gpu(gpu: ElementTree.Element) -> t.Dict[str, t.Any]:
    return {
        "name": gpu.findtext("product_name", ""),
        "bus": gpu.get("id", "").lower()[-12:],  # sysfs writes the PCI domain with four digits
        "memory_bytes": _number(gpu.findtext("fb_memory_usage/total", "")) * MIB,
        "vbios": gpu.findtext("vbios_version", ""),
        "ecc_uncorrectable": sum(_number(gpu.findtext(f"ecc_errors/volatile/{name}", "")) for name in ECC),
        "remap_failure": gpu.findtext("remapped_rows/remapped_row_failure", "") == "Yes",
        "fabric": gpu.findtext("fabric/state", ""),
        "persistence": gpu.findtext("persistence_mode", "") == "Enabled",
        "processes": [
            {
                "pid": _number(process.findtext("pid", "")),
                "name": process.findtext("process_name", ""),
                "memory_bytes": _number(process.findtext("used_memory", "")) * MIB,
            }
            for process in gpu.iter("process_info")
            if "C" in process.findtext("type", "")
        ],
    }


def _number(text: str) -> int:
    """The number that a text begins with; 0 for N/A."""
    match = re.match(r"\d+", text)
    return int(match.group()) if match else 0
