"""Compile the kernels for GPUs that are not here: run as a program, without TRITON_INTERPRET.

The launchers run as they are, on CPU tensors, with `launch` replaced by a compilation of the same
arguments. What the interpreter lets pass and the compiler does not is found this way.
"""

import sys
from importlib import import_module

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import swarepro_kernels as kernels

TYPES = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.int64: "*i64",
    torch.uint8: "*u8",
}


class Compiler:
    """Stands in for `launch`; compiles each new signature for each compute capability."""

    def __init__(self, capabilities):
        self.capabilities = capabilities
        self.compiled = {}

    def launch(self, kernel, num_programs, *arguments, order, num_warps, **constants):
        arguments = [*arguments, arguments[0] if order is None else order(num_programs)]
        constants = {**constants, "HAS_ORDER": order is not None}
        signature, alignment = {}, {}
        for position, (parameter, value) in enumerate(zip(kernel.params, arguments, strict=False)):
            if isinstance(value, torch.Tensor):
                signature[parameter.name] = TYPES[value.dtype]
                aligned = value.data_ptr() % 16 == 0
            elif isinstance(value, float):
                signature[parameter.name] = "fp32"
                aligned = False
            elif value == 1 and not parameter.do_not_specialize:
                constants[parameter.name] = 1
                aligned = False
            else:
                signature[parameter.name] = "i32" if abs(value) < 1 << 31 else "i64"
                aligned = value % 16 == 0 and not parameter.do_not_specialize
            if aligned:
                alignment[position,] = [["tt.divisibility", 16]]
        signature |= dict.fromkeys(constants, "constexpr")
        key = (kernel.__name__, *map(str, (signature, constants, alignment)))
        if key in self.compiled:
            return
        options = {"num_warps": num_warps, "enable_fp_fusion": False}
        self.compiled[key] = [
            triton.compile(
                ASTSource(kernel, signature, constants, alignment),
                target=GPUTarget("cuda", capability, 32),
                options=options,
            ).metadata.shared
            for capability in self.capabilities
        ]


def backwards(num_programs):
    return torch.arange(num_programs).flip(0)


def call_all(dtype, order):
    """Call every launcher with the shapes of a large model."""
    for head_dim in (16, 256, 512):
        qkv = torch.zeros(33, 8, head_dim, dtype=dtype)
        pool = torch.zeros(64, 2, 2, head_dim, dtype=dtype)
        slots = torch.arange(33)
        kernels.store_kv(qkv[:, 4:6], qkv[:, 6:], pool[:, 0], pool[:, 1], slots, order=order)
        kernels.rms_norm(qkv[:, 2:5], None, eps=1e-6, adds_one=False, order=order)
        table = torch.zeros(33, head_dim // 2, dtype=dtype)
        kernels.rope(qkv[:, :4], table, table, order=order)
    one = torch.zeros(1, 1, 16, dtype=dtype)  # numbers that are 1 become constants
    kernels.store_kv(one, one, one, one, torch.zeros(1, dtype=torch.int64), order=order)
    kernels.rms_norm(one, None, eps=1e-6, adds_one=False, residual=one, order=order)
    kernels.softcap(one, 30.0, order=order)
    kernels.gelu_tanh_mul(one, order=order)
    for hidden in (96, 3840):
        x = torch.zeros(64, hidden, dtype=dtype)
        for adds_one in (False, True):
            kernels.rms_norm(x, x[0], eps=1e-6, adds_one=adds_one, residual=x, order=order)
    kernels.gelu_tanh_mul(torch.zeros(64, 2 * 15360, dtype=dtype), order=order)
    kernels.softcap(torch.zeros(2, 262144, dtype=dtype), 30.0, order=order)
    for size in (8, 64 * 3840, 32 * 1024 * 1024 + 3):
        kernels.digest(torch.zeros(size, dtype=torch.uint8), order=order)


def main():
    compiler = Compiler([int(capability) for capability in sys.argv[1:]])
    for name in ("store_kv", "rms_norm", "rope", "gelu_mul", "softcap", "digest"):
        import_module(f"swarepro_kernels.{name}")
        sys.modules[f"swarepro_kernels.{name}"].launch = compiler.launch
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        call_all(dtype, None)
    call_all(torch.bfloat16, backwards)
    for (name, *_), shared in compiler.compiled.items():
        print(name, max(shared))  # noqa: T201


if __name__ == "__main__":
    main()
