"""Kernels of the stage runtime. The public functions; each has an eager twin in `reference`."""

from swarepro_kernels.reference import (
    gelu_tanh_mul,
    paged_decode,
    paged_prefill,
    rms_norm,
    rope,
    softcap,
    store_kv,
)

__all__ = [
    "gelu_tanh_mul",
    "paged_decode",
    "paged_prefill",
    "rms_norm",
    "rope",
    "softcap",
    "store_kv",
]
