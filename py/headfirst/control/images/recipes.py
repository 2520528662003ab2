"""The images that are built here beside those of engines, as data: a change leaves the others as they are."""

from __future__ import annotations

from pathlib import Path

from headfirst.control.images.build import DebianRecipe
from headfirst.decide.containers.image import PATH, PREFIX, ImageRecipe
from headfirst.decide.plan import monitoring
from headfirst.decide.plan.front import proxy, router, webui

_HERE = Path(__file__).parent

HAPROXY = DebianRecipe(name="haproxy", tag=proxy.BUILT_IMAGE, packages=("haproxy",))
# With its exporter of hosts.
PROMETHEUS = DebianRecipe(
    name="prometheus",
    tag=monitoring.BUILT_IMAGE,
    packages=("prometheus", "prometheus-node-exporter"),
    left_out=("/usr/bin/promtool", "/usr/share/javascript/moment-timezone/data/*"),
    user="65534:65534",  # nobody, as in the projects' own images
)
# From its PyPI package without torch: embedding and speech models stay out.
OPEN_WEBUI = ImageRecipe(
    name="open-webui",
    tag=webui.BUILT_IMAGE,
    lock=_HERE / "open-webui.lock",
    files=_HERE / "webui_files",
    env={
        "PYTHONPATH": PREFIX,
        "PATH": f"{PREFIX}/commands:{PATH}",
        "USE_SLIM_DOCKER": "true",  # what the image is: without it the server imports torch
    },
    left_out=("*/tests/*", "*.map"),  # maps are for the debugger of a browser
    uncompiled=r"/(tests?|azure|black|pygments/lexers|sqlalchemy/testing|wcwidth/table_grapheme_overrides)/",
)
SMG = ImageRecipe(  # the router
    name="smg",
    tag=router.BUILT_IMAGE,
    lock=_HERE / "smg.lock",
    env={"PYTHONPATH": PREFIX},
    left_out=("*/sboms/*",),
    uncompiled=r"/tests?/",
)
