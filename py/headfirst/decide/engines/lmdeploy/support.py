"""The models and quantisations that LMDeploy's two back ends have."""

from __future__ import annotations

from headfirst.decide.engines.answers import Words
from headfirst.decide.frozen import Tolerant


class BackEnd(Tolerant):
    """What one back end reads. A list that the answers lack is empty, and nothing is refused by it."""

    architectures: Words = frozenset()
    quantisations: Words = frozenset()


class SupportTable(Tolerant):
    """Both back ends, and the architectures that read images."""

    turbomind: BackEnd = BackEnd()
    pytorch: BackEnd = BackEnd()
    vision: Words = frozenset()
