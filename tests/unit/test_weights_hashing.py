"""One pass over a file: the hashes of three worlds, each against its own reference."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import libtorrent as lt
import pytest
import xxhash
from headfirst.weights.hashing import BLOCK, PIECE, Hasher, fingerprint, hash_file
from headfirst.weights.torrent import make_torrent

SIZES = [
    1,
    BLOCK,
    BLOCK + 1,
    PIECE - 1,
    PIECE,
    PIECE + 1,
    3 * PIECE + 5,
    4 * PIECE,
    5 * PIECE,
    9 * PIECE + 17,
]


@pytest.mark.parametrize("size", SIZES)
def test_the_tree_is_the_one_that_libtorrent_makes(size: int, tmp_path: Path) -> None:
    path = tmp_path / "shard"
    path.write_bytes(os.urandom(size))
    proof = hash_file(path, with_sha256=True)
    assert proof.size == size
    assert proof.xxh3 == xxhash.xxh3_128(path.read_bytes()).hexdigest()
    assert proof.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    theirs = lt.create_torrent(lt.list_files(str(path)), PIECE, lt.create_torrent.v2_only)
    lt.set_piece_hashes(theirs, str(tmp_path))
    ours = lt.bdecode(make_torrent("shard", proof, "secret"))
    expected = theirs.generate()
    assert ours[b"info"][b"file tree"] == expected[b"info"][b"file tree"]
    assert ours[b"piece layers"] == expected.get(b"piece layers", {})


@pytest.mark.parametrize("step", [1000, BLOCK, BLOCK + 1, PIECE * 2])
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


def test_the_info_hash_needs_the_secret_and_the_path(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(os.urandom(100_000))
    proof = hash_file(tmp_path / "f")
    torrents = [
        make_torrent("f", proof, "one"),
        make_torrent("f", proof, "two"),
        make_torrent("a/f", proof, "one"),
    ]
    assert len({str(lt.torrent_info(torrent).info_hashes().v2) for torrent in torrents}) == 3
    assert make_torrent("f", proof, "one") == torrents[0]
