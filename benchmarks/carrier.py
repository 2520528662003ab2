"""What a carrier costs: the same file over plain TCP and over RDMA, each piece proven, in one run.

Usage: python benchmarks/carrier.py DEVICE [--gid-index 1] [--mib 1024] [--rounds 3]

Two processes on this machine, files in memory (/dev/shm). TCP: sendfile, recv_into, BLAKE3, pwrite. RDMA:
preadv into lent memory, remote read, BLAKE3, pwrite; the descriptors pass over TCP. Prints GB/s, the CPU
seconds per GB of both processes, and the ratio. Over Soft-RoCE they show only that it works: the kernel's
work counts for neither process, and an emulated machine is slow. Measure on an adapter.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from blake3 import blake3
from headfirst.node.weights.transfer.rdma import LOAN, Borrower, Lender, Port, buffer

PIECE = 1 << 20
Ends = dict[str, tuple[Callable[..., None], Callable[..., None]]]


def send_tcp(file: int, size: int, peer: socket.socket, port: Port) -> None:
    sent = 0
    while sent < size:
        sent += os.sendfile(peer.fileno(), file, sent, size - sent)


def receive_tcp(file: int, size: int, peer: socket.socket, port: Port, proofs: list[bytes]) -> None:
    memory = buffer(PIECE)
    for start in range(0, size, PIECE):
        piece, got = memory[: min(PIECE, size - start)], 0
        while got < len(piece):
            got += peer.recv_into(piece[got:])
        keep(file, piece, start, proofs)


def send_rdma(file: int, size: int, peer: socket.socket, port: Port) -> None:
    with closing(Lender(port)) as lender, peer.makefile("rb") as answers:
        peer.sendall(lender.offer.hex().encode() + b"\n")
        lender.connect(bytes.fromhex(answers.readline().decode()))
        for start in range(0, size, LOAN):
            peer.sendall(lender.lend(file, start, min(LOAN, size - start)).hex().encode() + b"\n")
            answers.readline()


def receive_rdma(file: int, size: int, peer: socket.socket, port: Port, proofs: list[bytes]) -> None:
    memory = buffer(PIECE)
    with closing(Borrower(port, memory)) as borrower, peer.makefile("rb") as answers:
        borrower.connect(bytes.fromhex(answers.readline().decode()))
        peer.sendall(borrower.offer.hex().encode() + b"\n")
        for start in range(0, size, LOAN):
            descriptor = bytes.fromhex(answers.readline().decode())
            for offset in range(0, min(LOAN, size - start), PIECE):
                piece = memory[: min(PIECE, size - start - offset)]
                borrower.read(descriptor, piece, offset)
                keep(file, piece, start + offset, proofs)
            peer.sendall(b"\n")


def keep(file: int, piece: memoryview, start: int, proofs: list[bytes]) -> None:
    if blake3(piece).digest() != proofs[start // PIECE]:
        raise SystemExit(f"the piece at {start} is not what was sent")
    os.pwrite(file, piece, start)


CARRIERS: Ends = {"TCP": (send_tcp, receive_tcp), "RDMA": (send_rdma, receive_rdma)}


def transfer(carrier: str, folder: Path, proofs: list[bytes], port: Port) -> tuple[float, float]:
    """Wall seconds, and CPU seconds of both ends."""
    size = (folder / "file").stat().st_size
    results: multiprocessing.SimpleQueue[float] = multiprocessing.SimpleQueue()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def end(index: int) -> None:
            begin = time.process_time()
            if index == 0:
                peer, _ = server.accept()
                file = os.open(folder / "file", os.O_RDONLY)
                CARRIERS[carrier][0](file, size, peer, port)
            else:
                peer = socket.create_connection(server.getsockname())
                file = os.open(folder / "copy", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                CARRIERS[carrier][1](file, size, peer, port, proofs)
            results.put(time.process_time() - begin)

        context = multiprocessing.get_context("fork")
        ends = [context.Process(target=end, args=(index,)) for index in (0, 1)]
        begin = time.perf_counter()
        for process in ends:
            process.start()
        for process in ends:
            process.join()
        wall = time.perf_counter() - begin
    if any(process.exitcode for process in ends):
        raise SystemExit(f"{carrier} failed")
    (folder / "copy").unlink()
    return wall, results.get() + results.get()


def main() -> None:
    """Alternate, take the medians, print the ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("device")
    parser.add_argument("--gid-index", type=int, default=1)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    port = Port(arguments.device, gid_index=arguments.gid_index)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder, proofs = Path(name), []
        with (folder / "file").open("wb") as file:
            for _ in range(arguments.mib):
                piece = os.urandom(PIECE)
                proofs.append(blake3(piece).digest())
                file.write(piece)
        runs: dict[str, list[tuple[float, float]]] = {carrier: [] for carrier in CARRIERS}
        for _ in range(arguments.rounds):
            for carrier, done in runs.items():
                done.append(transfer(carrier, folder, proofs, port))
    gb = arguments.mib * PIECE / 1e9
    median = {
        carrier: [statistics.median(run[part] for run in done) for part in (0, 1)]
        for carrier, done in runs.items()
    }
    for carrier, (wall, cpu) in median.items():
        print(f"{carrier:4} {gb / wall:6.2f} GB/s  {cpu / gb:5.2f} CPU s per GB, both ends")
    print(f"RDMA / TCP: {median['TCP'][0] / median['RDMA'][0]:.2f} of the speed,", end=" ")
    print(f"{median['RDMA'][1] / median['TCP'][1]:.2f} of the CPU")


if __name__ == "__main__":
    main()
