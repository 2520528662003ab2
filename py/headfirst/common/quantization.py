"""The quantisation schemes: how a weight is stored in fewer bits. One row a scheme; sizes and names follow.

Layouts: OCP Microscaling 1.0 (mx…), NVIDIA ModelOpt (nvfp4), compressed-tensors, AutoAWQ and AutoGPTQ
(int4), DeepSeek-V3 (fp8). A scheme that can be converted to BF16 has a reader in convertible.py, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple


class Stored(NamedTuple):
    """A tensor of a quantised matrix: its safetensors dtype, and `bits` for each of what `per` names.

    `scale` counts the pieces of the matrix that share a scale.
    """

    dtype: str
    bits: int
    per: Literal["weight", "scale", "column", "tensor"]


@dataclass(frozen=True)
class Scheme:
    """One scheme in one layout.

    `kind` is `type` of compressed-tensors; `stored` has the weights first. A scale covers `group` weights of
    a row where the scheme fixes that, with `by_row` as many as the config gives or a row, else a matrix.
    `methods` are values of quant_method that mean this scheme and no other; `packers` are those whose files
    have this layout, of a scheme with several. GPUs below the compute capability `units` unpack the weights.
    """

    name: str
    kind: Literal["int", "float"]
    stored: tuple[Stored, ...]
    group: int | None = None
    by_row: bool = False
    methods: tuple[str, ...] = ()
    packers: tuple[str, ...] = ()
    units: tuple[int, int] = (0, 0)

    @property
    def bits(self) -> int:
        """Bits of one weight, without its scale."""
        return self.stored[0].bits

    @property
    def dtype(self) -> str:
        """The safetensors dtype that holds the weights."""
        return self.stored[0].dtype

    @property
    def growth(self) -> float:
        """Bytes in BF16 for each byte of weights and of scales of a fixed group: the most there can be."""
        scales = sum(part.bits for part in self.stored if part.per == "scale")
        return 16 / (self.bits + (scales / self.group if self.group else 0))

    def stored_bytes(
        self, rows: int, columns: int, block: tuple[int, int] | None = None, group: int | None = None
    ) -> dict[str, int]:
        """Bytes by dtype of a matrix. `block` (rows, columns) and `group` are those of the config."""
        in_rows = self.by_row or self.group is not None
        height, width = block or ((1, group or self.group or columns) if in_rows else (rows, columns))
        counts = {
            "weight": rows * columns,
            "scale": -(-rows // height) * -(-columns // width),
            "column": columns,
            "tensor": 1,
        }
        sizes: dict[str, int] = {}
        for part in self.stored:
            sizes[part.dtype] = sizes.get(part.dtype, 0) + counts[part.per] * part.bits // 8
        return sizes


EXPERTS = {"fp4": "mxfp4"}
"""Values of config.json's expert_dtype (DeepSeek-V4) that give the routed experts a scheme of their own."""
MX_GROUP = 32
"""Values that share a scale in OCP's Microscaling schemes."""
_INT4 = Stored("I32", 4, "weight")
SCHEMES = (
    Scheme(
        "fp8",
        "float",
        (Stored("F8_E4M3", 8, "weight"), Stored("F32", 32, "scale")),
        methods=("fp8", "fbgemm_fp8"),
    ),
    Scheme(
        "int8",
        "int",
        (Stored("I8", 8, "weight"), Stored("F32", 32, "scale")),
        methods=("blockwise_int8", "w8a8_int8"),
    ),
    Scheme(
        "mxfp8",
        "float",
        (Stored("F8_E4M3", 8, "weight"), Stored("U8", 8, "scale")),
        group=MX_GROUP,
        methods=("mxfp8",),
    ),
    Scheme(
        "nvfp4",
        "float",
        # Two FP32 scales a tensor: of the groups' scales, and of activations.
        (Stored("U8", 4, "weight"), Stored("F8_E4M3", 8, "scale"), Stored("F32", 64, "tensor")),
        group=16,
        units=(10, 0),  # Blackwell
    ),
    Scheme(
        "mxfp4",
        "float",
        (Stored("U8", 4, "weight"), Stored("U8", 8, "scale")),
        group=MX_GROUP,
        methods=("mxfp4",),
    ),
    Scheme(  # zero points beside the scales
        "int4",
        "int",
        (_INT4, Stored("I32", 4, "scale"), Stored("F16", 16, "scale")),
        by_row=True,
        packers=("awq",),
    ),
    Scheme(  # and the group of each column
        "int4",
        "int",
        (_INT4, Stored("I32", 4, "scale"), Stored("F16", 16, "scale"), Stored("I32", 32, "column")),
        by_row=True,
        packers=("gptq",),
    ),
    Scheme(  # the shape as two numbers
        "int4",
        "int",
        (_INT4, Stored("BF16", 16, "scale"), Stored("I64", 128, "tensor")),
        by_row=True,
        packers=("compressed-tensors",),
    ),
)


def find(name: str, method: str = "") -> Scheme | None:
    """The scheme called `name`, in the layout of the quant_method `method`, else in its first layout."""
    rows = [scheme for scheme in SCHEMES if scheme.name == name]
    return max(rows, key=lambda scheme: method in scheme.packers, default=None)


def identify(method: str, words: str, kind: str, bits: int | None, group: int | None) -> str:
    """The name of the scheme that a quantization_config describes; "" for one that is not in the table.

    `words` is text in which the config names its scheme (quant_algo, format), in lower case; `kind`, `bits`
    and `group` are those of the weights, where it states them.
    """
    for scheme in SCHEMES:
        if method in scheme.methods:
            return scheme.name
    if name := named(words):
        return name
    alike = [scheme for scheme in SCHEMES if (scheme.kind, scheme.bits) == (kind, bits)]
    closest = max(alike, key=lambda scheme: scheme.group == group, default=None)
    return closest.name if closest else ""


def named(words: str) -> str:
    """The scheme whose name is in `words`, such as nvfp4 in w4a16_nvfp4; "" for none of the table."""
    return max((scheme.name for scheme in SCHEMES if scheme.name in words), key=len, default="")


def names() -> list[str]:
    """All names of schemes and methods."""
    return sorted({name for row in SCHEMES for name in (row.name, *row.methods, *row.packers)})
