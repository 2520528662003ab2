"""The router as an image, made from smg's PyPI package.

In a folder of its own: a change here gives no other image another recipe.
"""

from __future__ import annotations

from pathlib import Path

from headfirst.decide.containers.image import PREFIX, ImageRecipe

RECIPE = ImageRecipe(
    name="smg",
    tag="headfirst/smg:1.13.0",
    lock=Path(__file__).with_name("packages.lock"),
    env={"PYTHONPATH": PREFIX},
    left_out=("*/sboms/*",),
    uncompiled=r"/tests?/",
)
