"""The operations of a Gemma layer, each as its formula says, in the dtype of its input.

Nothing here is shared with the runtime or the kernels: what they compute is compared with this.
Letters: ``T`` rows of the span, ``C`` keys, ``H`` query heads, ``K`` kv heads, ``D`` head_dim.
"""

import math
from collections.abc import Sequence

import torch

from swarepro.checkpoint.config import RopeKind, RopeSpec


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None, *, eps: float, adds_one: bool
) -> torch.Tensor:
    """Return ``x / sqrt(mean(x^2) + eps)`` over the last dimension, times ``w`` or ``1 + w``.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization"; Gemma 2 and 3 add the one.
    """
    out = x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + eps)
    if weight is None:
        return out
    factor = weight.to(x.dtype)
    return out * (1 + factor if adds_one else factor)


def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return ``x [T, I]`` times the transposed ``weight [O, I]``."""
    return x @ weight.to(x.dtype).T


def frequencies(spec: RopeSpec, head_dim: int) -> torch.Tensor:
    """Return the angle per position ``[D / 2]`` of each pair of a head, float64.

    Source: Su et al., "RoFormer"; `RopeSpec` says what its kinds change.
    """
    pair = torch.arange(head_dim // 2, dtype=torch.float64)
    out = spec.theta ** (-2 * pair / head_dim)
    if spec.kind is RopeKind.PROPORTIONAL:
        out[int(spec.partial_rotary_factor * head_dim // 2) :] = 0
    return out / spec.factor


def rope(x: torch.Tensor, positions: torch.Tensor, spec: RopeSpec) -> torch.Tensor:
    """Rotate ``x [T, heads, D]`` by its ``positions [T]``: pair i is dimensions i and i + D / 2."""
    half = x.shape[-1] // 2
    angles = positions.double()[:, None, None] * frequencies(spec, x.shape[-1]).to(x.device)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def softcap(x: torch.Tensor, cap: float | None) -> torch.Tensor:
    """Return ``cap * tanh(x / cap)``, or ``x`` without a cap."""
    return x if cap is None else cap * torch.tanh(x / cap)


def visible(
    start: int, end: int, window: int | None, images: Sequence[tuple[int, int]] = ()
) -> torch.Tensor:
    """Return ``[end - start, end]`` bool: which of the keys ``[0, end)`` each query sees.

    A query at position p sees p and what lies before it, and all of its own image; in a sliding
    layer, of these none that lies ``window`` or more before it.
    """
    query = torch.arange(start, end)[:, None]
    key = torch.arange(end)[None, :]
    seen = key <= query
    for first, last in images:
        seen |= (first <= query) & (query < last) & (first <= key) & (key < last)
    return seen if window is None else seen & (query - key < window)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    seen: torch.Tensor,
    *,
    scale: float,
    cap: float | None,
) -> torch.Tensor:
    """Return ``softmax(cap(scale * q k)) v``, ``[T, H, D]``.

    Args:
        q: ``[T, H, D]``.
        k: ``[C, K, D]``; head h of q attends to head ``h // (H / K)`` of k and v.
        v: ``[C, K, D]``.
        seen: ``[T, C]`` bool.
        scale: of the scores.
        cap: of the scaled scores, or None.
    """
    group = q.shape[1] // k.shape[1]
    keys, values = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    scores = softcap(scale * torch.einsum("thd,chd->htc", q, keys), cap)
    scores = scores.masked_fill(~seen.to(q.device), -math.inf)
    return torch.einsum("htc,chd->thd", torch.softmax(scores, dim=-1), values)


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    """Return ``x / 2 * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))``.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units".
    """
    return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
