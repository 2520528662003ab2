"""What the lab's and the browser's tests share."""

from __future__ import annotations

import pytest
from readme_lab import Service, bring_up


@pytest.fixture(scope="session")
def service() -> Service:
    """The README's lab, up."""
    return bring_up()
