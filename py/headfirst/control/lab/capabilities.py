"""The capabilities a node asks for: what this machine can give, never `--privileged`."""

from __future__ import annotations

from pathlib import Path

# In the order of their numbers: include/uapi/linux/capability.h. The three newest (PERFMON, BPF,
# CHECKPOINT_RESTORE) are parts of SYS_ADMIN, and Docker 20.10 refuses their names.
_NAMES = (
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE "
    "NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT "
    "SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE "
    "AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ"
)

# A node must change neither the clock nor the kernel modules: they are the host's.
_NEVER = ("SYS_MODULE", "SYS_TIME")


def available(status: str | None = None) -> list[str]:
    """Names in the bounding set, without the two that are the host's alone.

    `status` is the text of a /proc/PID/status; this process's own is read where it is None.
    """
    text = Path("/proc/self/status").read_text() if status is None else status
    bounding = int(next(line.split()[1] for line in text.splitlines() if line.startswith("CapBnd:")), 16)
    given = (name for number, name in enumerate(_NAMES.split()) if bounding >> number & 1)
    return [name for name in given if name not in _NEVER]
