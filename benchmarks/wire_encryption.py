"""What it costs that all bytes between two nodes are encrypted: the same file with and without, in one run.

Usage: python benchmarks/wire_encryption.py [--mib 256] [--rounds 3]

Two sessions in one process, on loopback, folders in memory (/dev/shm). Without: only the key exchange is
encrypted. Prints the ratio of CPU seconds (both ends, with the proof of each piece) and of wall time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import libtorrent as lt
from headfirst.weights import swarm_settings
from headfirst.weights.hashing import hash_file
from headfirst.weights.swarm import Finished, Swarm
from headfirst.weights.torrent import make_torrent

HOSTS = ["127.9.9.1", "127.9.9.2"]
PORT = 18_460
ENCRYPTED = dict(swarm_settings._SECRET_HANDSHAKE)
CLEAR = {**ENCRYPTED, "allowed_enc_level": int(lt.enc_level.pe_plaintext), "prefer_rc4": False}


def transfer(folder: Path, torrent: bytes, settings: dict[str, object]) -> tuple[float, float]:
    """CPU and wall seconds from the connection to the last proven piece."""
    swarm_settings._SECRET_HANDSHAKE = settings  # type: ignore[assignment]
    target = folder / "copy"
    head, node = Swarm(HOSTS[0], PORT, HOSTS), Swarm(HOSTS[1], PORT, HOSTS)
    try:
        head.seed("file", torrent, folder)
        cpu, wall = time.process_time(), time.perf_counter()
        node.link(HOSTS[0])
        node.receive("file", torrent, target)
        while not any(isinstance(event, Finished) for event in node.events(0.2)):
            pass
        return time.process_time() - cpu, time.perf_counter() - wall
    finally:
        head.close()
        node.close()
        (target / "file").unlink()


def main() -> None:
    """Alternate, take the medians, print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        with (folder / "file").open("wb") as file:
            for _ in range(arguments.mib):
                file.write(os.urandom(1 << 20))
        torrent = make_torrent("file", hash_file(folder / "file"), "secret")
        found: dict[str, list[tuple[float, float]]] = {"clear": [], "encrypted": []}
        transfer(folder, torrent, CLEAR)  # fills caches; not counted
        for _ in range(arguments.rounds):
            found["clear"].append(transfer(folder, torrent, CLEAR))
            found["encrypted"].append(transfer(folder, torrent, ENCRYPTED))
    for number, what in enumerate(("CPU", "wall")):
        medians = {how: statistics.median(run[number] for run in runs) for how, runs in found.items()}
        rates = {how: arguments.mib * 2**20 / seconds / 1e9 for how, seconds in medians.items()}
        print(
            f"{what}: {rates['clear']:.2f} GB/s in clear, {rates['encrypted']:.2f} GB/s encrypted, "
            f"ratio of seconds {medians['encrypted'] / medians['clear']:.2f}"
        )


if __name__ == "__main__":
    main()
