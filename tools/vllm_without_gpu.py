"""Stand-ins for a GPU and its libraries, so that vLLM makes its models on the meta device.

`of_each` gives each model a process of its own, as vLLM keeps much of a model. Each is forked from one that
has imported vllm behind `stand_in`. What that replaces: the compiled operators (a name is enough, none is
called), the packages that only kernels or images need, and the platform, which reports the given GPU.
"""

from __future__ import annotations

import importlib.machinery
import multiprocessing
import os
import sys
import types
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch
import torch._ops
import transformers.image_processing_utils  # noqa: F401
from stand_ins import StandIns
from torch.overrides import TorchFunctionMode

CONFIGS = Path(__file__).parents[1] / "tests/unit/data/model-configs"
GPUS = {
    "A100-80G": ("A100-SXM4-80GB", (8, 0), 79),
    "H100-80G": ("H100 80GB HBM3", (9, 0), 79),
    "B200": ("B200", (10, 0), 178),
}
META = torch.device("meta")
GIB = 1 << 30
# Compiled modules of the wheel; they need CUDA's libraries.
COMPILED = (
    *("_C_stable_libtorch", "_moe_C_stable_libtorch", "_flashmla_C", "_flashmla_extension_C"),
    *("_flashkda_C", "_deepselect_C", "vllm_flash_attn._vllm_fa2_C", "vllm_flash_attn._vllm_fa3_C"),
)
OPERATORS = ("_C", "_moe_C", "_C_cache_ops", "_C_custom_ar", "_qutlass_C", "_flashmla_C", "_flashkda_C")
# Packages that are not installed, or that load CUDA's libraries: model files import them.
PACKAGES = (
    *("cutlass", "tilelang", "tvm_ffi", "cuda", "quack", "flashinfer", "xgrammar", "pynvml"),
    *("torchvision", "torchaudio", "torchcodec", "timm"),
)


class _Operator:
    """Any compiled operator: it exists, and each check of support returns True."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return 0 if self.__name__.endswith("_size") else True

    def __getattr__(self, name: str) -> _Operator:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Operator(name)


class _Kind(type):
    """A class of a kernel package: of any arguments, with any attributes."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        try:
            return type.__call__(cls, *args, **kwargs)
        except TypeError:
            return MagicMock()

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


class _Package(types.ModuleType):
    """A kernel package: what begins with a capital is a class, all else is a mock."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        members = {"__class_getitem__": classmethod(lambda cls, item: cls)}
        value = _Kind(name, (), members) if name[:1].isupper() else MagicMock(name=name)
        setattr(self, name, value)
        return value


class _Stream:
    """A CUDA stream or event."""

    cuda_stream = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


class OnMeta(TorchFunctionMode):
    """Tensors for a CUDA device are made on the meta device."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if "device" in kwargs and _cuda(kwargs["device"]):
            kwargs["device"] = META
        if getattr(func, "__name__", "") == "to" and len(args) > 1 and _cuda(args[1]):
            args = (args[0], META, *args[2:])
        return func(*args, **kwargs)


def _cuda(device: Any) -> bool:
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, str) and device.startswith("cuda")


def _operators() -> None:
    for name in COMPILED:
        module = types.ModuleType(f"vllm.{name}")
        module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
        sys.modules[module.__name__] = module
    known = torch._ops._OpNamespace.__getattr__

    def operator(space: Any, name: str) -> Any:
        try:
            return known(space, name)
        except AttributeError:
            if name.startswith("__") or space.name not in OPERATORS:
                raise
            return _Operator(name)

    torch._ops._OpNamespace.__getattr__ = operator  # type: ignore[method-assign]
    register = torch.library.register_fake

    def register_fake(op: Any, *args: Any, **kwargs: Any) -> Any:
        # torchvision is of another build than torch: its operators are not loaded either.
        if isinstance(op, str) and op.partition("::")[0] in (*OPERATORS, "torchvision"):
            return lambda function: function
        return register(op, *args, **kwargs)

    torch.library.register_fake = register_fake  # type: ignore[assignment]


def _device(name: str, capability: tuple[int, int], gib: int) -> None:
    major, minor = capability
    properties = types.SimpleNamespace(
        name=name,
        major=major,
        minor=minor,
        total_memory=gib * GIB,
        multi_processor_count=132,
        shared_memory_per_block_optin=227 << 10,
        L2_cache_size=50 << 20,
    )
    cuda: Any = torch.cuda
    cuda.Stream = cuda.Event = _Stream
    cuda.current_stream = _Stream
    cuda.current_device = lambda: META
    cuda.get_device_properties = lambda *args, **kwargs: properties
    cuda.get_device_capability = lambda *args, **kwargs: capability
    torch.accelerator.current_device_index = lambda: 0  # type: ignore[method-assign]
    torch.version.cuda = "13.0"


def of_each(gpu: str, rows: Callable[[str, Path], list[Any]]) -> dict[str, list[Any]]:
    """Model -> what `rows` returns of the name of a GPU and the file of a model, for all files of CONFIGS."""
    # A process of this GPU alone: vLLM's modules read it when they are imported.
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as process:
        return process.submit(_forked, gpu, rows).result()


def _forked(gpu: str, rows: Callable[[str, Path], list[Any]]) -> dict[str, list[Any]]:
    stand_in(*GPUS[gpu])
    paths = sorted(CONFIGS.glob("*.json"))
    with multiprocessing.get_context("fork").Pool(os.cpu_count(), maxtasksperchild=1) as processes:
        made = processes.map(partial(rows, gpu), paths, chunksize=1)
    return {path.stem: lines for path, lines in zip(paths, made, strict=True)}


def stand_in(name: str, capability: tuple[int, int], gib: int) -> None:
    """Let vLLM take this machine for one with GPUs of this name, capability and memory."""
    # Triton is taken without a driver where the devices are hidden.
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    _operators()
    _device(name, capability, gib)
    sys.meta_path.insert(0, StandIns(PACKAGES, _Package))
    import vllm.platforms
    from vllm.platforms import cuda, interface

    class Platform(cuda.NonNvmlCudaPlatform):
        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> interface.DeviceCapability:
            return interface.DeviceCapability(*capability)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            return f"NVIDIA {name}"

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            return gib * GIB

        @classmethod
        def device_count(cls) -> int:
            return 64

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            return 132

    vllm.platforms._current_platform = Platform()
    _libraries()


def _libraries() -> None:
    """The image has FlashInfer's kernels, FlashAttention 4 and DeepGEMM."""
    import flashinfer.utils
    import vllm.model_executor.models.registry as registry
    import vllm.utils.deep_gemm
    import vllm.utils.flashinfer
    import vllm.utils.import_utils
    import vllm.v1.worker.workspace as workspace
    import vllm.vllm_flash_attn.flash_attn_interface as flash_attention

    vllm.utils.flashinfer.has_flashinfer = vllm.utils.flashinfer.has_flashinfer_sm90_nope_mla = lambda: True
    flashinfer.utils.get_trtllm_gen_multi_ctas_kv_counter_bytes = lambda *_, **__: 0
    vllm.utils.deep_gemm.has_deep_gemm = vllm.utils.import_utils.has_deep_gemm = lambda: True
    flash_attention.FA4_AVAILABLE = True
    workspace._manager = MagicMock()
    # Otherwise a process without these stand-ins looks at the model's class.
    registry._run_in_subprocess = lambda function: function()
