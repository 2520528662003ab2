"""Converted checkpoints have the bits that the formats' own libraries make."""

from __future__ import annotations

import engine_sites


def test_converted_checkpoints_against_the_libraries_of_the_formats() -> None:
    file = engine_sites.HERE / "reference_libraries.py"
    engine_sites.run_tests("vllm", file)
