"""OpenSSH signatures of a bundle's SHA256SUMS, made and verified by ssh-keygen."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from headfirst.common.errors import InputError, NotReadyError
from headfirst.common.state_files import exclusive, read_file, replace_file
from headfirst.common.untrusted import UntrustedError, shown
from headfirst.control.bundle.store import Bundle

NAMESPACE = "headfirst-bundle"
"""What the signature is for (ssh-keygen -n): one of a git commit does not pass for one of a bundle."""


def sign(data: bytes, key: Path, *, namespace: str = NAMESPACE) -> bytes:
    """The signature by `key`: a private key file, or a public one whose key ssh-agent holds.

    ssh-keygen asks for the passphrase on the terminal. InputError with its last line where it fails.
    """
    if not key.is_file():
        raise InputError(f"no such key: {key}", where="--sign", hint="Make one: ssh-keygen -t ed25519")
    done = subprocess.run(
        [_ssh_keygen(), "-Y", "sign", "-f", str(key), "-n", namespace],
        input=data,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise InputError(f"ssh-keygen cannot sign with {key}: {_last(done.stderr)}", where="--sign")
    return done.stdout


def verify(data: bytes, signature: bytes, signers: Path, *, where: str) -> str:
    """The signer, one of the file `signers` (`man ssh-keygen`, ALLOWED SIGNERS).

    UntrustedError where the signature is of other data or of somebody else.
    """
    if not signers.is_file():
        raise InputError(
            f"no such file: {signers}",
            where="--signers",
            hint=f'A line in it: you@example.org namespaces="{NAMESPACE}" $(cat ~/.ssh/id_ed25519.pub)',
        )
    with tempfile.TemporaryDirectory(prefix="headfirst-") as folder:
        file = Path(folder) / "signature"
        file.write_bytes(signature)
        of = ["-s", str(file), "-f", str(signers)]
        who = _ask("find-principals", *of)
        # A line of the file may name several, with commas between them.
        signer = next(iter(who.stdout.decode(errors="replace").splitlines()), "").partition(",")[0]
        if who.returncode != 0 or not signer:
            raise UntrustedError(
                f"no signer in {signers} signed the bundle",
                where=where,
                hint="Get the public key from the author of the bundle, and compare it over another channel.",
            )
        done = _ask("verify", *of, "-n", NAMESPACE, "-I", signer, data=data)
    if done.returncode != 0:
        raise UntrustedError(
            f"the signature of {shown(signer)} is not valid: {_last(done.stdout + done.stderr)}",
            where=where,
            hint="The bundle was changed after it was signed. Copy it again; nothing was installed.",
        )
    return signer


def _ask(verb: str, *arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    argv = [_ssh_keygen(), "-Y", verb, *arguments]
    return subprocess.run(argv, input=data, capture_output=True, check=False)


def _ssh_keygen() -> str:
    found = shutil.which("ssh-keygen")
    if found is None:
        raise NotReadyError(
            "ssh-keygen is not installed on this machine", hint="apt-get install openssh-client"
        )
    return found


def _last(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return shown(lines[-1]) if lines else "no reason given"


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
