"""The real SGLang for machines without a GPU, as an image: what the lab's nodes serve with.

Its command line is that of the project's own image: no entrypoint, `python3 -m sglang.launch_server …`.
"""

from __future__ import annotations

from pathlib import Path

from headfirst.errors import NotReadyError
from headfirst.images import site
from headfirst.images.archive import ImageArchive
from headfirst.images.recipe import PREFIX, Progress, Recipe

_LOCK, _TORCH_LOCK, _SHIMS = "sglang-cpu.lock", "torch-cpu.lock", "cpu_shims"


def build(cache: Path, progress: Progress) -> ImageArchive:
    """The engine's image archive in the folder `cache`; see Recipe.build."""
    return _RECIPE.build(cache, progress)


def _install(packages: Path, downloads: Path, report: site.Report) -> None:
    site.install(_LOCK, packages, downloads, report)
    try:
        site.install(_TORCH_LOCK, packages, downloads, report)
    except NotReadyError:
        # The usual index has CUDA builds only, which the lock refuses; uv knows an index of CPU builds.
        try:
            site.install(_TORCH_LOCK, packages, downloads, report, "--torch-backend=cpu")
        except NotReadyError as error:
            raise NotReadyError(
                error.what,
                hint="Name an index with torch's CPU build, as in `PIP_EXTRA_INDEX_URL=URL deploy up …`.",
            ) from None
    site.add(_SHIMS, packages)


_RECIPE = Recipe(
    name="sglang-cpu",
    tag="headfirst/sglang-cpu:0.5.23",
    data=(_LOCK, _TORCH_LOCK, _SHIMS),
    install=_install,
    env={
        "PYTHONPATH": PREFIX,
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    },
    left_out=(
        "torch/bin/test_*",
        "torch/bin/*Test",
        "torch/bin/protoc*",
        "torch/include/*",  # to compile extensions
        "torch/test/*",
        "triton/backends/nvidia/bin/*",  # ptxas and its like
        "triton/backends/nvidia/lib/cupti*",  # CUDA's profiler
        "triton/instrumentation/*",
        "triton/_C/libproton.so",  # triton's profiler
        "jedi/third_party/*",  # completion in IPython
        "pycountry/locales/*",
        "torchvision/*.so",  # the CUDA build's libraries do not load here
        "torchvision.libs/*",
        "*/tests/*",
        "sglang/multimodal_gen/test/*",
    ),
    # Half of the rest is enough: what a server imports, as measured, and no more.
    uncompiled=(
        r"/(tests?|multimodal_gen|jedi|networkx|pygments/lexers|scipy/(stats|signal|integrate)"
        r"|sympy/(physics|stats|combinatorics)|torch/(_vendor|ao)|setuptools|numpy/distutils"
        r"|huggingface_hub/(cli|inference)|wcwidth/table_grapheme_overrides)/"
        r"|/transformers/models/(?!auto|llama|llava|mistral3|mllama|pixtral|qwen|whisper)[a-z0-9_]+/"
        r"(modeling|modular|convert|image_processing|video_processing|processing|tokenization)_"
        r"|/py312_intrinsics\.py$"  # syntax of a newer Python
    ),
)
