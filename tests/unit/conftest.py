"""What the unit tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from headfirst.control.inventory import reading
from inventory_server import InventoryServer


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a test stores about a cluster is not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _quick_inventories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Inventories are read as by the command, but with Ansible's library imported once."""
    server = InventoryServer(tmp_path_factory.mktemp("reader"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_ask", server.ask)
        yield
    server.close()
