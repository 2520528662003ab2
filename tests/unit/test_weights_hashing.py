"""One pass over a file: each hash against its own library."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
import xxhash
from blake3 import blake3
from headfirst.node.weights.proof.hashing import DIGEST, PIECE, Hasher, fingerprint, hash_file

SIZES = [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5, 4 * PIECE]


@pytest.mark.parametrize("size", SIZES)
def test_each_hash_is_its_librarys(size: int, tmp_path: Path) -> None:
    path = tmp_path / "shard"
    path.write_bytes(data := os.urandom(size))
    proof = hash_file(path, with_sha256=True)
    assert proof.size == size
    assert proof.xxh3 == xxhash.xxh3_128(data).hexdigest()
    assert proof.sha256 == hashlib.sha256(data).hexdigest()
    pieces = [data[start : start + PIECE] for start in range(0, size, PIECE)]
    assert proof.pieces == b"".join(blake3(piece).digest() for piece in pieces)
    assert proof.is_consistent
    assert proof.count == len(pieces)
    assert [proof.piece_size(number) for number in range(proof.count)] == [len(piece) for piece in pieces]
    for number, piece in enumerate(pieces):
        assert proof.proves(number, memoryview(piece))
        assert not proof.proves(number, memoryview(piece[:-1] + bytes([piece[-1] ^ 1])))
        assert not proof.proves(number, memoryview(piece[:-1]))


@pytest.mark.parametrize("step", [1000, 16384, PIECE - 1, PIECE * 2])
def test_chunks_of_any_size_give_the_same(step: int, tmp_path: Path) -> None:
    data = os.urandom(3 * PIECE + 5)
    (tmp_path / "f").write_bytes(data)
    hasher = Hasher(with_sha256=True)
    for start in range(0, len(data), step):
        hasher.update(data[start : start + step])
    assert hasher.finish() == hash_file(tmp_path / "f", with_sha256=True)


def test_a_fingerprint_has_no_sha256_and_the_same_xxh3(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(os.urandom(100_000))
    assert fingerprint(tmp_path / "f") == hash_file(tmp_path / "f").record


def test_a_version_is_of_the_pieces_alone(tmp_path: Path) -> None:
    data = os.urandom(2 * PIECE)
    versions = []
    for name, content in (
        ("a", data),
        ("b", data),
        ("c", data[:-1] + bytes([data[-1] ^ 1])),
        ("d", data[PIECE:]),
    ):
        (tmp_path / name).write_bytes(content)
        proof = hash_file(tmp_path / name)
        versions.append(proof.version)
        assert proof.version == blake3(proof.pieces).digest()[:16].hex()
    assert versions[0] == versions[1]
    assert len(set(versions)) == 3


@pytest.mark.parametrize("change", [-DIGEST, DIGEST, -1])
def test_digests_that_are_not_one_for_each_piece_are_found(change: int, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(os.urandom(PIECE + 1))
    proof = hash_file(tmp_path / "f")
    pieces = proof.pieces[:change] if change < 0 else proof.pieces + bytes(change)
    assert not replace(proof, pieces=pieces).is_consistent
