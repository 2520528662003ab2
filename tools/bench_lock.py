"""Writes py/headfirst/control/evalscope/packages.lock: evalscope with all that `deploy bench` and
`deploy test --accuracy` import of it.

Usage: python tools/bench_lock.py   (uses the machine's package index)
"""

from __future__ import annotations

import sys
from pathlib import Path

from lock_hashes import of_wheels_for, universal

ROOT = Path(__file__).parents[1] / "py"
sys.path.insert(0, str(ROOT))

from headfirst.control.machine.pip_settings import uv_environment  # noqa: E402  # the checkout's, installed or not

TOOL = "evalscope==1.14.1"
HEADER = "# Python packages of the load tool. Made by tools/bench_lock.py; do not edit.\n"
LISTS = ROOT / "headfirst" / "control" / "evalscope" / "packages"
PYTHON = "3.11"
CONTROLLERS = ("manylinux", "musllinux", "macosx")


def main() -> None:
    needs = of_wheels_for(CONTROLLERS, PYTHON, _resolved(LISTS.with_suffix(".in").read_text()))
    LISTS.with_suffix(".lock").write_text(HEADER + needs + _resolved(TOOL, "--no-deps"))


def _resolved(requirements: str, *extra: str) -> str:
    return universal(requirements, PYTHON, *extra, env=uv_environment())


if __name__ == "__main__":
    main()
