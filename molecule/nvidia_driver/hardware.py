"""Fixture: the PCI devices of an HGX A100, as a folder that stands for /sys/bus/pci/devices.

Usage: hardware.py FILES_TXT FOLDER
Takes NVIDIA's devices (8 GPUs, 6 NVSwitches) from the tests' description of such a machine.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path


def main() -> None:
    """Write one folder a device, with the files of sysfs that the tests' machine has."""
    folder = Path(sys.argv[2])
    lines = Path(sys.argv[1]).read_text().splitlines()
    # The part of a path that names the device, and the file of sysfs.
    files = [re.fullmatch(r"/sys/devices/pci\S*/([0-9a-f:.]+)/(\w+) = (.*)", line) for line in lines]
    found = [match.groups() for match in files if match]
    nvidia = {address for address, name, text in found if (name, text) == ("vendor", "0x10de")}
    for address, name, text in found:
        if address in nvidia:
            (folder / address).mkdir(parents=True, exist_ok=True)
            (folder / address / name).write_text(text + "\n")


if __name__ == "__main__":
    main()
