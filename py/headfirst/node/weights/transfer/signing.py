"""What the head of a transfer signs: which files there are, and how each is proven. Members only verify.

The key is made on the head for one transfer and never leaves it; the members are given its public half by who
started them. So a member can pass on what the head stated, and cannot state anything in its place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from headfirst.common.errors import InputError
from headfirst.node.weights.proof.hashing import FileHash

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_SEED = 32  # bytes


class Key:
    """The Ed25519 key of a transfer: `public` in hex; only the head's signs."""

    def __init__(self, public: str, private: Ed25519PrivateKey | None = None) -> None:
        # Here, not at the first message: importing takes long, and `status` needs none of it.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        self.public = public
        self._verifier = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        self._private = private

    @classmethod
    def from_seed(cls, seed: bytes) -> Key:
        """The head's key, of 32 secret bytes."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        private = Ed25519PrivateKey.from_private_bytes(seed)
        return cls(private.public_key().public_bytes_raw().hex(), private)

    @classmethod
    def new(cls) -> Key:
        """A key that nobody else has."""
        return cls.from_seed(os.urandom(_SEED))

    @classmethod
    def of_file(cls, path: Path, *, make: bool = False) -> Key:
        """The head's key in `path`, which only its owner can read; `make`: a new one where there is none.

        Raises InputError where the file is absent, readable for others, or holds no key.
        """
        if make and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(os.urandom(_SEED))
        try:
            seed, mode = path.read_bytes(), path.stat().st_mode
        except FileNotFoundError:
            hint = f"Make one: headfirst-weights signing-key {path}"
            raise InputError("there is no signing key", where=str(path), hint=hint) from None
        if len(seed) != _SEED or mode & 0o077:
            hint = f"Remove it, then make one: headfirst-weights signing-key {path}"
            raise InputError("this is no signing key, or others can read it", where=str(path), hint=hint)
        return cls.from_seed(seed)

    def sign(self, statement: bytes) -> str:
        """The signature in hex; ValueError without the private half."""
        if self._private is None:
            raise ValueError("only the head signs")
        return self._private.sign(statement).hex()

    def has_signed(self, signature: str, statement: bytes) -> bool:
        """Whether `signature` (hex) of `statement` was made with the private half."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._verifier.verify(bytes.fromhex(signature), statement)
        except InvalidSignature:
            return False
        return True


def file_statement(made_from: Mapping[str, str], name: str, proof: FileHash) -> bytes:
    """What is signed of a file: all that proves it, and which checkpoint it is a part of."""
    root = blake3(proof.pieces).hexdigest()
    return statement("file", [dict(made_from), name, proof.size, proof.xxh3, proof.sha256, root])


def statement(kind: str, content: list[Any]) -> bytes:
    """JSON with sorted keys and no spaces, in ASCII; no statement of one kind is one of another."""
    return f"headfirst weights {kind}\n{json.dumps(content, sort_keys=True, separators=(',', ':'))}".encode()
