"""Intervals (low, high) and a test for shares of right answers. All are for a confidence of 95 %."""

from __future__ import annotations

import math

_Z = 1.959963984540054  # the normal distribution's 97.5 % quantile


def wilson(right: int, total: int) -> tuple[float, float]:
    """Where the true share is, by Wilson's score interval (1927); (0, 1) where nothing was counted."""
    if not total:
        return 0.0, 1.0
    share = right / total
    middle = share + _Z**2 / (2 * total)
    width = _Z * math.sqrt(share * (1 - share) / total + _Z**2 / (4 * total**2))
    below, above = ((middle + side * width) / (1 + _Z**2 / total) for side in (-1, 1))
    return 0.0 if right == 0 else below, 1.0 if right == total else above


def mcnemar(lost: int, gained: int) -> float:
    """p of McNemar's exact test, two-sided: how likely so uneven a division is where both are equally good.

    `lost` and `gained`: the pairs that differ, either way.
    """
    total, fewer = lost + gained, min(lost, gained)
    # Of the binomial distribution, from the largest term down: whole numbers would have thousands of digits.
    logarithm = math.lgamma(total + 1) - math.lgamma(fewer + 1) - math.lgamma(total - fewer + 1)
    term = tail = math.exp(logarithm - total * math.log(2))
    for count in range(fewer, 0, -1):
        term *= count / (total - count + 1)
        tail += term
    return min(1.0, 2 * tail)


def paired_difference(both: int, lost: int, gained: int, neither: int) -> tuple[float, float]:
    """Where the true difference (new - old) is: Newcombe's hybrid score interval for pairs (1998, method 10).

    `both` and `neither`: the pairs where both were right, or wrong; `lost`: only the old one was right.
    """
    total = both + lost + gained + neither
    if not total:
        return -1.0, 1.0
    old, new = both + lost, both + gained
    margins = old * (total - old) * new * (total - new)
    excess: float = both * neither - lost * gained
    if excess > 0:
        excess = max(0, excess - total / 2)
    correlation = excess / math.sqrt(margins) if margins else 0.0
    difference = (new - old) / total
    (low, high), (old_low, old_high) = wilson(new, total), wilson(old, total)

    def reach(first: float, second: float) -> float:
        return math.sqrt(max(0.0, first**2 - 2 * correlation * first * second + second**2))

    below = reach(new / total - low, old_high - old / total)
    above = reach(high - new / total, old / total - old_low)
    return max(-1.0, difference - below), min(1.0, difference + above)
