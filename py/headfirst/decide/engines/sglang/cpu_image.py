"""The real SGLang for machines without a GPU, as an image: what the lab's nodes serve with.

Its command line is that of the project's own image: no entrypoint, `python3 -m sglang.launch_server …`.
"""

from __future__ import annotations

from pathlib import Path

from headfirst.decide.containers.image import PATH, PREFIX, ImageRecipe

_FOLDER = Path(__file__).with_name("cpu")

RECIPE = ImageRecipe(
    name="sglang-cpu",
    tag="headfirst/sglang-cpu:0.5.23",
    lock=_FOLDER / "packages.lock",
    torch_cpu=True,
    files=_FOLDER / "shims",
    env={
        "PYTHONPATH": PREFIX,
        "PATH": PATH,
    },
    left_out=(
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
