"""Weights over Soft-RoCE: the carrier's unit tests and its benchmark in a machine with a device."""

from __future__ import annotations

import platform
import re
import shlex
import sys
from pathlib import Path

import pytest
import soft_roce

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the machine has an x86-64 kernel"),
]


def test_it_works_with_a_device(tmp_path: Path) -> None:
    """One start of the machine for both: it takes as long as they do."""
    tests = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/unit/test_weights_rdma.py"]
    measure = [sys.executable, "benchmarks/carrier.py", "rxe0", "--mib", "16", "--rounds", "1"]
    both = f"{shlex.join(tests)} && {shlex.join(measure)}"
    status, output = soft_roce.run(["bash", "-c", both], ROOT, tmp_path)
    assert status == 0 and "skipped" not in output and re.search(r"RDMA / TCP: \d", output), output
