"""The newest signed bundle that was accepted of each cluster and signer: older ones may have known holes."""

from __future__ import annotations

import json
import time
from pathlib import Path

from headfirst.bundle.store import Bundle
from headfirst.state_files import exclusive, read_file, replace_file
from headfirst.untrusted import UntrustedError


class Accepted:
    """The record in `folder`: when the newest bundle was made, seconds since 1970, by cluster and signer."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / "accepted.json"

    def refuse_older(self, bundle: Bundle) -> None:
        """UntrustedError for a signed bundle that was made before the newest that `record` was given."""
        what = bundle.manifest.what
        newest = self._read().get(what.needs.cluster, {}).get(bundle.signer, 0) if bundle.signer else 0
        if what.made < newest:
            raise UntrustedError(
                f"the bundle was made on {_date(what.made)}, and one of {_date(newest)} by {bundle.signer} "
                f"was accepted for {what.needs.cluster} before",
                where=str(bundle.path),
                hint="Use the newer one. To return to the older one on purpose: --older-bundle",
            )

    def record(self, bundle: Bundle) -> None:
        """Keep when this bundle was made, unless a newer one is recorded; nothing where it has no signer."""
        if not bundle.signer:
            return
        what = bundle.manifest.what
        with exclusive(self._folder):
            newest = self._read()
            signers = newest.setdefault(what.needs.cluster, {})
            signers[bundle.signer] = max(what.made, signers.get(bundle.signer, 0))
            replace_file(self._file, json.dumps(newest, indent=1, sort_keys=True))

    def _read(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = json.loads(read_file(self._file) or "{}")
        return found


def _date(made: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(made)) if made else "an unknown date"
