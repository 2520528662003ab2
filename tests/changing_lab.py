"""A lab cluster that changes while clients ask it: what the tests of its shape share."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from client_load import Seen, load
from headfirst.control import demo
from readme_lab import Service, deploy

ANSWER = demo.answers()["Hello!"]


def bound_ranks(cluster: str) -> None:
    """Leave a part of each core to SSH: ranks of vLLM that transfer a KV cache poll, also when idle."""
    listed = ["docker", "ps", "--quiet", "--no-trunc", "--filter", f"name=headfirst-{cluster}-"]
    for node in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split():
        for folder in Path("/sys/fs/cgroup").glob(f"**/{node}/docker"):
            # Of control groups of version 2 and 1.
            for name, quota in (("cpu.max", "80000 100000"), ("cpu.cfs_quota_us", "80000")):
                if (folder / name).exists():
                    (folder / name).write_text(quota)


@contextmanager
def loaded(service: Service, what: str, *urls: str, clients: int = 4) -> Iterator[Seen]:
    """Clients of the first of `urls` that answers; prints what they saw, for docs/operations.md."""
    with load(urls, service.api_key, service.model, ANSWER, clients) as seen:
        yield seen
    print(f"{what}: {seen}")


def changes(inventory: Path, text: str) -> str:
    """Write the inventory and bring it up; what `deploy up` printed."""
    done = _up(inventory, text)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    return done.stdout


def fails(inventory: Path, text: str) -> str:
    """Write an inventory whose ranks or proxy do not start; what `deploy up` printed."""
    done = _up(inventory, text)
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr
    return done.stdout + done.stderr


def _up(inventory: Path, text: str) -> subprocess.CompletedProcess[str]:
    inventory.write_text(text)
    return deploy("up", inventory=inventory, options=["--plain"])
