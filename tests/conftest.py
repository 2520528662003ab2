"""What all tests share, and those on lab nodes."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from ansible.plugins.loader import init_plugin_loader
from readme_lab import Service, bring_up, succeeds

# Ansible finds this collection as it does in a run, before tests import it.
init_plugin_loader()

# A shell's job in the background ignores Ctrl-C, and what it starts inherits that; tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What brings other services up on the README's nodes comes last: the first one need not come back."""
    for item in items:
        if item.path.parent.name == "long":
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.get_closest_marker("replaces_the_service") is not None)


@pytest.fixture(scope="session")
def readme_nodes() -> Iterator[None]:
    """The README's lab is removed: first what an interrupted run left, and everything in the end."""
    succeeds("lab", "down")
    yield
    succeeds("lab", "down")


@pytest.fixture(scope="session")
def service(readme_nodes: None) -> Service:
    """The README's lab, up."""
    return bring_up()
