"""Many cases of one test: it fails with all that failed, each with its case."""

from __future__ import annotations

import functools
import inspect
from builtins import ExceptionGroup
from collections.abc import Callable, Iterable, Sequence
from reprlib import repr as shortened
from typing import Any


def together(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[..., Callable[..., None]]:
    """As pytest.mark.parametrize, but one test: for tables whose many cases pytest collects in each worker
    and reports one by one. Fixtures are those of the whole test.
    """
    listed = list(cases)
    several = not isinstance(names, str)
    assert listed

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failed: list[Exception] = []
            for case in listed:
                values = dict(zip(names, case, strict=True)) if several else {names: case}
                try:
                    test(**fixtures, **values)
                except Exception as error:
                    error.add_note(", ".join(f"{name}={shortened(value)}" for name, value in values.items()))
                    failed.append(error)
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(listed)} cases", failed)

        signature = inspect.signature(test)
        own = set(names) if several else {names}
        kept = [parameter for name, parameter in signature.parameters.items() if name not in own]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run

    return decorated
