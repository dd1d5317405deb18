"""Eager torch twins of every public kernel: the definition of what each one computes.

Letters: ``T`` tokens of the step, ``C`` context rows, ``S`` slots, ``H`` query heads, ``K`` kv
heads, ``D`` head_dim, ``F`` ffn. Results have the inputs' dtype. Attention and `rms_norm` compute
in float32 and round once; `rope`, `gelu_tanh_mul` and `softcap` round every operation to the dtype,
as transformers does.
"""

import torch


def store_kv(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    order: torch.Tensor | None = None,
) -> None:
    """Write each row of K and V to its slot, as concurrent instances would in one legal order.

    One program instance writes one head of one row of K or of V. Instance ids count row first:
    ``id = (row * K + head) * 2 + (0 for K, 1 for V)``. Where slots repeat, the last writer wins,
    separately for each (slot, head, K or V): this is how rows get torn.

    Args:
        k: ``[T, K, D]``.
        v: ``[T, K, D]``, same dtype.
        k_cache: ``[S, K, D]``, same dtype; written at ``slot_mapping``.
        v_cache: ``[S, K, D]``, likewise.
        slot_mapping: ``[T]`` int64.
        order: ``[T * K * 2]`` int64, a permutation of the instance ids; None = 0, 1, 2, ...
    """
    rows, heads = k.shape[0], k.shape[1]
    slots, inverse = torch.unique(slot_mapping, return_inverse=True)
    if slots.numel() == rows:  # every row has a slot of its own: no order can matter
        k_cache[slot_mapping] = k
        v_cache[slot_mapping] = v
        return
    rank = torch.arange(rows * heads * 2, device=k.device)
    if order is not None:
        rank = torch.empty_like(rank).scatter_(0, order, rank)
    rank = rank.view(rows, heads, 2)
    last = torch.full((slots.numel(), heads, 2), -1, dtype=rank.dtype, device=k.device)
    last.scatter_reduce_(0, inverse[:, None, None].expand_as(rank), rank, reduce="amax")
    wins = rank == last[inverse]
    for which, (rows_in, cache) in enumerate(((k, k_cache), (v, v_cache))):
        row, head = wins[..., which].nonzero(as_tuple=True)
        cache[slot_mapping[row], head] = rows_in[row, head]


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    visible: torch.Tensor,
    scale: float,
    softcap: float | None,
) -> torch.Tensor:
    """Attend ``[T, H, D]`` queries to ``[C, K, D]`` keys where ``visible [T, C]``, in float32."""
    tokens, num_heads, head_dim = q.shape
    num_kv_heads = k.shape[1]
    group = num_heads // num_kv_heads
    queries = q.float().view(tokens, num_kv_heads, group, head_dim).permute(1, 2, 0, 3)
    keys = k.float().permute(1, 2, 0).unsqueeze(1)
    values = v.float().transpose(0, 1).unsqueeze(1)
    scores = torch.matmul(queries, keys) * scale
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores.masked_fill(~visible, float("-inf"))
    out = torch.matmul(torch.softmax(scores, dim=-1), values)
    return out.permute(2, 0, 1, 3).reshape(tokens, num_heads, head_dim).to(q.dtype)


def paged_prefill(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    prefix_slots: torch.Tensor,
    *,
    window_left: int | None,
    scale: float,
    softcap: float | None = None,
) -> torch.Tensor:
    """Attend one chunk to its prefix, read from the pool, and to itself, read from the chunk.

    Args:
        q: ``[T, H, D]``.
        k: ``[T, K, D]``, the chunk's own keys.
        v: ``[T, K, D]``.
        k_cache: ``[S, K, D]``.
        v_cache: ``[S, K, D]``.
        prefix_slots: ``[P]`` int64, slots of the P positions just before the chunk; with a window
            the caller may leave out positions that no query sees.
        window_left: keys visible to the left of each query; None = all.
        scale: factor of the scores.
        softcap: ``cap * tanh(score / cap)`` before the mask, or None.

    Returns:
        ``[T, H, D]``, q's dtype.
    """
    tokens, prefix = q.shape[0], prefix_slots.shape[0]
    keys = torch.cat([k_cache.index_select(0, prefix_slots), k]) if prefix else k
    values = torch.cat([v_cache.index_select(0, prefix_slots), v]) if prefix else v
    query_at = torch.arange(prefix, prefix + tokens, device=q.device)[:, None]
    key_at = torch.arange(prefix + tokens, device=q.device)[None, :]
    visible = key_at <= query_at
    if window_left is not None:
        visible &= key_at >= query_at - window_left
    return _attend(q, keys, values, visible, scale, softcap)


def paged_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    *,
    scale: float,
    softcap: float | None = None,
) -> torch.Tensor:
    """Attend one query to all keys that it may see, its own among them, read from the pool.

    Args:
        q: ``[1, H, D]``.
        k_cache: ``[S, K, D]``.
        v_cache: ``[S, K, D]``.
        slots: ``[C]`` int64, slots of the visible positions in order, the query's own last.
        scale: factor of the scores.
        softcap: as in `paged_prefill`.

    Returns:
        ``[1, H, D]``, q's dtype.
    """
    visible = torch.ones(1, slots.shape[0], dtype=torch.bool, device=q.device)
    keys, values = k_cache.index_select(0, slots), v_cache.index_select(0, slots)
    return _attend(q, keys, values, visible, scale, softcap)


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None, *, eps: float, adds_one: bool
) -> torch.Tensor:
    """Return ``x / sqrt(mean(x^2) + eps) * w`` over the last dimension, in float32, in x's dtype.

    The weight is applied as ``w``, as ``1 + w`` (``adds_one``, summed in float32), or not at all.

    Args:
        x: ``[..., N]``.
        weight: ``[N]`` or None.
        eps: added to the mean square.
        adds_one: Gemma 3's convention.
    """
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    if weight is not None:
        normed = normed * (1.0 + weight.float() if adds_one else weight.float())
    return normed.to(x.dtype)


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the halves of each head: ``[x1 cos - x2 sin, x2 cos + x1 sin]``.

    Args:
        x: ``[T, H, D]``.
        cos: ``[T, D / 2]``, x's dtype; frequencies of zero leave their pair as it is.
        sin: ``[T, D / 2]``, x's dtype.

    Returns:
        ``[T, H, D]``, x's dtype; products are rounded to x's dtype before they are added.
    """
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos[:, None, :], sin[:, None, :]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def gelu_tanh_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """Return ``gelu_tanh(gate) * up`` of ``[T, 2 F]``, gate first, as ``[T, F]`` in its dtype."""
    gate, up = gate_up.chunk(2, dim=-1)
    return torch.nn.functional.gelu(gate, approximate="tanh") * up


def softcap(x: torch.Tensor, cap: float) -> torch.Tensor:
    """Return ``cap * tanh(x / cap)`` in x's dtype."""
    return torch.tanh(x / cap) * cap
