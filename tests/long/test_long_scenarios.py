"""Molecule scenarios that take minutes."""

from __future__ import annotations

import pytest
from scenarios import LONG, molecule

pytestmark = pytest.mark.lab


@pytest.mark.parametrize("scenario", LONG)
def test_role(scenario: str) -> None:
    molecule(scenario)
