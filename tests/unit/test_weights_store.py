"""The head fetches a file while it receives the same file: both write what they prove, and both succeed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from headfirst.node.weights import store as store_module
from headfirst.node.weights.proof.hashing import hash_file
from headfirst.node.weights.store import Store

NAME = "model-00001-of-00002.safetensors"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A folder with the file `NAME`, and another copy of it that was received."""
    store = Store(tmp_path)
    (tmp_path / NAME).write_bytes(b"weights")
    store.parts.mkdir(parents=True)
    (store.parts / NAME).write_bytes(b"weights")
    return store


def test_two_threads_record_the_proof_of_one_file(store: Store) -> None:
    proof = hash_file(store.folder / NAME)
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(store.proofs.put, NAME, proof) for _ in range(40)]:
            future.result()
    assert store.proofs.get(NAME) == proof


def test_a_file_that_is_settled_has_its_name_at_every_moment(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, there = store_module.publish, []

    def publish_and_note(part: Path, path: Path) -> None:
        there.append(path.is_file())
        publish(part, path)

    monkeypatch.setattr(store_module, "publish", publish_and_note)
    proof = hash_file(store.folder / NAME)
    for _ in range(2):  # the second time, the name is this very file
        store.settle(NAME, proof)
    assert all(there)
    assert store.proofs.get(NAME) == proof
    store.release(NAME)
    assert [path.name for path in store.folder.iterdir() if path.is_file()] == [NAME]
