"""The wheel that nodes get: the weights tools alone, made from the installed package.

It works the same in a checkout and after pip install. Equal content gives an equal file, and the version
carries a hash of the content, so that a role sees from the version alone whether a node is up to date.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import headfirst

NAME = "headfirst_node"
_REQUIREMENTS = (
    "numpy~=2.2",  # FP8 -> BF16
    "numba~=0.68",  # the same, as machine code without the GIL
    "libtorrent>=2.1.1,<2.2",  # weights between nodes
    "httpx~=0.28.1",  # pulls weights from the head
    "tenacity>=9,<10",  # tries a busy hub again
    "xxhash>=3.5,<5",  # proves files at the speed of memory
    'huggingface_hub>=1.0,<3; extra == "huggingface"',
    'modelscope_hub>=0.4.6,<1; extra == "modelscope"',
)
_WHEEL = b"""Wheel-Version: 1.0
Generator: headfirst
Root-Is-Purelib: true
Tag: py3-none-any
"""


def build_node_wheel(folder: Path) -> Path:
    """Write the wheel into `folder` and return its path; where it is there already nothing is written."""
    files = _sources()
    content = hashlib.sha256(repr((sorted(files.items()), _REQUIREMENTS)).encode()).hexdigest()[:12]
    version = f"{headfirst.__version__}+h{content}"
    wheel = folder / f"{NAME}-{version}-py3-none-any.whl"
    if not wheel.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        part = wheel.with_suffix(".part")
        _write(part, files, version)
        part.replace(wheel)
    return wheel


def _sources() -> dict[str, bytes]:
    """Content by path in the wheel, without the package's __init__.py, which gets the wheel's own version."""
    package = Path(headfirst.__file__).parent
    paths = [package / "errors.py", package / "untrusted.py", *(package / "weights").rglob("*.py")]
    return {f"headfirst/{path.relative_to(package).as_posix()}": path.read_bytes() for path in paths}


def _write(path: Path, files: dict[str, bytes], version: str) -> None:
    """Files and metadata as the binary distribution format asks (PEP 427)."""
    info = f"{NAME}-{version}.dist-info"
    metadata = [
        "Metadata-Version: 2.1",
        "Name: headfirst-node",
        f"Version: {version}",
        "Requires-Python: >=3.10",
    ]
    metadata += ["Provides-Extra: huggingface", "Provides-Extra: modelscope"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in _REQUIREMENTS]
    everything = {
        "headfirst/__init__.py": f'"""Headfirst\'s node tools."""\n\n__version__ = "{version}"\n'.encode(),
        **dict(sorted(files.items())),
        f"{info}/METADATA": ("\n".join(metadata) + "\n").encode(),
        f"{info}/WHEEL": _WHEEL,
        f"{info}/entry_points.txt": b"[console_scripts]\nheadfirst-weights = headfirst.weights.cli:main\n",
    }
    record = "".join(f"{name},{_record_hash(data)},{len(data)}\n" for name, data in everything.items())
    everything[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in everything.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # ZipInfo's own date is fixed: 1980


def _record_hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
