"""A virtual machine of these files. It needs root, and the packages qemu-system-x86, busybox-static, cpio.

It boots Debian's kernel in QEMU, without KVM, in about 15 seconds. Its files are those of this machine, and
what it writes is gone afterwards.
"""

from __future__ import annotations

import gzip
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

MODULES = ["virtio_pci", "crc32_generic", "crc32c_generic", "9pnet_virtio", "9p", "overlay"]
APPLETS = ["sh", "mount", "mkdir", "insmod", "ip", "chroot", "poweroff", "switch_root", "cp", "ln"]
SHARE = "trans=virtio,version=9p2000.L,msize=512000"
FIRST = f"""#!/bin/sh
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in /modules/*; do insmod $module; done
mount -t 9p -o {SHARE},ro,cache=loose host /host
mount -t 9p -o {SHARE} job /job
mount -t tmpfs tmpfs /changes; mkdir /changes/upper /changes/work /new
mount -t overlay -o lowerdir=/host,upperdir=/changes/upper,workdir=/changes/work overlay /new
mkdir -p /new/job; mount -o bind /job /new/job
for name in proc sys dev; do mount -o bind /$name /new/$name; done
mkdir -p /new/dev/shm; mount -t tmpfs tmpfs /new/dev/shm
"""


def run(
    command: list[str], cache: Path, time_limit: float, *, modules: Sequence[str], init: str
) -> tuple[int, str]:
    """Exit code and output of `command` in the machine; `cache` keeps the packages.

    `modules` are loaded after MODULES. `init` continues the first program, which has put the file system
    together at /new; /job/run is what it must run there, and then turn the machine off.
    """
    kernel = next(iter(cache.glob("root/boot/vmlinuz-*")), None) or _unpacked(cache, modules, init)
    job = cache / "job"
    job.mkdir(exist_ok=True)
    for name in ("output", "status"):
        (job / name).unlink(missing_ok=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    (job / "run").write_text(
        f"export HOME=/root PATH={shlex.quote(path)}\n{shlex.join(command)}; echo $? >/job/status\n"
    )
    argv = ["qemu-system-x86_64", "-machine", "q35,accel=tcg", "-cpu", "max", "-m", "3072", "-nodefaults"]
    argv += ["-nographic", "-no-reboot", "-serial", f"file:{cache / 'console'}", "-kernel", str(kernel)]
    argv += ["-initrd", str(cache / "initrd"), "-append", "console=ttyS0 panic=-1 mitigations=off"]
    for tag, shared in (("host", Path("/")), ("job", job)):
        readonly = "off" if tag == "job" else "on"
        argv += ["-virtfs", f"local,path={shared},mount_tag={tag},security_model=none,readonly={readonly}"
                 ",multidevs=remap"]  # fmt: skip
    subprocess.run(argv, check=True, timeout=time_limit)
    return int((job / "status").read_text()), (job / "output").read_text()


def _unpacked(cache: Path, modules: Sequence[str], init: str) -> Path:
    """Debian's kernel, and a first file system with what mounts the real one."""
    depends = subprocess.run(
        ["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"Depends: (linux-image-\S+)", depends)
    assert found, depends
    subprocess.run(["apt-get", "download", "--quiet", found[1]], cwd=cache, check=True)
    [package] = cache.glob("*.deb")
    subprocess.run(["dpkg", "--extract", package, cache / "root"], check=True)
    package.unlink()
    _write_initrd(cache, modules, init)
    return next(cache.glob("root/boot/vmlinuz-*"))


def _write_initrd(cache: Path, modules: Sequence[str], init: str) -> None:
    first = cache / "first"
    for name in ["bin", "modules", "host", "job", "changes", "proc", "sys", "dev"]:
        (first / name).mkdir(parents=True)
    (first / "init").write_text(FIRST + init)
    (first / "init").chmod(0o755)
    (first / "bin/busybox").write_bytes(Path("/bin/busybox").read_bytes())
    (first / "bin/busybox").chmod(0o755)
    for name in APPLETS:
        (first / "bin" / name).symlink_to("busybox")
    for number, module in enumerate(_modules(cache / "root", modules)):
        (first / "modules" / f"{number:02}-{module.name}").write_bytes(module.read_bytes())
    names = "\n".join(str(path.relative_to(first)) for path in first.rglob("*"))
    packed = subprocess.run(
        ["cpio", "--create", "--format=newc", "--quiet"], cwd=first, input=names.encode(), capture_output=True
    )
    (cache / "initrd").write_bytes(gzip.compress(packed.stdout, 1))


def _modules(root: Path, modules: Sequence[str]) -> list[Path]:
    """Modules after those they need."""
    (folder,) = (root / "lib/modules").iterdir()
    subprocess.run(["busybox", "depmod", "-b", root, folder.name], check=True)
    lines = (folder / "modules.dep").read_text().splitlines()
    needs = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
    order: dict[str, None] = {}

    def add(name: str) -> None:
        for needed in reversed(needs[name]):
            add(needed)
        order.setdefault(name)

    for module in (*MODULES, *modules):
        add(next(name for name in needs if Path(name).stem == module))
    return [folder / name for name in order]
