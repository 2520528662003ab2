"""What the unit tests share: Ansible finds this collection as it does in a run, before tests import it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible.plugins.loader import init_plugin_loader

init_plugin_loader()


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a test stores about a cluster is not the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
