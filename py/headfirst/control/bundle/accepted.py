"""The newest signed bundle that each cluster has accepted: older ones may have known holes."""

from __future__ import annotations

import json
import time
from pathlib import Path

from headfirst.common.state_files import exclusive, read_file, replace_file
from headfirst.common.untrusted import UntrustedError
from headfirst.control.bundle.store import Bundle


class Accepted:
    """The record in `folder`: when the newest bundle was made, seconds since 1970, by cluster and signer."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._file = folder, folder / "accepted.json"

    def refuse_older(self, bundle: Bundle, cluster: str) -> None:
        """UntrustedError for a signed bundle that was made before the newest that `record` was given.

        Neither its signer nor the cluster that it was made for matters: it would be used for `cluster`.
        """
        what = bundle.manifest.what
        newest = max(self._read().get(cluster, {}).values(), default=0) if bundle.signer else 0
        if what.made < newest:
            raise UntrustedError(
                f"the bundle was made on {_date(what.made)}, and one of {_date(newest)} was accepted for "
                f"{cluster} before",
                where=str(bundle.path),
                hint="Use the newer one. To return to the older one on purpose: --older-bundle",
            )

    def record(self, bundle: Bundle, cluster: str) -> None:
        """Keep when this bundle was made, unless a newer one is recorded; nothing where it has no signer."""
        if not bundle.signer:
            return
        made = bundle.manifest.what.made
        with exclusive(self._folder):
            newest = self._read()
            signers = newest.setdefault(cluster, {})
            signers[bundle.signer] = max(made, signers.get(bundle.signer, 0))
            replace_file(self._file, json.dumps(newest, indent=1, sort_keys=True))

    def _read(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = json.loads(read_file(self._file) or "{}")
        return found


def _date(made: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(made)) if made else "an unknown date"
