"""The RDMA carrier. What needs a device runs over Soft-RoCE: tests/soft_roce.py starts these tests there."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from headfirst.common.untrusted import UntrustedError
from headfirst.node.weights.proof.verify import verify
from headfirst.node.weights.transfer import rdma
from headfirst.node.weights.transfer.rdma import Borrower, Lender, Port, available, buffer
from transfers import Members, ended
from weights_checkpoints import fp8_weight, write_checkpoint

DEVICES = available()
device = pytest.mark.skipif(not DEVICES, reason="needs an RDMA device (tests/soft_roce.py brings one)")
GID = bytes.fromhex("00000000000000000000ffff0a610001")
SLOT = 1 << 20


def offer(pair: int = 17, number: int = 5, lid: int = 0, mtu: int = 3, gid: bytes = GID) -> bytes:
    return rdma._OFFER.pack(pair, number, lid, mtu, gid)


def test_a_good_offer_becomes_what_ibverbs_takes() -> None:
    parsed = rdma._parsed_offer(offer(), SimpleNamespace(QPInfo=SimpleNamespace))
    assert (parsed.qp_num, parsed.psn, parsed.lid, parsed.mtu, parsed.gid) == (17, 5, 0, 3, GID)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        offer()[:-1],
        offer() + b"\0",
        offer(pair=0),
        offer(pair=2**24),
        offer(number=2**24),
        offer(mtu=0),
        offer(mtu=6),
        offer(gid=bytes(16)),
        offer(gid=b"\xff" + bytes(15)),
    ],
)
def test_a_bad_offer_is_refused(bad: bytes) -> None:
    with pytest.raises(UntrustedError):
        rdma._parsed_offer(bad, SimpleNamespace(QPInfo=SimpleNamespace))


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        rdma._DESCRIPTOR.pack(4096, 1, SLOT)[:-1],
        rdma._DESCRIPTOR.pack(4096, 1, SLOT - 1),
        rdma._DESCRIPTOR.pack(2**64 - SLOT, 1, SLOT),
    ],
)
def test_a_bad_descriptor_is_refused(bad: bytes) -> None:
    with pytest.raises(UntrustedError):
        rdma._parsed_descriptor(bad, SLOT)


def test_without_the_library_no_device_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ibverbs", None)
    assert available() == []


def port() -> Port:
    """The device's first GID that is an IPv4 address: the address of its interface."""
    table = Path(f"/sys/class/infiniband/{DEVICES[0]}/ports/1/gids")
    index = next(number for number in range(16) if ":ffff:" in (table / str(number)).read_text())
    return Port(DEVICES[0], gid_index=index)


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "shard"
    path.write_bytes(secrets.token_bytes(4 * SLOT + 12_345))
    return path


@pytest.fixture
def pair() -> Iterator[tuple[Lender, Borrower, memoryview]]:
    memory = buffer(2 * SLOT)
    with closing(Lender(port(), SLOT)) as lender, closing(Borrower(port(), memory)) as borrower:
        lender.connect(borrower.offer)
        borrower.connect(lender.offer)
        yield lender, borrower, memory


@device
def test_a_file_arrives_whole(pair: tuple[Lender, Borrower, memoryview], shard: Path) -> None:
    lender, borrower, memory = pair
    size, digest = shard.stat().st_size, hashlib.sha256()
    with shard.open("rb") as file:
        for number, start in enumerate(range(0, size, SLOT)):
            into = memory[number % 2 * SLOT :][: min(SLOT, size - start)]
            descriptor = lender.lend(file.fileno(), start, len(into))
            borrower.read(descriptor, into)
            digest.update(into)
    assert digest.digest() == hashlib.sha256(shard.read_bytes()).digest()


@device
def test_a_span_that_is_not_in_the_file_is_not_lent(
    pair: tuple[Lender, Borrower, memoryview], shard: Path
) -> None:
    lender, _, _ = pair
    with shard.open("rb") as file:
        with pytest.raises(OSError, match="the file ends"):
            lender.lend(file.fileno(), 4 * SLOT, SLOT)
        with pytest.raises(ValueError):
            lender.lend(file.fileno(), 0, SLOT + 1)


@device
def test_parts_of_a_loan_are_read_and_no_more(pair: tuple[Lender, Borrower, memoryview], shard: Path) -> None:
    lender, borrower, memory = pair
    with shard.open("rb") as file:
        descriptor = lender.lend(file.fileno(), SLOT, 3000)
    borrower.read(descriptor, memory[:1000], 2000)
    assert memory[:1000] == shard.read_bytes()[SLOT + 2000 : SLOT + 3000]
    with pytest.raises(UntrustedError):
        borrower.read(descriptor, memory[:1000], 2001)


@device
def test_what_is_not_lent_by_this_lender_cannot_be_read(
    pair: tuple[Lender, Borrower, memoryview], shard: Path
) -> None:
    """Another connection's memory, with its right key: the protection domains differ."""
    _, borrower, memory = pair
    with closing(Lender(port(), SLOT)) as other, shard.open("rb") as file:
        descriptor = other.lend(file.fileno(), 0, SLOT)
        with pytest.raises(ConnectionError):
            borrower.read(descriptor, memory[:SLOT])
    assert not any(memory[:SLOT])


@device
def test_a_stranger_can_neither_read_nor_connect(
    pair: tuple[Lender, Borrower, memoryview], shard: Path
) -> None:
    """He has the offer and the descriptor, but not the queue pair that the lender was given."""
    lender, borrower, memory = pair
    with closing(Borrower(port(), memory)) as stranger, shard.open("rb") as file:
        stranger.connect(lender.offer)
        descriptor = lender.lend(file.fileno(), 0, SLOT)
        with pytest.raises(ConnectionError, match="remote read failed"):
            stranger.read(descriptor, memory[:SLOT])
        borrower.read(descriptor, memory[:SLOT])
    assert memory[:SLOT] == shard.read_bytes()[:SLOT]


@device
@pytest.mark.parametrize("victim", ["lender", "borrower"])
def test_nobody_can_write(victim: str, pair: tuple[Lender, Borrower, memoryview]) -> None:
    import ibverbs

    lender, borrower, _ = pair
    writer, written = (borrower, lender) if victim == "lender" else (lender, borrower)
    request = ibverbs.SendWR(
        sg_list=[writer._memory.sge(16, 0)],
        opcode=ibverbs.WROpcode.RDMA_WRITE,
        send_flags=ibverbs.SendFlags.SIGNALED,
        remote_addr=written._address,
        rkey=written._memory.rkey,
    )
    writer._pair.post_send(request)
    assert not writer._wait(5).is_success


@device
def test_only_registered_memory_is_filled(pair: tuple[Lender, Borrower, memoryview], shard: Path) -> None:
    lender, borrower, _ = pair
    with shard.open("rb") as file, pytest.raises(ValueError):
        borrower.read(lender.lend(file.fileno(), 0, SLOT), memoryview(bytearray(SLOT)))


@device
def test_after_the_time_limit_the_connection_is_closed(shard: Path) -> None:
    memory = buffer(SLOT)
    with (
        closing(Lender(port(), SLOT)) as lender,
        closing(Borrower(port(), memory)) as borrower,
        shard.open("rb") as file,
    ):
        borrower.connect(lender.offer)
        descriptor = lender.lend(file.fileno(), 0, SLOT)
        with pytest.raises(ConnectionError, match=r"more than 0\.1 s"):
            borrower.read(descriptor, memory, time_limit=0.1)
        lender.connect(borrower.offer)  # would answer the repeated request
        time.sleep(0.5)
        assert not any(memory)
        with pytest.raises(ConnectionError):
            borrower.read(descriptor, memory)


LENDING = """
import sys, time
from headfirst.node.weights.transfer.rdma import Lender, Port
lender = Lender(Port(sys.argv[1], gid_index=int(sys.argv[2])), size=1 << 20)
print(lender.offer.hex(), flush=True)
lender.connect(bytes.fromhex(input()))
file = open(sys.argv[3], "rb")
print(lender.lend(file.fileno(), 0, 1 << 20).hex(), flush=True)
time.sleep(60)
"""


@device
def test_a_killed_lender_is_an_error_within_seconds(shard: Path) -> None:
    memory, own = buffer(SLOT), port()
    argv = [sys.executable, "-c", LENDING, own.device, str(own.gid_index), str(shard)]
    with (
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other,
        closing(Borrower(own, memory)) as borrower,
    ):
        assert other.stdin and other.stdout
        borrower.connect(bytes.fromhex(other.stdout.readline()))
        print(borrower.offer.hex(), file=other.stdin, flush=True)
        descriptor = bytes.fromhex(other.stdout.readline())
        borrower.read(descriptor, memory)
        os.kill(other.pid, signal.SIGSTOP)  # the adapter serves what is lent
        memory[:] = bytes(SLOT)
        borrower.read(descriptor, memory)
        assert memory == shard.read_bytes()[:SLOT]
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
        begin = time.monotonic()
        with pytest.raises(ConnectionError, match="remote read failed"):
            borrower.read(descriptor, memory)
        print(f"seconds until the error: {time.monotonic() - begin:.2f}")
        assert time.monotonic() - begin < 10
        with pytest.raises(ConnectionError):  # closed for good
            borrower.read(descriptor, memory)


@device
def test_an_unknown_device_is_named() -> None:
    with pytest.raises(ConnectionError, match="no RDMA device none0"):
        Lender(Port("none0"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """More than two loans in the first shard."""
    tensors = [("a", 4096, 4500), ("b", 512, 512)]
    shards = {
        f"model-{name}.safetensors": {f"{name}.weight": fp8_weight(rows, columns)}
        for name, rows, columns in tensors
    }
    write_checkpoint(tmp_path / "source", shards)
    return tmp_path / "source"


@device
@pytest.mark.parametrize("broken", [None, 0])
def test_a_checkpoint_goes_over_rdma_and_over_tcp_where_a_device_is_broken(
    broken: int | None, checkpoint: Path, tmp_path: Path
) -> None:
    members, own = Members(tmp_path, 2), port()
    arguments = ["@/model", "--model", str(checkpoint), "--from", "path", "--rdma"]
    devices = ["none0" if index == broken else own.device for index in range(2)]
    starts = (
        members.start(index, [*arguments, f"{device}:{own.number}:{own.gid_index}"])
        for index, device in enumerate(devices)
    )
    with ended(starts) as processes:
        for process in processes:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
    sender, receiver = members.result(0), members.result(1)
    assert sender["carrier"] == receiver["carrier"] == ("rdma" if broken is None else "tcp")
    assert sender["sent"] >= receiver["received"] > 2 * rdma.LOAN
    assert verify(members.home(1) / "model", deep=True).digest == sender["digest"]
    if broken is not None:
        note = json.loads((members.home(broken) / "progress.json").read_text())["note"]
        assert "over TCP, RDMA failed with" in note and "no RDMA device none0" in note
