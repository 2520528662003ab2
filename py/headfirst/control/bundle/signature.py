"""OpenSSH signatures of a bundle's SHA256SUMS, made and verified by ssh-keygen."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from headfirst.common.errors import InputError, NotReadyError
from headfirst.common.untrusted import UntrustedError, shown

NAMESPACE = "headfirst-bundle"
"""What the signature is for (ssh-keygen -n): one of a git commit does not pass for one of a bundle."""


def sign(data: bytes, key: Path, *, namespace: str = NAMESPACE) -> bytes:
    """The signature by `key`: a private key file, or a public one whose key ssh-agent holds.

    ssh-keygen asks for the passphrase on the terminal. InputError with its last line where it fails.
    """
    if not key.is_file():
        raise InputError(f"no such key: {key}", where="--sign", hint="Make one: ssh-keygen -t ed25519")
    done = _ask("sign", "-f", str(key), "-n", namespace, data=data)
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
    path = shutil.which("ssh-keygen")
    if path is None:
        raise NotReadyError(
            "ssh-keygen is not installed on this machine", hint="apt-get install openssh-client"
        )
    return path


def _last(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return shown(lines[-1]) if lines else "no reason given"
