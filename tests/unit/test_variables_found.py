"""`deploy variables WORD` finds a setting by what a person has in mind."""

from __future__ import annotations

import pytest
from headfirst.control.inventory.variables import find


@pytest.mark.parametrize(
    ("word", "name"),
    [("modelscope", "model_source"), ("context", "engine_args"), ("agent", "parsers"), ("tool", "parsers")],
)
def test_the_setting_is_the_first(word: str, name: str) -> None:
    assert find(word)[0].name == name
