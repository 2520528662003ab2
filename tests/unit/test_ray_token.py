"""Ray's token: each member of a replica computes the same, and what an API user knows gives another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from headfirst.decide import engines
from headfirst.decide.engines import ray
from headfirst.decide.engines.base import LaunchRequest
from headfirst.decide.engines.layout import Layout
from headfirst.decide.engines.lmdeploy.launch import PROGRAM

USER, ADMIN = "sk-user-of-the-service", "administrator-of-engines"
WITH_RAY = ("vllm", "lmdeploy")


def file(folder: Path, engine: str, admin_key: str | None) -> Path:
    """An engine's file with its keys."""
    path = folder / f"{engine}-{admin_key}.yaml"
    path.write_text(yaml.safe_dump(engines.get(engine).config_file(api_key=USER, admin_key=admin_key)))
    return path


def token(folder: Path, config: Path, rank: int) -> str:
    """Ray's token in a rank's container: `ray` is a program that prints it, and fails."""
    program = folder / "ray"
    program.write_text('#!/bin/sh\necho "$RAY_AUTH_MODE $RAY_AUTH_TOKEN"\nexit 1\n')
    program.chmod(0o755)
    request = LaunchRequest(
        model_dir="/m", served_name="m", layout=Layout(2), nodes=2, rank=rank, head_address="127.0.0.1",
        dist_port=5000, address="127.0.0.1", port=30000, config_file=str(config), runtime="ray",
    )  # fmt: skip
    command = ray.command(request, ["engine"], gpus=1)
    command[2] = command[2].replace("until (", "until true || (")  # no head is waited for
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    mode, text = done.stdout.splitlines()[-1].split()
    assert mode == "token"
    return text


@pytest.mark.parametrize("engine", WITH_RAY)
def test_members_compute_one_token_and_a_user_cannot(tmp_path: Path, engine: str) -> None:
    config = file(tmp_path, engine, ADMIN)
    head, worker = (token(tmp_path, config, rank) for rank in (0, 1))
    assert head == worker and len(head) == 64
    # A user has the API key, and may write the file as the engines have it, with any other admin key.
    guesses = [file(tmp_path, engine, guess) for guess in (None, USER, "", "another")]
    assert head not in [token(tmp_path, guess, 0) for guess in guesses]


def test_lmdeploy_alone_has_the_token_of_its_file(tmp_path: Path) -> None:
    config = file(tmp_path, "lmdeploy", ADMIN)
    program = PROGRAM.partition("from lmdeploy")[0] + "print(os.environ['RAY_AUTH_TOKEN'])"
    done = subprocess.run([sys.executable, "-c", program, config], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == token(tmp_path, config, 0)
