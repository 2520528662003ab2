"""Signatures with real ssh keys: who signed what, for which purpose."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from bundles import write
from headfirst.common.errors import InputError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.bundle import signature
from headfirst.control.bundle.store import opened


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return made_key(tmp_path / "key")


def made_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


def signers(key: Path, options: str = "") -> Path:
    path = key.with_name(f"{key.name}.signers")
    path.write_text(f"me@example.org,you@example.org {options} {key.with_suffix('.pub').read_text()}")
    return path


def test_a_signature_names_its_signer_and_another_is_refused(key: Path, tmp_path: Path) -> None:
    signed = signature.sign(b"data", key)
    assert signature.verify(b"data", signed, signers(key), where="b.tar") == "me@example.org"
    argv = ["ssh-keygen", "-q", "-Y", "sign", "-n", "git", "-f", key]
    for_git = subprocess.run(argv, input=b"data", capture_output=True, check=True).stdout
    of_a_stranger = signature.sign(b"data", made_key(tmp_path / "stranger"))
    for data, other, what, hint in (
        (b"dota", signed, "me@example.org is not valid", "nothing was installed"),
        (b"data", of_a_stranger, "no signer in", ""),
        (b"data", for_git, "", ""),
        (b"data", b"-----BEGIN", "", ""),
    ):
        with pytest.raises(UntrustedError) as error:
            signature.verify(data, other, signers(key), where="b.tar")
        assert what in error.value.what
        assert error.value.where == "b.tar" and hint in str(error.value.hint)


def test_a_key_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such key"):
        signature.sign(b"data", tmp_path / "none")


def test_a_bundle_without_a_signature_is_taken_on_request_only(key: Path, tmp_path: Path) -> None:
    write(tmp_path / "b.tar", {"a": b"a"})
    with pytest.raises(InputError, match="not signed"):
        opened(tmp_path / "b.tar", signers(key))
    assert opened(tmp_path / "b.tar", None).signer == ""


def test_a_signed_bundle_is_opened(key: Path, tmp_path: Path) -> None:
    made = write(tmp_path / "unsigned.tar", {"a": b"a"})
    write(tmp_path / "b.tar", {"a": b"a"}, signature=signature.sign(made.sums, key))
    assert opened(tmp_path / "b.tar", signers(key)).signer == "me@example.org"
    with pytest.raises(InputError, match="no such file"):
        opened(tmp_path / "b.tar", tmp_path / "none")
