"""What the tag of an engine's image states. Pure functions."""

from __future__ import annotations

import re


def tag(image: str) -> str:
    """The tag of an image's name, without registry and digest; "" where it has none."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def release(image: str) -> str | None:
    """The version in tags like v0.5.23, v0.33.0-cu129, 0.32.1rc2 and v0.5.23.post1-rocm700; else None."""
    found = re.match(r"v?(\d+\.\d+\.\d+(?:\.post\d+|rc\d+)?)(?![\w.])", tag(image))
    return found[1] if found else None


def cuda(image: str) -> str:
    """The CUDA version in names with -cu129 or -cu130, as 12.9; "" where they have none."""
    found = re.search(r"-cu(\d+)(\d)\b", image)
    return f"{found[1]}.{found[2]}" if found else ""
