"""The one error of ours; everything else is torch's own."""


class Refused(Exception):
    """This test cannot be made here: why, and what to do instead."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.fix = fix
