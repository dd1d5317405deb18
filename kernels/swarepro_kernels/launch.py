"""What every launch goes through: tile tables, the program order, the interpreter's warnings.

Tiles are chosen by the number of columns alone, from the tables below: no autotune, so a row's
result depends neither on timing nor on the number of rows beside it.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from swarepro_kernels.order import ProgramOrder
from swarepro_kernels.tile import INTERPRETED

FLOATS = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """What one program instance handles at a time.

    Attributes:
        rows: rows of the tile, a power of two.
        columns: columns of the tile, a power of two.
        num_warps: warps of the instance.
    """

    rows: int
    columns: int
    num_warps: int


def _whole_rows(elements: int, widest: int) -> tuple[Tile, ...]:
    """Return tiles of whole rows up to ``widest``: ``elements`` in all, or one row if wider."""
    tiles = []
    columns = 8
    while columns <= widest:
        rows = max(1, elements // columns)
        warps = min(16, max(1, rows * columns // 512))
        tiles.append(Tile(rows=rows, columns=columns, num_warps=warps))
        columns *= 2
    return tuple(tiles)


# By kernel: the first tile that is at least as wide as the row is used. Sixteen elements per
# thread: two or four loads of 16 bytes in flight, and no table entry needs shared memory beyond a
# row reduction, so 99 KB and 227 KB cards share them.
TILES: dict[str, tuple[Tile, ...]] = {
    "store_kv": _whole_rows(1024, 1024),  # columns: head_dim
    "rms_norm": _whole_rows(2048, 32768),  # columns: the normed dimension
    "rope": _whole_rows(1024, 512),  # columns: half a head
    "gelu_tanh_mul": (Tile(rows=1, columns=1024, num_warps=4),),  # a row takes several tiles
    "softcap": (Tile(rows=1, columns=2048, num_warps=4),),  # likewise
    "digest": (Tile(rows=1, columns=1024, num_warps=4),),  # columns: words of 8 bytes
}


def tile_for(kernel: str, columns: int) -> Tile:
    """Return the tile of ``kernel`` for rows of ``columns``.

    Raises:
        ValueError: no tile of the kernel's table is that wide.
    """
    for tile in TILES[kernel]:
        if columns <= tile.columns:
            return tile
    widest = TILES[kernel][-1].columns
    raise ValueError(f"{kernel}: rows of {columns} do not fit; its widest tile has {widest}")


def launch_tables() -> dict[str, list[dict[str, int]]]:
    """Return the tile tables as plain values, for a manifest."""
    return {kernel: [asdict(tile) for tile in tiles] for kernel, tiles in TILES.items()}


def launch(
    kernel: Any,
    num_programs: int,
    *arguments: Any,
    order: ProgramOrder | None,
    num_warps: int,
    **constants: Any,
) -> None:
    """Launch ``kernel(*arguments, order_ptr, HAS_ORDER=..., **constants)`` on a 1-D grid.

    The device is that of the first argument, a tensor. Products and sums are not fused, so that
    each rounds by itself as in the eager twin.

    Args:
        kernel: jitted; its last positional parameter is ``order_ptr``.
        num_programs: size of the grid; nothing happens for 0.
        arguments: tensors and numbers.
        order: see `ProgramOrder`; None = the natural order.
        num_warps: warps of an instance.
        constants: the kernel's constexpr parameters.

    Raises:
        ValueError: the order has the wrong length.
    """
    if num_programs == 0:
        return
    device = arguments[0].device
    permutation = None if order is None else order(num_programs)
    if permutation is not None:
        if permutation.shape != (num_programs,):
            raise ValueError(
                f"an order of {num_programs} programs was wanted, "
                f"found shape {tuple(permutation.shape)}"
            )
        permutation = permutation.to(device=device, dtype=torch.int64).contiguous()
    with _on(device):
        kernel[(num_programs,)](
            *arguments,
            arguments[0] if permutation is None else permutation,  # without an order: not read
            HAS_ORDER=permutation is not None,
            num_warps=num_warps,
            enable_fp_fusion=False,
            **constants,
        )


def _on(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which kernels go to ``device`` and overflow to infinity is silent.

    Raises:
        ValueError: a compiled kernel cannot run there.
    """
    if INTERPRETED.value:
        return np.errstate(all="ignore")
    if device.type == "cpu":
        raise ValueError("kernels are compiled in this process; on a CPU set TRITON_INTERPRET=1")
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def as_rows(x: torch.Tensor) -> torch.Tensor:
    """Return ``x [..., N]`` as ``[A, B, N]`` with contiguous rows: a view wherever one exists."""
    x = x[(None,) * (3 - x.dim())] if x.dim() <= 3 else x.flatten(0, -3)
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def check_float(kernel: str, **tensors: torch.Tensor | None) -> None:
    """Check that the tensors have one dtype, of the three that kernels take, and one device.

    Raises:
        ValueError: they have not.
    """
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    dtypes = {name: tensor.dtype for name, tensor in given.items()}
    if len(set(dtypes.values())) != 1 or next(iter(dtypes.values())) not in FLOATS:
        found = ", ".join(f"{name} {dtype}" for name, dtype in dtypes.items())
        raise ValueError(f"{kernel}: one of bfloat16, float16, float32 for all; found {found}")
    if len({tensor.device for tensor in given.values()}) != 1:
        found = ", ".join(f"{name} {tensor.device}" for name, tensor in given.items())
        raise ValueError(f"{kernel}: one device for all; found {found}")
