"""Triton kernels of the stage runtime, each with an eager torch twin in `reference`.

The kernels are loaded when one is asked for: `triton.jit` reads ``TRITON_INTERPRET`` when it
decorates, so a process has one mode, chosen before the first kernel is touched.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swarepro_kernels.digest import digest, digest_hex
    from swarepro_kernels.gelu_mul import gelu_tanh_mul
    from swarepro_kernels.paged_attention import paged_attention
    from swarepro_kernels.paged_decode import paged_decode
    from swarepro_kernels.paged_prefill import paged_prefill
    from swarepro_kernels.rms_norm import rms_norm
    from swarepro_kernels.rope import rope
    from swarepro_kernels.softcap import softcap
    from swarepro_kernels.store_kv import store_kv

_HOMES = {
    "digest": "digest",
    "digest_hex": "digest",
    "gelu_tanh_mul": "gelu_mul",
    "paged_attention": "paged_attention",
    "paged_decode": "paged_decode",
    "paged_prefill": "paged_prefill",
    "rms_norm": "rms_norm",
    "rope": "rope",
    "softcap": "softcap",
    "store_kv": "store_kv",
}

__all__ = [
    "digest",
    "digest_hex",
    "gelu_tanh_mul",
    "paged_attention",
    "paged_decode",
    "paged_prefill",
    "rms_norm",
    "rope",
    "softcap",
    "store_kv",
]


class _Package(ModuleType):
    """This package: where a kernel and its module share a name, the name is the kernel's."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and _HOMES.get(name) == name:  # the import system's doing
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """Load the kernel ``name`` from its own module."""
    if name not in _HOMES:
        raise AttributeError(f"swarepro_kernels has no kernel {name!r}")
    return getattr(import_module(f"swarepro_kernels.{_HOMES[name]}"), name)
