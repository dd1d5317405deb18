"""`paged_prefill` against SDPA on the same dense tensors, by whichever backend is fastest."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import swarepro_kernels as kernels
from bench.gpu.ratio import Bench, check_close, ratio_row
from bench.gpu.report import Row
from bench.gpu.sizes import Geometry

BACKENDS = (
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """The same attention as dense tensors: ``[1, H, T, D]``, ``[1, K, C, D]``, mask ``[T, C]``."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    mask: torch.Tensor | None
    scale: float


def best_sdpa(bench: Bench, dense: Dense) -> tuple[str, float, torch.Tensor, dict[str, str]]:
    """Return the fastest backend, its milliseconds, its output ``[T, H, D]``, and all that was.

    Grouped heads are left to the backend where it takes them; else, or besides, K and V are
    repeated before the clock runs.

    Raises:
        RuntimeError: no backend takes these tensors.
    """
    group = dense.q.shape[1] // dense.k.shape[1]
    repeated = [x.repeat_interleave(group, dim=1) for x in (dense.k, dense.v)]
    best: tuple[str, float, torch.Tensor] | None = None
    seen: dict[str, str] = {}
    for backend in BACKENDS:
        for grouped in (True, False):
            name = f"{backend.name.lower()}{' grouped' if grouped else ''}"
            k, v = (dense.k, dense.v) if grouped else repeated
            work = partial(
                scaled_dot_product_attention,
                dense.q,
                k,
                v,
                attn_mask=dense.mask,
                is_causal=dense.mask is None,
                scale=dense.scale,
                enable_gqa=grouped,
            )
            try:
                with warnings.catch_warnings(), sdpa_kernel(backend):
                    warnings.simplefilter("ignore")  # it warns of what it cannot do, then raises
                    out = work()
                    milliseconds = bench.timer(work)
            except RuntimeError as error:
                seen[name] = str(error).partition("\n")[0][:200]
                continue
            seen[name] = f"{milliseconds:.4f} ms"
            if best is None or milliseconds < best[1]:
                best = (name, milliseconds, out[0].transpose(0, 1))
    if best is None:
        raise RuntimeError(f"no SDPA backend takes these tensors: {seen}")
    return *best, seen


def paged_prefill(bench: Bench) -> Iterator[Row]:
    """A chunk without a prefix in both geometries, and a windowed one at the end of a context."""
    sizes = bench.sizes
    yield _row(bench, sizes.sliding, prefix=0, window=None, at_least=0.6)
    yield _row(bench, sizes.full, prefix=0, window=None, at_least=None)
    prefix = sizes.window_context - sizes.prefill_rows
    yield _row(bench, sizes.sliding, prefix=prefix, window=sizes.window, at_least=1.0)


def _row(
    bench: Bench, geometry: Geometry, *, prefix: int, window: int | None, at_least: float | None
) -> Row:
    rows, scale = bench.sizes.prefill_rows, geometry.head_dim**-0.5
    q = bench.normal(rows, geometry.num_heads, geometry.head_dim)
    chunk = bench.normal(2, rows, geometry.num_kv_heads, geometry.head_dim)
    k_cache, v_cache = bench.pool(prefix + 1, geometry)
    slots = bench.permutation(prefix) + 1
    arguments: dict[str, Any] = {
        "window_left": None if window is None else window - 1,
        "scale": scale,
    }
    inputs = (q, chunk[0], chunk[1], k_cache, v_cache, slots)
    work = partial(kernels.paged_prefill, *inputs, **arguments)
    dense = Dense(
        q=_batched(q),
        k=_batched(torch.cat([k_cache[slots], chunk[0]])),
        v=_batched(torch.cat([v_cache[slots], chunk[1]])),
        mask=None if window is None else _mask(rows, prefix, window, bench.device),
        scale=scale,
    )
    name, theirs, wanted, seen = best_sdpa(bench, dense)
    check_close("paged_prefill", work(), wanted)
    ours = bench.timer(work)
    where = f"window {window}, context {prefix + rows}" if window else "no prefix"
    return ratio_row(
        f"paged_prefill, {rows} rows, head_dim {geometry.head_dim}, {where}, speed / SDPA's",
        theirs / ours,
        f"{ours:.3f} ms for {theirs:.3f} ms, {name}",
        at_least=at_least,
        figures={"ms": ours, "sdpa_ms": theirs, "sdpa_backend": name, "sdpa": seen},
    )


def _batched(x: torch.Tensor) -> torch.Tensor:
    """Return ``[T, H, D]`` as contiguous ``[1, H, T, D]``."""
    return x.transpose(0, 1).unsqueeze(0).contiguous()


def _mask(rows: int, prefix: int, window: int, device: torch.device) -> torch.Tensor:
    """Return ``[T, C]`` bool: which keys each row sees."""
    query = torch.arange(prefix, prefix + rows, device=device)[:, None]
    key = torch.arange(prefix + rows, device=device)[None, :]
    return (key <= query) & (query - key < window)
