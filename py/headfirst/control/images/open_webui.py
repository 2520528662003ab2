"""Open WebUI as an image, made from its PyPI package without torch: embedding and speech models stay out."""

from __future__ import annotations

from pathlib import Path

from headfirst.decide.containers.image import PATH, PREFIX, ImageRecipe

RECIPE = ImageRecipe(
    name="open-webui",
    tag="headfirst/open-webui:0.12.4",
    lock=Path(__file__).with_name("open-webui.lock"),
    files=Path(__file__).with_name("webui_files"),
    env={
        "PYTHONPATH": PREFIX,
        "PATH": f"{PREFIX}/commands:{PATH}",
        "USE_SLIM_DOCKER": "true",  # what the image is: without it the server imports torch
    },
    left_out=("*/tests/*", "*.map"),  # maps are for the debugger of a browser
    uncompiled=r"/(tests?|azure|black|pygments/lexers|sqlalchemy/testing|wcwidth/table_grapheme_overrides)/",
)
