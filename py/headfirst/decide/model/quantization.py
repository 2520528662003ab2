"""How a checkpoint's weights are quantised: quantization_config of config.json, or hf_quant_config.json.

Formats: transformers' quantization configs, compressed-tensors' config_groups, NVIDIA ModelOpt's quant_algo.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from headfirst.common import quantization as schemes
from headfirst.common.convertible import Format, NotConvertibleError, read_format
from headfirst.common.untrusted import UntrustedError, device_name, integer
from headfirst.decide.frozen import Frozen

_LARGEST = 2**31
_SHARED_EXPERTS = re.compile(r"shared?_expert(?!s?_gate)")


class Quantization(Frozen):
    """Quantisation of the weights.

    `method` is quant_method (awq, gptq, fp8, compressed-tensors, modelopt, …). `schemes` are names of
    headfirst.common.quantization: none where the config has none of these, several of a mixture.
    `group_size` and `block` are the elements that share a scale; `kv_cache` is fp8 or "".
    `plain_shared_experts`: shared experts are in the list of modules that stay as they are. `variants` is
    what some readers of the method do not accept: desc_act, asymmetric, version (of AWQ, unless gemm); of
    compressed-tensors also status (unless compressed), groups (unless one of all Linear), group_format (none
    of its own). `conversion` is how the converter reads the weights; None where it does not, because of
    `obstacle`.
    """

    method: str
    schemes: tuple[str, ...]
    format: str  # fmt or format, as written
    bits: int | None
    group_size: int | None
    block: tuple[int, int] | None
    kv_cache: str
    plain_shared_experts: bool = False
    weight_only: bool = False  # parts of it by name (W4A16): activations stay in 16 bits on every GPU
    variants: tuple[str, ...] = ()
    conversion: Format | None = None
    obstacle: str = ""

    @property
    def is_mixed(self) -> bool:
        """Whether parts of the model are quantised differently."""
        return len(self.schemes) > 1

    @property
    def scheme(self) -> str:
        """The only scheme; "" where there is none or a mixture."""
        return self.schemes[0] if len(self.schemes) == 1 else ""

    @property
    def title(self) -> str:
        """The precision for people: INT4, FP8+NVFP4; the method where no scheme is known."""
        return "+".join(self.schemes).upper() or self.method.upper()

    @property
    def units(self) -> tuple[int, int]:
        """The lowest compute capability that computes in every scheme."""
        return max((row.units for row in schemes.SCHEMES if row.name in self.schemes), default=(0, 0))

    def __str__(self) -> str:
        names = " and ".join(self.schemes)
        return names or self.method if self.method in self.schemes or not names else f"{self.method} {names}"


def read(config: Any, where: str, *, experts: Any = None) -> Quantization | None:
    """The quantisation that `config` describes; None for an empty one, UntrustedError for wrong types.

    `experts` is expert_dtype of config.json, which DeepSeek-V4 has for its routed experts.
    """
    if not config:
        return None
    config = _object(config, "quantization_config", where)
    if "quantization" in config:  # hf_quant_config.json
        config = {"quant_method": "modelopt", **_object(config["quantization"], "quantization", where)}
    weights = _group(config, where)
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
    mixture = _mixture(config, scheme, experts, where)
    conversion, obstacle = _conversion(config)
    if len(mixture) > 1:
        conversion, obstacle = None, f"it has weights in {' and '.join(mixture)}"
    return Quantization(
        method=method,
        schemes=mixture or ((scheme,) if scheme else ()),
        format=_word(config.get("fmt") or config.get("format"), "the format of quantization_config", where),
        bits=bits or (row.bits if row else None),
        group_size=group,
        block=block,
        kv_cache=_kv_cache(config, where),
        plain_shared_experts=any(map(_SHARED_EXPERTS.search, _plain_modules(method, config))),
        weight_only=any(name.startswith("W4A16") for name in (algorithm.upper(), *_algorithms(config))),
        variants=tuple(_variants(method, config, weights)),
        conversion=conversion,
        obstacle=obstacle,
    )


def _plain_modules(method: str, config: Mapping[str, Any]) -> list[str]:
    """Names and patterns of the modules that are not quantised; ModelOpt's lists leave FP8 as it was."""
    keys = ("ignore",) if method == "compressed-tensors" else ("modules_to_not_convert", "ignored_layers")
    listed = [config.get(key) for key in keys]
    return [name for names in listed if isinstance(names, list) for name in names if isinstance(name, str)]


def _variants(method: str, config: Mapping[str, Any], weights: Mapping[str, Any]) -> Iterator[str]:
    if config.get("desc_act"):
        yield "desc_act"
    if not (weights.get("symmetric") if method == "compressed-tensors" else config.get("sym", True)):
        yield "asymmetric"
    if method == "awq" and config.get("version") != "gemm":
        yield "version"
    if method == "compressed-tensors":
        groups = _objects(config.get("config_groups"))
        if config.get("quantization_status") != "compressed":
            yield "status"
        if [group.get("targets") for group in groups] != [["Linear"]]:
            yield "groups"
        if not all(group.get("format") for group in groups):
            yield "group_format"


def _mixture(config: Mapping[str, Any], scheme: str, experts: Any, where: str) -> tuple[str, ...]:
    """The schemes of a config that has several; empty for one.

    ModelOpt's MIXED_PRECISION names one for each layer, and config_groups have one each. DeepSeek-V4 has one
    of its own for the routed experts, unless moe_quant_algo replaces it.
    """
    listed = {schemes.named(name.lower()) for name in _algorithms(config)}
    for group in _objects(config.get("config_groups")):
        weights = _object(group.get("weights") or {}, "weights", where)
        size = _number(weights.get("group_size"), "group_size", where)
        bits = _number(weights.get("num_bits"), "num_bits", where)
        listed.add(schemes.identify("", str(group.get("format", "")), str(weights.get("type")), bits, size))
    expert = schemes.EXPERTS.get(experts, "") if isinstance(experts, str) else ""
    if expert and scheme:
        listed = {scheme, schemes.named(str(config.get("moe_quant_algo", "")).lower()) or expert}
    listed.discard("")
    return tuple(sorted(listed)) if len(listed) > 1 else ()


def _algorithms(config: Mapping[str, Any]) -> list[str]:
    """ModelOpt's names of the layers' quantisations, in upper case."""
    return [str(layer.get("quant_algo")).upper() for layer in _objects(config.get("quantized_layers"))]


def _objects(value: Any) -> list[Mapping[str, Any]]:
    """The objects in an object; none where it is none."""
    return [item for item in value.values() if isinstance(item, dict)] if isinstance(value, dict) else []


def _conversion(config: Mapping[str, Any]) -> tuple[Format | None, str]:
    try:
        return read_format(config), ""
    except NotConvertibleError as error:
        return None, str(error)


def _group(config: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """`weights` of the first of compressed-tensors' config_groups; else empty."""
    groups = config.get("config_groups")
    if not groups:
        return {}
    first = _object(next(iter(_object(groups, "config_groups", where).values())), "a config group", where)
    return _object(first.get("weights") or {}, "weights", where)


def _bits(method: str, config: Mapping[str, Any], weights: Mapping[str, Any], where: str) -> int | None:
    value = _first(config, weights, "bits", "w_bit", "num_bits")
    if value is None and method == "bitsandbytes":
        return 8 if config.get("load_in_8bit") else 4
    return _number(value, "bits of quantization_config", where)


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
