"""What the attention tests share: shapes, drawn inputs, tolerances, and SDPA in float64.

A case is a chunk after a prefix, both with rows in a pool laid out as the runtime lays it out.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch


class Shape(NamedTuple):
    """A chunk of ``rows`` after ``prefix`` positions; ``window_left`` as in the kernels."""

    rows: int
    prefix: int
    heads: int
    kv_heads: int
    head_dim: int
    window_left: int | None


SHAPES = [
    Shape(1, 0, 4, 1, 16, None),
    Shape(1, 1, 4, 2, 32, 0),
    Shape(2, 63, 4, 2, 16, 31),  # window shorter than the context
    Shape(3, 64, 16, 8, 32, 63),
    Shape(63, 0, 4, 1, 16, 31),
    Shape(64, 64, 4, 2, 16, 127),  # equal to it
    Shape(65, 64, 4, 2, 64, 500),  # longer
    Shape(5, 448, 4, 1, 256, 100),
    Shape(3, 64, 16, 1, 512, None),
]
"""The eager twins' table; the kernels' is longer."""

# The output is rounded once to the dtype: bf16 to 2^-9 relative and fp16 to 2^-12, of values up to
# about four. In float32 what is left is the rounding of scores and of sums over at most 512 keys.
TOLERANCE = {torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float32: 2e-6}


def sdpa(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    *,
    prefix: int,
    window_left: int | None,
    scale: float,
    softcap: float | None = None,
    ahead: torch.Tensor | None = None,
) -> torch.Tensor:
    """The reference: float64, keys repeated per query head, mask written out."""
    rows, heads, _ = q.shape
    query_at = torch.arange(prefix, prefix + rows, device=q.device)[:, None]
    key_at = torch.arange(prefix + rows, device=q.device)[None]
    mask = key_at <= (query_at if ahead is None else query_at + ahead[:, None])
    if window_left is not None:
        mask = mask & (query_at - key_at <= window_left)
    group = heads // keys.shape[1]
    q = q.double().transpose(0, 1)
    keys = keys.double().repeat_interleave(group, dim=1).transpose(0, 1)
    values = values.double().repeat_interleave(group, dim=1).transpose(0, 1)
    if softcap is None:
        out = torch.nn.functional.scaled_dot_product_attention(
            q, keys, values, attn_mask=mask, scale=scale
        )
    else:
        scores = softcap * torch.tanh(q @ keys.transpose(1, 2) * scale / softcap)
        out = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ values
    return out.transpose(0, 1)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Inputs of one shape.

    Attributes:
        q: ``[T, H, D]``.
        k: ``[T, K, D]``.
        v: ``[T, K, D]``.
        pool: ``[S, 2, K, D]``, with the chunk's own rows at their slots.
        slots: ``[P + T]`` int64, of the prefix, then of the chunk; slot 0 is nobody's.
    """

    shape: Shape
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    pool: torch.Tensor
    slots: torch.Tensor

    @property
    def k_cache(self) -> torch.Tensor:
        return self.pool[:, 0]

    @property
    def v_cache(self) -> torch.Tensor:
        return self.pool[:, 1]

    @property
    def prefix_slots(self) -> torch.Tensor:
        return self.slots[: self.shape.prefix]

    @property
    def arguments(self):
        """Keyword arguments of a call."""
        return {"window_left": self.shape.window_left, "scale": self.shape.head_dim**-0.5}

    def expected(
        self,
        window_left: int | None,
        softcap: float | None = None,
        ahead: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return `sdpa` of this case, with another window where wanted."""
        return sdpa(
            self.q,
            self.k_cache[self.slots],
            self.v_cache[self.slots],
            prefix=self.shape.prefix,
            window_left=window_left,
            scale=self.shape.head_dim**-0.5,
            softcap=softcap,
            ahead=ahead,
        )

    def visible_slots(self) -> torch.Tensor:
        """Return the slots of the positions that some query sees, the chunk's own last."""
        window = self.shape.window_left
        first = 0 if window is None else max(0, self.shape.prefix - window)
        return self.slots[first:]

    def visible_prefix_slots(self) -> torch.Tensor:
        """Return `visible_slots` less the chunk's own, which split attention does not read."""
        visible = self.visible_slots()
        return visible[: visible.shape[0] - self.shape.rows]

    def with_pool_rows(self, value: float, *, but: torch.Tensor) -> "Case":
        """Return this case with ``value`` in every pool row, the sentinel's too, not in ``but``."""
        pool = torch.full_like(self.pool, value)
        pool[but] = self.pool[but]
        return replace(self, pool=pool)


def looking_ahead(rows: int, device: torch.device | None = None) -> torch.Tensor:
    """Return ``[rows]`` int64: keys behind it that a row sees, in blocks of 1, 4, 9, ... rows."""
    ahead: list[int] = []
    size = 1
    while len(ahead) < rows:
        length = min(size * size, rows - len(ahead))
        ahead += reversed(range(length))
        size += 1
    return torch.tensor(ahead, dtype=torch.int64, device=device)


def make_case(shape: Shape, dtype: torch.dtype, device: torch.device | None = None) -> Case:
    """Draw a case; the same on every device."""
    rows, prefix, heads, kv_heads, head_dim, _ = shape
    generator = torch.Generator().manual_seed(sum(x or 0 for x in shape))

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator).to(dtype)

    # Views of one projection, as a fused QKV gives them: rows are strided, heads are not.
    fused = draw(rows, heads + 2 * kv_heads, head_dim).to(device)
    q, k, v = fused.split([heads, kv_heads, kv_heads], dim=1)
    pool = draw(prefix + rows + 5, 2, kv_heads, head_dim).to(device)
    slots = torch.randperm(prefix + rows + 4, generator=generator)[: prefix + rows] + 1
    slots = slots.to(device)
    pool[slots[prefix:], 0], pool[slots[prefix:], 1] = k, v
    return Case(shape=shape, q=q, k=k, v=v, pool=pool, slots=slots)
