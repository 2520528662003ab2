"""Which files of a source are part of a checkpoint as we keep it."""

from __future__ import annotations

from fnmatch import fnmatch

MANIFEST = "headfirst-manifest.json"
"""Of a complete folder of weights: it is written last."""
# Hidden files, and other formats of the same weights: these double the bytes and no engine here reads them.
_IGNORED = (
    ".*", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.gguf", "*.h5", "*.msgpack", "*.onnx", "*.ot", "*.tflite",
    "consolidated*.safetensors", "original", MANIFEST,
)  # fmt: skip


def is_checkpoint_file(name: str) -> bool:
    """Whether a file of the source belongs to it."""
    return not any(fnmatch(part, pattern) for pattern in _IGNORED for part in name.split("/"))
