"""What the attention kernels share: loads, one step of the online softmax, argument checks.

Scores are kept in base two: a factor of log2(e) is folded into the scale, so `exp2` is enough.
"""

import math

import torch
import triton
import triton.language as tl

from swarepro_kernels.tile import INTERPRETED, narrow, tanh, widen


@triton.jit
def dot_operand(x: tl.tensor) -> tl.tensor:
    """Return ``x`` as `tl.dot` takes it: as it is, or float32 in the interpreter.

    The interpreter multiplies the raw bits of a bfloat16; the cast is exact, and so are its
    products.
    """
    if INTERPRETED:
        x = widen(x)
    return x


@triton.jit
def load_rows(
    ptr: tl.tensor,
    rows: tl.tensor,
    present: tl.tensor,
    row_stride: tl.tensor,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
) -> tl.tensor:
    """Return ``[N, BLOCK_D]``: rows ``[N]`` int64 of one head, zero where not ``present [N]``."""
    dims = tl.arange(0, BLOCK_D)
    mask = present[:, None] & (dims < HEAD_DIM)[None, :]
    return tl.load(ptr + rows[:, None] * row_stride + dims[None, :], mask=mask, other=0.0)


@triton.jit
def sees(
    query_at: tl.tensor,
    last_seen: tl.tensor,
    key_at: tl.tensor,
    present: tl.tensor,
    window_left: tl.tensor,
    HAS_WINDOW: tl.constexpr,
) -> tl.tensor:
    """Return ``[M, N]``: which ``present`` keys at ``[N]`` the queries at ``[M]`` see.

    Up to ``last_seen [M]``, which is the query itself where attention is causal, and in the window.
    """
    visible = present[None, :] & (key_at[None, :] <= last_seen[:, None])
    if HAS_WINDOW:
        visible = visible & (key_at[None, :] >= query_at[:, None] - window_left)
    return visible


@triton.jit
def attend_tile(
    q: tl.tensor,
    k: tl.tensor,
    v: tl.tensor,
    visible: tl.tensor,
    acc: tl.tensor,
    row_max: tl.tensor,
    row_sum: tl.tensor,
    score_scale: tl.tensor,
    cap_scale: tl.tensor,
    HAS_SOFTCAP: tl.constexpr,
) -> tl.tuple:
    """Add one tile of keys to the online softmax.

    A row that sees no key so far has maximum -inf and sum 0, and adds exactly 0; no step computes
    ``inf - inf``. Every loaded row of ``v`` is multiplied, by 0 where it is not visible: callers
    load no key but those that some row of the tile sees.

    Args:
        q: ``[M, D]``, after `dot_operand`.
        k: ``[N, D]``, zero where absent.
        v: ``[N, D]``, zero where absent.
        visible: ``[M, N]`` or ``[1, N]``.
        acc: ``[M, D]`` float32, not yet divided by the sum.
        row_max: ``[M]`` float32, base two.
        row_sum: ``[M]`` float32.
        score_scale: factor of ``q k``, or of the tanh with a softcap; holds log2(e).
        cap_scale: factor inside the tanh.
        HAS_SOFTCAP: whether there is a softcap.

    Returns:
        acc, row_max, row_sum.
    """
    scores = tl.dot(q, tl.trans(dot_operand(k)), input_precision="ieee")
    if HAS_SOFTCAP:
        scores = tanh(scores * cap_scale)
    scores = tl.where(visible, scores * score_scale, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(scores, 1))
    base = tl.where(new_max == float("-inf"), 0.0, new_max)
    weights = tl.exp2(scores - base[:, None])
    decay = tl.exp2(row_max - base)
    row_sum = row_sum * decay + tl.sum(weights, 1)
    weights = dot_operand(narrow(weights, v.dtype))
    acc = tl.dot(weights, dot_operand(v), acc * decay[:, None], input_precision="ieee")
    return acc, new_max, row_sum


def score_scales(scale: float, softcap: float | None) -> tuple[float, float]:
    """Return ``score_scale, cap_scale`` of `attend_tile`."""
    if softcap is None:
        return scale * math.log2(math.e), 0.0
    return softcap * math.log2(math.e), scale / softcap


def check_rows(
    key_values: tuple[torch.Tensor, torch.Tensor],
    caches: tuple[torch.Tensor, torch.Tensor],
    indices: dict[str, torch.Tensor],
    *,
    num_rows: int | None = None,
) -> None:
    """Check that K and V go together and that index tables are what kernels read unchecked.

    Args:
        key_values: the step's own K and V, of ``num_rows`` rows where that is given.
        caches: of the pool.
        indices: by name; one dimension, int32 or int64, on the caches' device.
        num_rows: of the queries.

    Raises:
        ValueError: one of them is not as stated.
    """
    for pair in (key_values, caches):
        if pair[0].shape != pair[1].shape:
            found = [tuple(tensor.shape) for tensor in pair]
            raise ValueError(f"K and V of one shape are needed, not {found[0]} and {found[1]}")
    if num_rows is not None and key_values[0].shape[0] != num_rows:
        raise ValueError(f"{num_rows} queries need as many keys, not {key_values[0].shape[0]}")
    for name, index in indices.items():
        is_integer = index.dtype in (torch.int32, torch.int64)
        if index.dim() != 1 or not is_integer or index.device != caches[0].device:
            raise ValueError(
                f"{name}: one dimension of integers on {caches[0].device} is needed, not"
                f" {tuple(index.shape)} {index.dtype} on {index.device}"
            )


def check_ahead(ahead: torch.Tensor | None, q: torch.Tensor) -> None:
    """Check that there is an integer for each of the queries ``[T, H, D]``, or None for all.

    Raises:
        ValueError: there is not.
    """
    if ahead is None:
        return
    is_integer = ahead.dtype in (torch.int32, torch.int64)
    if ahead.shape != q.shape[:1] or not is_integer or ahead.device != q.device:
        raise ValueError(
            f"ahead: [{q.shape[0]}] integers on {q.device} are needed, not {list(ahead.shape)}"
            f" {ahead.dtype} on {ahead.device}"
        )


def check_heads(q: torch.Tensor, *key_values: torch.Tensor) -> None:
    """Check that ``[*, H, D]`` queries and ``[*, K, D]`` keys and values go together.

    Raises:
        ValueError: shapes, dtypes or devices differ, or the last dimension is strided.
    """
    num_heads, head_dim = q.shape[-2:]
    for tensor in (q, *key_values):
        if tensor.dim() != 3 or tensor.shape[2] != head_dim or tensor.stride(2) != 1:
            raise ValueError(
                f"a contiguous last dimension of {head_dim} in three is needed, "
                f"not shape {tuple(tensor.shape)} with strides {tensor.stride()}"
            )
        if tensor.dtype != q.dtype or tensor.device != q.device:
            raise ValueError(
                f"queries are {q.dtype} on {q.device}, keys or values "
                f"{tensor.dtype} on {tensor.device}"
            )
    if len({tensor.shape[1] for tensor in key_values}) > 1 or num_heads % key_values[0].shape[1]:
        raise ValueError(
            f"{num_heads} query heads cannot share kv heads "
            f"{[tensor.shape[1] for tensor in key_values]}"
        )


def result_like(q: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    """Return ``out``, or new memory of q's shape and dtype.

    Raises:
        ValueError: ``out`` has another shape, dtype or device, or is not contiguous.
    """
    if out is None:
        return torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if (out.shape, out.dtype, out.device) != (q.shape, q.dtype, q.device):
        raise ValueError(
            f"the result is {tuple(q.shape)} {q.dtype} on {q.device}, out {tuple(out.shape)}"
            f" {out.dtype} on {out.device}"
        )
    if not out.is_contiguous():
        raise ValueError(f"out has to be contiguous; its strides are {out.stride()}")
    return out
