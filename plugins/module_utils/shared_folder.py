"""Where a folder is, and whether other hosts see the very same one. Standard library only, Python 3.8+.

A file system that several hosts mount is known by its type in /proc/mounts. That does not prove that two
hosts mount the same one: NFS reports no fsid, names of servers differ, and inodes of root folders are alike.
So

* a model folder, which is not written to and may be mounted read-only, has a `sight`: names, sizes, times and
  inodes of all files, and blocks of each. Copies on different disks have other inodes.
* a folder that is ours has a `place`: a random name in a file, and the inode of that file.

On a file system of one host both include its boot and device, so that only containers of one machine share.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import itertools
import os
import re
import stat
import typing as t
import uuid

from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource

# Types in /proc/mounts: network and cluster file systems, and folders that a hypervisor hands to its guests.
# Types of FUSE are listed one by one: fuse.mergerfs, for one, holds local disks, with inodes made of paths.
SHARED_TYPES = frozenset(
    (
        "nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "gpfs", "beegfs", "wekafs", "panfs", "pvfs2",
        "orangefs", "glusterfs", "afs", "gfs2", "ocfs2", "9p", "virtiofs", "fuse.ceph",
        "fuse.ceph-fuse", "fuse.glusterfs", "fuse.hf3fs", "fuse.juicefs", "fuse.mfs", "fuse.moosefs",
        "fuse.quobyte", "fuse.seaweedfs", "fuse.cubefs", "fuse.curvefs", "fuse.alluxio-fuse",
        "fuse.dfuse", "fuse.gpfs", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.mount-s3",
        "fuse.rclone",
    )
)  # fmt: skip
# Their pages are not in the kernel's cache, or not by default.
UNCACHED_TYPES = frozenset(("gpfs", "beegfs", "wekafs", "panfs", "9p", "tmpfs", "ramfs"))
MARKER = ".headfirst-place"
MAX_FILES = 20000
_SAMPLES = 16
_BLOCK = 4096
_ESCAPE = re.compile(r"\\([0-7]{3})")


def file_system(path: str, mounts: str) -> str:
    """Type of the file system that holds `path`, a path without links, by /proc/mounts; like ext4 or nfs4."""
    innermost, longest = "", -1
    for line in mounts.splitlines():
        _device, point, type_ = line.split(" ")[:3]
        point = _unescaped(point)
        holds = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two mounts at one point the later one is on top, such as NFS over its autofs.
        if holds and len(point) >= longest:
            innermost, longest = type_, len(point)
    return innermost


def model_folder(path: str, source: t.Optional[HostSource] = None) -> t.Dict[str, t.Any]:
    """What a host sees of a model folder.

    Keys: exists, type, shared (by its type), cached (its pages are in the page cache), files, bytes, shape
    (equal where names and sizes are), sight (equal where it is the same folder), leads_out (a link leads to a
    file outside).
    """
    entries = sorted(itertools.islice(_entries(path), MAX_FILES)) if os.path.isdir(path) else []
    type_ = _type(path, source or HostSource())
    sizes = [(name, info.st_size) for name, _real, info in entries]
    base = os.path.realpath(path)
    return {
        "exists": bool(entries),
        "type": type_,
        "shared": type_ in SHARED_TYPES,
        "cached": type_ not in UNCACHED_TYPES,
        "files": len(entries),
        "bytes": sum(size for _name, size in sizes),
        "shape": _digest(sizes) if entries else "",
        "sight": _sight(path, entries, type_, source or HostSource()) if entries else "",
        "leads_out": any(not real.startswith(base + "/") for _name, real, _info in entries),
    }


def is_shared(path: str) -> bool:
    """Whether the file system of `path` (it need not exist yet) is one that hosts share."""
    return _type(path, HostSource()) in SHARED_TYPES


def place(path: str, *, mark: bool, source: t.Optional[HostSource] = None) -> t.Dict[str, t.Any]:
    """Which folder it is: type, shared, cached, and `id`, equal on all hosts that write into the same one.

    `id` is "" where that is not known: it is not there, or it is shared and has no mark yet. With `mark` it
    gets one; OSError where it cannot be written.
    """
    source = source or HostSource()
    type_ = _type(path, source)
    shared = type_ in SHARED_TYPES
    id_ = ""
    if shared:
        if mark:
            os.makedirs(path, exist_ok=True)
            _mark(path)
        marker = os.path.join(path, MARKER)
        if os.path.isfile(marker):
            with open(marker) as file:
                id_ = _digest((file.read(64), os.stat(marker).st_ino))
    elif os.path.isdir(path):
        info = os.stat(path)
        id_ = _digest((_machine(source), info.st_dev, info.st_ino))
    return {"type": type_, "shared": shared, "cached": type_ not in UNCACHED_TYPES, "id": id_}


def _type(path: str, source: HostSource) -> str:
    while not os.path.exists(path):  # this also has autofs mount what is there
        path = os.path.dirname(path)
    return file_system(os.path.realpath(path), source.read("/proc/mounts"))


def _entries(path: str) -> t.Iterator[t.Tuple[str, str, os.stat_result]]:
    """Each file that is not hidden: its relative name, its path without links, and the result of stat."""
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            file = os.path.join(folder, name)
            if name.startswith("."):
                continue
            try:
                info = os.stat(file)
            except OSError:  # a link to nothing
                continue
            if stat.S_ISREG(info.st_mode):
                yield os.path.relpath(file, path), os.path.realpath(file), info


def _sight(
    path: str, entries: t.List[t.Tuple[str, str, os.stat_result]], type_: str, source: HostSource
) -> str:
    with concurrent.futures.ThreadPoolExecutor(max_workers=8) as pool:
        samples = list(pool.map(lambda entry: _sample(entry[1]), entries))
    seen = [(name, info.st_size, info.st_mtime_ns, info.st_ino) for name, _real, info in entries]
    where = "" if type_ in SHARED_TYPES else (_machine(source), os.stat(path).st_dev)
    return _digest((where, seen, samples))


def _sample(path: str) -> str:
    """Hash of blocks spread evenly over a file, the first and the last among them; "" if unreadable."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as file:
            last = max(0, os.fstat(file.fileno()).st_size - _BLOCK)
            for number in range(_SAMPLES):
                digest.update(os.pread(file.fileno(), _BLOCK, last * number // (_SAMPLES - 1)))
    except OSError:
        return ""
    return digest.hexdigest()


def _mark(path: str) -> None:
    """Have a marker: made by one host only, whoever comes first, and never seen half written."""
    marker, part = os.path.join(path, MARKER), os.path.join(path, f"{MARKER}.{uuid.uuid4().hex}")
    if os.path.exists(marker):
        return
    with open(part, "x") as file:
        file.write(uuid.uuid4().hex)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(part, marker)
    except FileExistsError:
        pass
    finally:
        os.unlink(part)


def _machine(source: HostSource) -> str:
    return source.read("/proc/sys/kernel/random/boot_id")


def _digest(value: t.Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:32]


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), text)
