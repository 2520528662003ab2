"""Put images that need no registry, and the demo model as engines serve it, where the nodes see them.

Usage: images.py FOLDER engine|webui|router|prometheus|proxy|model...
Writes FOLDER/engine.tar, webui.tar, router.tar, prometheus.tar, proxy.tar (Docker archives) and FOLDER/model
(BF16). Images are kept with those of `deploy up`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from headfirst.control import demo
from headfirst.control.deployment.lab_nodes import share_dir
from headfirst.control.images import build, recipes
from headfirst.decide.containers.image import ImageRecipe
from headfirst.decide.engines.sglang import cpu_image
from headfirst.node.weights.convert.convert_folder import convert

RECIPES: dict[str, ImageRecipe | build.DebianRecipe] = {
    "engine": cpu_image.RECIPE,
    "webui": recipes.OPEN_WEBUI,
    "router": recipes.SMG,
    "prometheus": recipes.PROMETHEUS,
    "proxy": recipes.HAPROXY,
}


def progress(what: str, done: int, total: int) -> None:
    """Print one line for each step of a build."""
    print(f"{what} {done}/{total}")


def main() -> None:
    """Carry out the command; what is there already is kept."""
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        if name == "model":
            convert(demo.checkpoint_dir(), folder / "model")
            continue
        built = build.build(RECIPES[name], share_dir() / "images", progress).path
        link = folder / f"{name}.tar"
        link.unlink(missing_ok=True)
        os.link(built, link)


if __name__ == "__main__":
    main()
