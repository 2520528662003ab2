"""How a checkpoint's weights are quantised: quantization_config of config.json, or hf_quant_config.json.

Formats: transformers' quantization configs, compressed-tensors' config_groups, NVIDIA ModelOpt's quant_algo.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from headfirst.common import quantization as schemes
from headfirst.common.convertible import Format, NotConvertibleError, read_format
from headfirst.common.untrusted import UntrustedError, device_name, integer

_LARGEST = 2**31


class Quantization(BaseModel):
    """Quantisation of the weights.

    `method` is quant_method (awq, gptq, fp8, compressed-tensors, modelopt, …). `scheme` is a name of
    headfirst.common.quantization, or "" where the config has none of these, or several: those are the
    `mixture`. `group_size` and `block` are the elements that share a scale; `activations` is static, dynamic
    or "" (not quantised or not given); `kv_cache` is fp8 or "". `conversion` is how the converter reads the
    weights; None where it does not, because of `obstacle`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    scheme: str
    format: str  # fmt or format, as written
    bits: int | None
    group_size: int | None
    block: tuple[int, int] | None
    activations: str
    kv_cache: str
    mixture: tuple[str, ...] = ()
    conversion: Format | None = None
    obstacle: str = ""

    @property
    def is_mixed(self) -> bool:
        """Whether parts of the model are quantised differently."""
        return len(self.mixture) > 1

    def __str__(self) -> str:
        if self.is_mixed:
            names = " and ".join(self.mixture)
            return names if self.method in self.mixture else f"{self.method} {names}"
        return self.method if self.scheme in ("", self.method) else f"{self.method} {self.scheme}"


def read(config: Any, where: str, *, experts: Any = None) -> Quantization | None:
    """The quantisation that `config` describes; None for an empty one, UntrustedError for wrong types.

    `experts` is expert_dtype of config.json, which DeepSeek-V4 has for its routed experts.
    """
    if not config:
        return None
    config = _object(config, "quantization_config", where)
    if "quantization" in config:  # hf_quant_config.json
        config = {"quant_method": "modelopt", **_object(config["quantization"], "quantization", where)}
    weights, inputs = _group(config, where)
    block = _block(config.get("weight_block_size") or weights.get("block_structure"), where)
    algorithm = _word(config.get("quant_algo"), "quant_algo", where)
    method = _word(config.get("quant_method"), "quant_method", where)
    if not method:
        if not algorithm:
            return None
        method = "modelopt"
    bits = _bits(method, config, weights, where)
    group = _number(_first(config, weights, "group_size", "q_group_size"), "group_size", where)
    words = f"{algorithm} {config.get('format', '')}".lower()
    scheme = schemes.identify(method, words, str(weights.get("type", "int")), bits, group)
    row = schemes.find(scheme)
    other = schemes.EXPERTS.get(experts) if isinstance(experts, str) else None
    mixture = (scheme, other) if other and scheme else _mixture(config)
    conversion, obstacle = _conversion(config)
    if len(mixture) > 1:
        scheme, conversion = "", None
        obstacle = f"it has weights in {' and '.join(mixture)}"
    return Quantization(
        method=method,
        scheme=scheme,
        format=_word(config.get("fmt") or config.get("format"), "the format of quantization_config", where),
        bits=bits or (row.bits if row else None),
        group_size=group,
        block=block,
        activations=_activations(config, inputs, where),
        kv_cache=_kv_cache(config, where),
        mixture=mixture,
        conversion=conversion,
        obstacle=obstacle,
    )


def _mixture(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The schemes of ModelOpt's MIXED_PRECISION, which names one for each layer."""
    layers = config.get("quantized_layers")
    if not isinstance(layers, dict):
        return ()
    algorithms = {
        str(layer.get("quant_algo", "")).lower() for layer in layers.values() if isinstance(layer, dict)
    }
    return tuple(sorted(name for name in schemes.names() if name in algorithms))


def _conversion(config: Mapping[str, Any]) -> tuple[Format | None, str]:
    try:
        return read_format(config), ""
    except NotConvertibleError as error:
        return None, str(error)


def _group(config: Mapping[str, Any], where: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """`weights` and `input_activations` of the first of compressed-tensors' config_groups; else empty."""
    groups = config.get("config_groups")
    if not groups:
        return {}, {}
    first = _object(next(iter(_object(groups, "config_groups", where).values())), "a config group", where)
    weights, inputs = first.get("weights") or {}, first.get("input_activations") or {}
    return _object(weights, "weights", where), _object(inputs, "input_activations", where)


def _bits(method: str, config: Mapping[str, Any], weights: Mapping[str, Any], where: str) -> int | None:
    value = _first(config, weights, "bits", "w_bit", "num_bits")
    if value is None and method == "bitsandbytes":
        return 8 if config.get("load_in_8bit") else 4
    return _number(value, "bits of quantization_config", where)


def _activations(config: Mapping[str, Any], inputs: Mapping[str, Any], where: str) -> str:
    if inputs:
        return "dynamic" if inputs.get("dynamic") else "static"
    return _word(config.get("activation_scheme"), "activation_scheme", where)


def _kv_cache(config: Mapping[str, Any], where: str) -> str:
    scheme = config.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        return "fp8" if scheme.get("type") == "float" and scheme.get("num_bits") == 8 else ""
    # The engines do not read a name in kv_cache_scheme.
    return _word(config.get("kv_cache_quant_algo"), "kv_cache_quant_algo", where).lower()


def _first(config: Mapping[str, Any], weights: Mapping[str, Any], *keys: str) -> Any:
    values = (source.get(key) for source in (config, weights) for key in keys)
    return next((value for value in values if value is not None), None)


def _number(value: Any, what: str, where: str) -> int | None:
    if value is None or value == -1:  # -1: a scale for a whole column
        return None
    return integer(value, what=what, where=where, low=1, high=_LARGEST)


def _word(value: Any, what: str, where: str) -> str:
    return device_name(value, what=f"{what} in config.json", where=where) if value else ""


def _object(value: Any, what: str, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UntrustedError(f"{what} in config.json is not an object", where=where)
    return value


def _block(value: Any, where: str) -> tuple[int, int] | None:
    if not value:
        return None
    what = "weight_block_size in config.json"
    if not isinstance(value, list) or len(value) != 2:
        raise UntrustedError(f"{what} is not two numbers", where=where)
    rows, columns = (integer(size, what=what, where=where, low=1, high=_LARGEST) for size in value)
    return rows, columns
