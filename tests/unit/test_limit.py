"""`up --limit`: host stages on some hosts; stages of all ranks refuse it before anything is done."""

from __future__ import annotations

from pathlib import Path

import pytest
from headfirst.deployment.running.limit import refuse_limit
from headfirst.deployment.running.options import RunOptions
from headfirst.errors import InputError


def options(limit: str | None, *tags: str) -> RunOptions:
    return RunOptions([Path("lab.ini")], limit=limit, tags=tags)


@pytest.mark.parametrize(
    "tag",
    ["check", "host", "tuning", "driver", "rdma", "docker", "image", "tools", "webui", "router", "proxy"],
)
def test_host_stages_take_it(tag: str) -> None:
    refuse_limit(options("node3", tag))


@pytest.mark.parametrize("tags", [(), ("weights",), ("serve",), ("engine",), ("host", "serve")])
def test_stages_of_all_ranks_refuse_it(tags: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        refuse_limit(options("node3", *tags))
    assert caught.value.exit_code == 2
    assert "takes no --limit" in caught.value.what or "take no --limit" in caught.value.what
    assert "-l node3 -t host" in str(caught.value.hint)


def test_without_it_everything_runs() -> None:
    refuse_limit(options(None))
