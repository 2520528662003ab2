"""Numbers as people read them: bytes, counts, durations."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """`7s`, `1m 05s`, `2h 03m`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m {rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m"


def size(count: float) -> str:
    """Bytes in decimal units: `512 B`, `3.4 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def amount(done: int, total: int, unit: str) -> str:
    """`1.2 GB of 3.4 GB`, `3 of 163 files`; without a total only what is done."""
    if unit == "bytes":
        return f"{size(done)} of {size(total)}" if total else size(done)
    return f"{done} of {total} {unit}".rstrip() if total else f"{done} {unit}".rstrip()


def speed(rate: float, unit: str) -> str:
    """`120.0 MB/s`, `1.5 layers/s`."""
    return f"{size(rate)}/s" if unit == "bytes" else f"{rate:.1f} {unit}/s"
