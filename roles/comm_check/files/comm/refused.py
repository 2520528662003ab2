"""The one error of ours. Without torch, which a rank imports late."""

from __future__ import annotations


class Refused(Exception):
    """This test cannot be made here: why, and what to do instead."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.fix = fix
