"""Parts of tools/release.py."""

HINT = "Run `./test lint` once: it makes .venv with what builds a release."
