"""Eager torch twins of every public kernel: the definition of what each one computes.

Letters: ``T`` tokens of the step, ``C`` context rows, ``S`` slots, ``H`` query heads, ``K`` kv
heads, ``D`` head_dim, ``F`` ffn. Results have the inputs' dtype. Attention and `rms_norm` compute
in float32 and round once; `rope`, `gelu_tanh_mul` and `softcap` round every operation to the dtype,
as transformers does.
"""

import functools
from itertools import pairwise

import torch

from swarepro_kernels.order import ProgramOrder


def store_kv(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    order: ProgramOrder | None = None,
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
        order: given ``T * K * 2``, the order in which the instances write; None = 0, 1, 2, ...
    """
    rows, heads = k.shape[0], k.shape[1]
    slots, inverse = torch.unique(slot_mapping, return_inverse=True)
    if slots.numel() == rows:  # every row has a slot of its own: no order can matter
        k_cache[slot_mapping] = k
        v_cache[slot_mapping] = v
        return
    rank = torch.arange(rows * heads * 2, device=k.device)
    permutation = None if order is None else order(rank.numel())
    if permutation is not None:
        rank = torch.empty_like(rank).scatter_(0, permutation.to(k.device), rank)
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
    ahead: torch.Tensor | None = None,
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
        ahead: ``[T]`` int64, keys of the chunk visible to the right of each query; None = none.

    Returns:
        ``[T, H, D]``, q's dtype.
    """
    tokens, prefix = q.shape[0], prefix_slots.shape[0]
    keys = torch.cat([k_cache.index_select(0, prefix_slots), k]) if prefix else k
    values = torch.cat([v_cache.index_select(0, prefix_slots), v]) if prefix else v
    query_at = torch.arange(prefix, prefix + tokens, device=q.device)[:, None]
    key_at = torch.arange(prefix + tokens, device=q.device)[None, :]
    visible = key_at <= (query_at if ahead is None else query_at + ahead[:, None])
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
    kv_indptr: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend one query of each request to all keys that it may see, its own among them.

    Args:
        q: ``[R, H, D]``.
        k_cache: ``[S, K, D]``.
        v_cache: ``[S, K, D]``.
        slots: ``[N]`` int64, for each request the slots of its visible positions in order, the
            query's own last.
        scale: factor of the scores.
        softcap: as in `paged_prefill`.
        kv_indptr: ``[R + 1]`` int64: request r has the slots ``[r] .. [r + 1]``; None = one
            request, all slots.

    Returns:
        ``[R, H, D]``, q's dtype.
    """
    ends = [0, slots.shape[0]] if kv_indptr is None else kv_indptr.tolist()
    out = torch.empty_like(q)
    for request, (start, end) in enumerate(pairwise(ends)):
        own = slots[start:end]
        visible = torch.ones(1, end - start, dtype=torch.bool, device=q.device)
        keys, values = k_cache.index_select(0, own), v_cache.index_select(0, own)
        row = slice(request, request + 1)
        out[row] = _attend(q[row], keys, values, visible, scale, softcap)
    return out


def paged_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    *,
    query_indptr: torch.Tensor,
    kv_indptr: torch.Tensor,
    window_left: int | None,
    scale: float,
    softcap: float | None = None,
    ahead: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend the queries of R requests, chunks and decodes alike, to keys read from the pool.

    Args:
        q: ``[T, H, D]``, request after request.
        k_cache: ``[S, K, D]``.
        v_cache: ``[S, K, D]``.
        slots: ``[N]`` int64, the slots of each request's positions in order, request after request;
            with a window the caller may leave out positions that no query sees.
        query_indptr: ``[R + 1]`` int64: request r has the queries ``[r] .. [r + 1]`` of ``q``.
        kv_indptr: ``[R + 1]`` int64: likewise its slots; the last query is at the last of them.
        window_left: as in `paged_prefill`.
        scale: factor of the scores.
        softcap: as in `paged_prefill`.
        ahead: as in `paged_prefill`.

    Returns:
        ``[T, H, D]``, q's dtype.
    """
    out = torch.empty_like(q)
    spans = zip(pairwise(query_indptr.tolist()), pairwise(kv_indptr.tolist()), strict=True)
    for (start, end), (first, last) in spans:
        own = slots[first:last]
        keys, values = k_cache.index_select(0, own), v_cache.index_select(0, own)
        key_at = torch.arange(last - first, device=q.device)
        query_at = key_at[last - first - (end - start) :, None]
        visible = key_at <= (query_at if ahead is None else query_at + ahead[start:end, None])
        if window_left is not None:
            visible &= key_at >= query_at - window_left
        out[start:end] = _attend(q[start:end], keys, values, visible, scale, softcap)
    return out


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    *,
    eps: float,
    adds_one: bool,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return ``x / sqrt(mean(x^2) + eps) * w`` over the last dimension, in float32, in x's dtype.

    The weight is applied as ``w``, as ``1 + w`` (``adds_one``, summed in float32), or not at all.

    Args:
        x: ``[..., N]``.
        weight: ``[N]`` or None.
        eps: added to the mean square.
        adds_one: Gemma 3's convention.
        residual: ``[..., N]``, x's dtype, to which the normed value, rounded, is added; or None.
    """
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    if weight is not None:
        normed = normed * (1.0 + weight.float() if adds_one else weight.float())
    out = normed.to(x.dtype)
    return out if residual is None else residual + out


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


# The digest's constants: odd, with the top bit set. The first is 2^64 over the golden ratio; the
# others are published multipliers of 64-bit finalisers (degski's, and the two of splitmix64).
DIGEST_STEPS = (0x9E3779B97F4A7C15, 0xD1342543DE82EF95)
DIGEST_FACTORS = (
    (0xD6E8FEB86659FD93, 0xD6E8FEB86659FD93),
    (0xBF58476D1CE4E5B9, 0x94D049BB133111EB),
)
_CHUNK_WORDS = 1 << 12  # so that a chunk and its temporaries stay in a core's cache


def as_int64(word: int) -> int:
    """Return the signed value with the bits of ``word`` modulo 2^64."""
    word &= 0xFFFF_FFFF_FFFF_FFFF
    return word - (1 << 64) if word >> 63 else word


def _mix_word(word: int, lane: int) -> int:
    """Return ``mix`` of `digest` for one number."""
    first, second = DIGEST_FACTORS[lane]
    word ^= word >> 32
    word = word * first & 0xFFFF_FFFF_FFFF_FFFF
    word ^= word >> 32
    word = word * second & 0xFFFF_FFFF_FFFF_FFFF
    return word ^ word >> 32


@functools.lru_cache(maxsize=4096)
def digest_seeds(dtype: torch.dtype, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the two seeds of `digest`, as signed 64-bit numbers."""
    name = str(dtype).removeprefix("torch.").encode("ascii")
    words = [1, len(name)]
    words += [int.from_bytes(name[at : at + 8], "little") for at in range(0, len(name), 8)]
    words += [len(shape), *shape]
    seeds = []
    for lane, step in enumerate(DIGEST_STEPS):
        seed = 0
        for word in words:
            seed = _mix_word((seed + step & 0xFFFF_FFFF_FFFF_FFFF) ^ word, lane)
        seeds.append(as_int64(seed))
    return seeds[0], seeds[1]


def _mix(x: torch.Tensor, lane: int) -> torch.Tensor:
    """Apply ``mix`` of `digest` to int64 ``x`` in place."""
    first, second = DIGEST_FACTORS[lane]
    for factor in (first, second):
        x ^= (x >> 32) & 0xFFFF_FFFF  # a logical shift
        x *= as_int64(factor)
    x ^= (x >> 32) & 0xFFFF_FFFF
    return x


def digest_terms(words: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return what the int64 ``words`` at positions ``index``, same shape, add to each lane's sum.

    Returns:
        ``[2, ...]`` int64.
    """
    keys = [(index + 1) * as_int64(step) for step in DIGEST_STEPS]
    return torch.stack([_mix(words ^ keys[0], 0), _mix(words + keys[1], 1)])


def digest_finish(sums: torch.Tensor, seeds: tuple[int, int]) -> torch.Tensor:
    """Return the digest from the lanes' sums ``[2, ...]`` int64, same shape."""
    return torch.stack([_mix(sums[lane] + seed, lane) for lane, seed in enumerate(seeds)])


def words_of(x: torch.Tensor) -> torch.Tensor:
    """Return x's bytes, in row-major order, as ``[N]`` int64, the last one padded with zeros."""
    raw = x.contiguous().view(-1).view(torch.uint8)
    if raw.numel() % 8 or raw.data_ptr() % 8:
        raw = torch.nn.functional.pad(raw, (0, -raw.numel() % 8))
    return raw.view(torch.int64)


def digest(x: torch.Tensor) -> torch.Tensor:
    """Return a 128-bit digest of x's dtype, shape and bytes.

    All numbers are unsigned, modulo 2^64. Let ``w[i]`` be the bytes of x in row-major order as
    little-endian words of 8 bytes, the last padded with zeros. For lane 0 and lane 1::

        mix(z)  = z ^= z >> 32; z *= F[lane, 0]; z ^= z >> 32; z *= F[lane, 1]; z ^= z >> 32
        sum[0]  = sum over i of mix(w[i] ^ (i + 1) * S[0])
        sum[1]  = sum over i of mix(w[i] + (i + 1) * S[1])
        seed    = 0, then for each word u of the description: seed = mix((seed + S[lane]) ^ u)
        out     = mix(sum + seed)

    with S = `DIGEST_STEPS`, F = `DIGEST_FACTORS`, and the description: version 1, the length of the
    dtype's name ("bfloat16"), the name in words as above, the number of dimensions, each of them.

    Each mix is a bijection. So a change within one aligned word always changes both lanes, and so
    does a change of the dtype or shape that leaves the bytes, as long as the seeds differ. Other
    changes go unseen with a chance of about 2^-128: both lanes' sums must cancel, and the position
    enters one by exclusive or and the other by addition, so that words rearranged to make up for
    the keys of one lane do not make up for those of the other. Sums are exact and commute: any
    split of the work gives the same digest. It is no defence against a collision made on purpose.

    Args:
        x: any dtype, shape, strides; copied where it is not contiguous.

    Returns:
        ``[2]`` int64, on x's device.
    """
    words = words_of(x)
    sums = torch.zeros(2, dtype=torch.int64, device=x.device)
    for start in range(0, words.numel(), _CHUNK_WORDS):
        chunk = words[start : start + _CHUNK_WORDS]
        index = torch.arange(start, start + chunk.numel(), device=x.device)
        sums += digest_terms(chunk, index).sum(1)
    return digest_finish(sums, digest_seeds(x.dtype, tuple(x.shape)))
