"""Element types: their names and how many bits one element takes.

Names follow numpy and ONNX in lower case, with the field's short forms for what numpy lacks.
Sub-byte types are summed in bits per tensor and rounded up once (COST-MODEL 1).
"""

from __future__ import annotations

BITS: dict[str, int] = {
    "float64": 64, "float32": 32, "float16": 16, "bfloat16": 16,
    "float8e4m3fn": 8, "float8e4m3fnuz": 8, "float8e5m2": 8, "float8e5m2fnuz": 8, "float8e8m0": 8,
    "float4e2m1": 4,
    "int64": 64, "int32": 32, "int16": 16, "int8": 8, "int4": 4, "int2": 2,
    "uint64": 64, "uint32": 32, "uint16": 16, "uint8": 8, "uint4": 4, "uint2": 2,
    "bool": 8, "complex64": 64, "complex128": 128,
}  # fmt: skip

# What a user may type as --precision, and the element type that it means.
PRECISIONS: dict[str, str] = {
    "fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16",
    "fp8": "float8e4m3fn", "int8": "int8", "int4": "int4",
}  # fmt: skip

# The short form of an element type, as machine files write it (macs_per_cycle, mac_j).
SHORT: dict[str, str] = {dtype: short for short, dtype in PRECISIONS.items()}


def is_float(dtype: str) -> bool:
    """Whether `dtype` is a floating-point type (those that ``--precision`` replaces)."""
    return dtype.startswith(("float", "bfloat"))


def bytes_of(elements: int, bits: int) -> int:
    """Bytes of `elements` elements of `bits` bits each: bits summed, rounded up once."""
    return (elements * bits + 7) // 8
