"""The molecule scenario of each role, from create to destroy."""

from __future__ import annotations

import pytest
from readme_lab import ROOT
from scenarios import LONG, molecule

pytestmark = pytest.mark.lab
SCENARIOS = sorted(path.parent.name for path in ROOT.glob("molecule/*/molecule.yml"))


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name not in ("cluster", *LONG)])
def test_role(scenario: str) -> None:
    molecule(scenario)
