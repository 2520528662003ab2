"""The scenario of the whole cluster; the lab's tests go on with its service."""

from __future__ import annotations

import pytest
from scenarios import molecule

pytestmark = pytest.mark.lab


def test_cluster(readme_nodes: None) -> None:
    molecule("cluster", "--destroy=never")
