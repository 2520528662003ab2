"""One rank of the all-reduces. argv: the options as JSON, a folder for results, the rank on this node."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from refused import Refused

# What tells which way the bytes go; NCCL says much more.
TELLING = re.compile(
    r"via (NET/|P2P|SHM)|Using network|NET/\w+ ?: ?(Using|No device)|Direct RDMA|NCCL version"
)
MAX_LINES = 300
JOIN = timedelta(seconds=180)
COLLECTIVE = timedelta(seconds=60)
# How often a rank looks whether another one has failed, and how long it may still find out why by itself.
LOOK_S, LAST_WORDS_S = 2.0, 3.0
FAILED = "failed"


class Rank:
    """What this process is, where it stands, and what it has found."""

    def __init__(self, options: dict[str, Any], folder: Path, local: int) -> None:
        self.options, self.folder, self.local = options, folder, local
        self.rank = options["node"] * options["ranks_per_node"] + local
        self.world = options["nodes"] * options["ranks_per_node"]
        self.doing = "importing torch"
        self.found: dict[str, Any] = {"runs": []}
        self._store: Any = None
        self._ending = threading.Lock()

    def run(self) -> None:
        """Test the back-ends one after the other; the first that fails ends it. Does not return."""
        self._listen_to_nccl()
        try:
            self._measure()
        except Refused as error:
            self._failed(str(error), error.fix)
        except Exception as error:  # whatever torch raises is the result
            self._failed(f"{type(error).__name__}: {error}", "")
        if "error" in self.found:
            self._tell_the_others()
        else:
            self._wait_for_the_others()
        self._end()

    def progress(self, done: int, total: int, doing: str) -> None:
        """Tell whoever watches this node, from its first rank."""
        self.doing = doing
        path = os.environ.get("HEADFIRST_PROGRESS_FILE")
        if path and self.local == 0:
            part = Path(path + ".part")
            part.write_text(json.dumps({"done": done, "total": total, "unit": "sizes", "note": doing}))
            part.replace(path)

    def _measure(self) -> None:
        self.progress(0, 0, self.doing)
        import torch
        import torch.distributed as dist
        from all_reduce import measure

        self.found["torch"] = torch.__version__
        self.progress(0, 0, "meeting the other ranks")
        self._store = dist.TCPStore(*self._meeting, self.world, self.rank == 0, timeout=JOIN)
        threading.Thread(target=self._watch_the_others, args=(dist,), daemon=True).start()
        for backend in self.options["backends"]:
            self.progress(0, 0, f"starting {backend}")
            self._admit(backend, torch, dist)
            own = {
                "store": dist.PrefixStore(backend, self._store),
                "rank": self.rank,
                "world_size": self.world,
            }
            dist.init_process_group(backend, timeout=COLLECTIVE, **({} if backend == "mpi" else own))
            if dist.get_world_size() != self.world:
                raise Refused(
                    f"{backend} made a world of {dist.get_world_size()} instead of {self.world} ranks",
                    "torch's MPI needs mpirun, which the engine's ranks do without: use gloo or nccl.",
                )
            run: dict[str, Any] = {"backend": backend, "ranks": self.world, "rows": [], "stopped": ""}
            self.found["runs"].append(run)
            measure(self, backend, run)
            dist.destroy_process_group()

    def _admit(self, backend: str, torch: Any, dist: Any) -> None:
        if backend == "mpi" and not dist.is_mpi_available():
            raise Refused(
                f"torch {torch.__version__} in this image has no MPI", "Use --backend gloo or nccl."
            )
        if backend == "nccl" and not (dist.is_nccl_available() and torch.cuda.is_available()):
            raise Refused(
                f"torch {torch.__version__} sees no GPU in this container",
                "Look at `nvidia-smi` on the host and at NVIDIA's container toolkit: deploy check.",
            )
        if backend == "nccl":
            torch.cuda.set_device(self.local)

    def _failed(self, message: str, fix: str, *, echo: bool = False) -> None:
        self.found["error"] = {
            "at": time.time(),
            "doing": self.doing,
            "message": message[:2000],
            "fix": fix,
            "echo": echo,
        }

    def _tell_the_others(self) -> None:
        """They may be waiting in a library that never looks up. Rank 0 keeps the board for a while."""
        if self._store is not None:
            with contextlib.suppress(Exception):  # nobody is left to be told
                self._store.set(FAILED, "yes")
            time.sleep(2 * LOOK_S if self.rank == 0 else 0)

    def _watch_the_others(self, dist: Any) -> None:
        """End this rank when another one has failed, or rank 0 has gone."""
        board = dist.TCPStore(*self._meeting, is_master=False, wait_for_workers=False, timeout=JOIN)
        failed = False
        while not failed:
            time.sleep(LOOK_S)
            try:
                failed = board.check([FAILED])
            except Exception:  # torch's errors differ by version
                failed = True
        time.sleep(LAST_WORDS_S)  # this rank may know the reason, too
        with self._ending:
            self._failed("another rank failed", "", echo=True)
        self._end()

    def _wait_for_the_others(self) -> None:
        """Rank 0 keeps the board until all have come to the end."""
        self._store.add("ended", 1)
        end = time.monotonic() + 10
        while self.rank == 0 and self._store.add("ended", 0) < self.world and time.monotonic() < end:
            time.sleep(0.1)

    def _end(self) -> None:
        """Write what was found and leave; whichever thread comes first."""
        self._ending.acquire()
        self.found["nccl_log"] = self._nccl_lines()
        part = self.folder / f"rank{self.local}.part"
        part.write_text(json.dumps(self.found))
        part.replace(self.folder / f"rank{self.local}.json")
        sys.stdout.flush()
        # Threads of NCCL that wait for a dead peer would keep a plain exit from ending.
        os._exit(1 if "error" in self.found else 0)

    @property
    def _meeting(self) -> tuple[str, int]:
        return self.options["head"], self.options["port"]

    def _listen_to_nccl(self) -> None:
        """NCCL's own words into a file of this rank; the ways of its channels are in INIT and NET."""
        if os.environ.get("NCCL_DEBUG") != "TRACE":
            os.environ["NCCL_DEBUG"] = "INFO"
        os.environ["NCCL_DEBUG_SUBSYS"] = "INIT,NET,ENV"
        os.environ["NCCL_DEBUG_FILE"] = str(self._nccl_file)

    def _nccl_lines(self) -> list[str]:
        if not self._nccl_file.exists():
            return []
        lines = self._nccl_file.read_text(errors="replace").splitlines()
        return [line for line in lines if TELLING.search(line)][:MAX_LINES]

    @property
    def _nccl_file(self) -> Path:
        return self.folder / f"nccl{self.local}.log"


if __name__ == "__main__":
    Rank(json.loads(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])).run()
