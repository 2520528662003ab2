"""A first look on a machine with a GPU. Its Python needs PyTorch with CUDA, Triton, transformers and numba.

    python3 -m pytest -rs --confcutdir=tests/gpu tests/gpu

It takes at most five minutes, and needs no network, Ansible or Docker. What it measured is in the file that
HEADFIRST_GPU_RESULTS names (default: gpu-results.json), without names of hosts, addresses and UUIDs.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session", autouse=True)
def _collection(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Python finds the collection's modules without Ansible."""
    folder = tmp_path_factory.mktemp("collections")
    parent = folder / "ansible_collections" / "headfirst"
    parent.mkdir(parents=True)
    (parent / "serving").symlink_to(ROOT)
    sys.path[:0] = [str(folder), str(ROOT / "py")]


@pytest.fixture(scope="session")
def torch() -> Any:
    """PyTorch where it sees a GPU; elsewhere the test is skipped with the reason."""
    module = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not module.cuda.is_available():
        pytest.skip(f"PyTorch {module.__version__} sees no GPU")
    return module


@pytest.fixture(scope="session")
def results(torch: Any) -> Iterator[dict[str, Any]]:
    """What the tests measured, by their names; written in the end, also where one fails."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
    }
    yield found
    path = Path(os.environ.get("HEADFIRST_GPU_RESULTS", "gpu-results.json"))
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
