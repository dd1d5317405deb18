"""Compile the attention kernels for a GPU that need not be here.

Prints one JSON line for each configuration that a card with so much shared memory uses: what the
compiler needed against what the table estimates. test_attention_compiles.py runs it in a process
of its own, which is not interpreted.
"""

import json
import sys
from importlib import import_module

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from swarepro_kernels.launch_attention import (
    CHUNK_CONFIGS,
    DECODE_CONFIGS,
    AttentionConfig,
    choose_config,
    padded_head_dim,
)

POINTERS = {"slots_ptr": "*i64", "kv_indptr_ptr": "*i64", "query_indptr_ptr": "*i64"}
POINTERS |= {"ahead_ptr": "*i64", "partial_ptr": "*fp32", "lse_ptr": "*fp32", "order_ptr": "*i64"}
ELEMENTS = {torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32"}


def compiled_shared_bytes(kernel, config, dtype, constants, arch):
    """Compile one kernel; return the shared memory that one block takes."""
    signature, aligned = {}, {}
    for index, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
        elif name.endswith("_ptr"):
            signature[name] = POINTERS.get(name, ELEMENTS[dtype])
        else:
            signature[name] = "fp32" if name.endswith("_scale") else "i32"
        if name.endswith(("_ptr", "_stride")):
            aligned[(index,)] = [["tt.divisibility", 16]]
    indices = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=indices, attrs=aligned)
    options = {
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        "enable_fp_fusion": False,
    }
    target = GPUTarget("cuda", arch, 32)
    return triton.compile(source, target=target, options=options).metadata.shared


def kernels(config: AttentionConfig, head_dim: int, table, flag: bool):
    """Yield (name, kernel, constants) of every kernel launched with ``config``."""
    constants = {
        "NUM_KV_HEADS": 4,
        "GROUP": 4,
        "HEAD_DIM": head_dim,
        "BLOCK_D": padded_head_dim(head_dim),
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "HAS_SOFTCAP": flag,
        "HAS_ORDER": flag,
    }
    if table is DECODE_CONFIGS:
        module = import_module("swarepro_kernels.paged_decode")
        yield "paged_decode", module._paged_decode_kernel, constants | {"HAS_INDPTR": flag}
        return
    constants["HAS_WINDOW"] = constants["HAS_AHEAD"] = flag
    module = import_module("swarepro_kernels.paged_prefill")
    yield "paged_prefill", module._paged_prefill_kernel, constants
    module = import_module("swarepro_kernels.paged_attention")
    yield "paged_attention", module._paged_attention_kernel, constants | {"BLOCK_R": 16}


def main(
    arch: int, budget: int, head_dims: list[int], dtypes: list[torch.dtype], flag: bool
) -> None:
    """Compile every configuration that the budget selects, and the reduction."""
    for dtype in dtypes:
        for head_dim in head_dims:
            for table in (CHUNK_CONFIGS, DECODE_CONFIGS):
                config = choose_config(table, head_dim, dtype, budget)
                for name, kernel, constants in kernels(config, head_dim, table, flag):
                    shared = compiled_shared_bytes(kernel, config, dtype, constants, arch)
                    row = {
                        "kernel": name,
                        "dtype": str(dtype),
                        "head_dim": head_dim,
                        "shared": shared,
                        "allowed": config.shared_bytes(padded_head_dim(head_dim), dtype.itemsize),
                    }
                    sys.stdout.write(json.dumps(row) + "\n")
    module = import_module("swarepro_kernels.paged_decode")
    constants = {"NUM_HEADS": 4, "HEAD_DIM": 128, "BLOCK_D": 128, "BLOCK_S": 16, "MAX_S": 128}
    config = AttentionConfig(block_m=16, block_n=16, num_warps=4, num_stages=2)
    kernel, constants = module._decode_reduce_kernel, constants | {"HAS_ORDER": flag}
    shared = compiled_shared_bytes(kernel, config, torch.bfloat16, constants, arch)
    row = {"kernel": "decode_reduce", "shared": shared, "allowed": 48 << 10}
    sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(
        int(sys.argv[1]),
        int(sys.argv[2]) << 10,
        [int(x) for x in sys.argv[3].split(",")],
        [getattr(torch, x) for x in sys.argv[4].split(",")],
        sys.argv[5] == "every-option",
    )
