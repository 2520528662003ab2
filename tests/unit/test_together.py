"""Many cases in one test hide none that fails."""

from __future__ import annotations

import inspect
from builtins import ExceptionGroup

import pytest
from together import together


def test_all_failures_are_reported_each_with_its_case() -> None:
    tried = []

    @together("divisor", [1, 0, 2, -1])
    @together(("first", "second"), [(6, 6), (4, 8)])
    def divided(first: int, second: int, divisor: int, capsys: object) -> None:
        tried.append((first, divisor))
        assert first / divisor == second / divisor > 0, f"{second} by {divisor}"

    assert list(inspect.signature(divided).parameters) == ["capsys"]
    with pytest.raises(ExceptionGroup, match="4 of 4 cases") as raised:
        divided(capsys=None)
    assert len(tried) == 8
    ones, zeros, _, negative = raised.value.exceptions
    assert ones.__notes__ == ["divisor=1"]
    assert isinstance(zeros, ExceptionGroup)
    assert [type(error) for error in zeros.exceptions] == [ZeroDivisionError, ZeroDivisionError]
    assert zeros.exceptions[1].__notes__ == ["first=4, second=8"]
    assert isinstance(negative, ExceptionGroup)
    assert "8 by -1" in str(negative.exceptions[1])


def test_a_table_without_cases_is_a_mistake() -> None:
    with pytest.raises(AssertionError):
        together("case", [])
