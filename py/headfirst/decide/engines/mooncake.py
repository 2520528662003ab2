"""Ports at which Mooncake's transfer engine listens in a rank, on every interface and without a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_DEFAULT = (15000, 17000)
_KERNELS = range(32768, 61000)
# Before 0.3.11 the first spelling is the only one; after it, the second one is read first.
_SPELLINGS = ("PRC", "RPC")


def ports(command: Sequence[str], environment: Mapping[str, str]) -> list[range]:
    """Those of which each rank takes two; none where no argument and no variable names Mooncake.

    Tried with 0.3.13: a range that is not valid, or ends in the kernel's, is replaced by the default.
    """
    if not any("mooncake" in word.lower() for word in (*command, *environment)):
        return []
    spans, ends = [], [str(end) for end in _DEFAULT]
    for spelling in _SPELLINGS:
        names = [f"MC_{end}_{spelling}_PORT" for end in ("MIN", "MAX")]
        ends = [environment.get(name, end) for name, end in zip(names, ends, strict=True)]
        low, high = map(_number, ends)
        if not 1024 <= low <= high <= 65535 or low in _KERNELS or high in _KERNELS:
            low, high = _DEFAULT
        spans.append(range(low, high + 1))
    return spans


def _number(text: str) -> int:
    digits = re.match(r"\s*([0-9]+)", text)
    return int(digits[1]) if digits else 0
