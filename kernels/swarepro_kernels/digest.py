"""A 128-bit digest of a tensor, computed where the tensor is: see `reference.digest`."""

import torch
import triton
import triton.language as tl

from swarepro_kernels.launch import TILES, launch
from swarepro_kernels.order import ProgramOrder
from swarepro_kernels.reference import DIGEST_FACTORS, DIGEST_STEPS, digest_seeds
from swarepro_kernels.tile import program_id

_STEP_0 = tl.constexpr(DIGEST_STEPS[0])
_STEP_1 = tl.constexpr(DIGEST_STEPS[1])
_FACTOR_00 = tl.constexpr(DIGEST_FACTORS[0][0])
_FACTOR_01 = tl.constexpr(DIGEST_FACTORS[0][1])
_FACTOR_10 = tl.constexpr(DIGEST_FACTORS[1][0])
_FACTOR_11 = tl.constexpr(DIGEST_FACTORS[1][1])

_TARGET_PROGRAMS = 1024
_MOST_TILES = 16  # tiles of an instance, however large the tensor
_ALONE_TILES = 4  # up to here one instance does all, and one launch suffices


@triton.jit
def _mix(z: tl.tensor, FIRST: tl.constexpr, SECOND: tl.constexpr) -> tl.tensor:
    """Mix uint64 ``z``; shifts by half a word are free on hardware with 32-bit registers."""
    z = z ^ (z >> 32)
    z = z * FIRST
    z = z ^ (z >> 32)
    z = z * SECOND
    return z ^ (z >> 32)


@triton.jit
def _finish(
    out_ptr: tl.tensor, sum_0: tl.tensor, sum_1: tl.tensor, seed_0: tl.tensor, seed_1: tl.tensor
) -> None:
    """Store the digest of the lanes' sums."""
    out_0 = _mix(sum_0 + seed_0.to(tl.int64).to(tl.uint64), _FACTOR_00, _FACTOR_01)
    out_1 = _mix(sum_1 + seed_1.to(tl.int64).to(tl.uint64), _FACTOR_10, _FACTOR_11)
    tl.store(out_ptr, out_0.to(tl.int64))
    tl.store(out_ptr + 1, out_1.to(tl.int64))


@triton.jit(do_not_specialize=["tail_bytes", "seed_0", "seed_1"])
def _digest_kernel(
    bytes_ptr: tl.tensor,
    words_ptr: tl.tensor,
    out_ptr: tl.tensor,
    num_words: tl.tensor,
    tail_bytes: tl.tensor,
    tiles: tl.tensor,
    seed_0: tl.tensor,
    seed_1: tl.tensor,
    order_ptr: tl.tensor,
    BLOCK: tl.constexpr,
    ALONE: tl.constexpr,
    HAS_ORDER: tl.constexpr,
) -> None:
    """Add up the terms of ``tiles`` tiles of words; instance 0 also those of the tail."""
    pid = program_id(order_ptr, HAS_ORDER)
    sum_0 = tl.zeros([BLOCK], dtype=tl.uint64)
    sum_1 = tl.zeros([BLOCK], dtype=tl.uint64)
    zero = tl.zeros([BLOCK], dtype=tl.uint64)
    for tile in range(0, tiles):
        at = (pid * tiles + tile) * BLOCK + tl.arange(0, BLOCK)
        exists = at < num_words
        word = tl.load(words_ptr + at, mask=exists, other=0).to(tl.uint64, bitcast=True)
        place = (at + 1).to(tl.uint64)
        term_0 = _mix(word ^ (place * _STEP_0), _FACTOR_00, _FACTOR_01)
        term_1 = _mix(word + (place * _STEP_1), _FACTOR_10, _FACTOR_11)
        sum_0 += tl.where(exists, term_0, zero)
        sum_1 += tl.where(exists, term_1, zero)
    total_0 = tl.sum(sum_0, axis=0)
    total_1 = tl.sum(sum_1, axis=0)

    tail_at = tl.cast(num_words, tl.int64)  # a plain number where it was specialised
    byte = tl.arange(0, 8)
    in_tail = pid * 8 + byte < tail_bytes  # there are at most 7: none but instance 0's
    value = tl.load(bytes_ptr + tail_at * 8 + byte, mask=in_tail, other=0)
    word = tl.sum(value.to(tl.uint64) << (byte * 8).to(tl.uint64), axis=0)
    place = (tail_at + 1).to(tl.uint64)
    has_tail = tl.max(in_tail.to(tl.int32), axis=0).to(tl.uint64)
    total_0 += _mix(word ^ (place * _STEP_0), _FACTOR_00, _FACTOR_01) * has_tail
    total_1 += _mix(word + (place * _STEP_1), _FACTOR_10, _FACTOR_11) * has_tail

    if ALONE:
        _finish(out_ptr, total_0, total_1, seed_0, seed_1)
    else:
        tl.store(out_ptr + pid * 2, total_0.to(tl.int64))
        tl.store(out_ptr + pid * 2 + 1, total_1.to(tl.int64))


@triton.jit(do_not_specialize=["seed_0", "seed_1"])
def _digest_finish_kernel(
    partial_ptr: tl.tensor,
    out_ptr: tl.tensor,
    num_partials: tl.tensor,
    seed_0: tl.tensor,
    seed_1: tl.tensor,
    order_ptr: tl.tensor,
    BLOCK: tl.constexpr,
    HAS_ORDER: tl.constexpr,
) -> None:
    """Add up the sums ``[num_partials, 2]`` of all instances."""
    pid = program_id(order_ptr, HAS_ORDER)
    sum_0 = tl.zeros([BLOCK], dtype=tl.uint64)
    sum_1 = tl.zeros([BLOCK], dtype=tl.uint64)
    for start in range(0, num_partials, BLOCK):
        at = pid + start + tl.arange(0, BLOCK)
        exists = at < num_partials
        sum_0 += tl.load(partial_ptr + at * 2, mask=exists, other=0).to(tl.uint64, bitcast=True)
        sum_1 += tl.load(partial_ptr + at * 2 + 1, mask=exists, other=0).to(tl.uint64, bitcast=True)
    _finish(out_ptr, tl.sum(sum_0, axis=0), tl.sum(sum_1, axis=0), seed_0, seed_1)


def digest(
    x: torch.Tensor, *, out: torch.Tensor | None = None, order: ProgramOrder | None = None
) -> torch.Tensor:
    """Return the digest of x's dtype, shape and bytes, as `reference.digest` defines it.

    Args:
        x: any dtype, shape, strides; copied first where it is not contiguous, or where its
            storage does not begin at a multiple of 8 bytes.
        out: ``[2]`` int64, contiguous, on x's device: fully written and returned, as a row of a
            table that is copied to the host once; None = a new tensor.
        order: see `ProgramOrder`.

    Returns:
        ``[2]`` int64, on x's device.

    Raises:
        ValueError: out is not as stated.
    """
    return _digest(x, out, order, block=TILES["digest"][0].columns, most_tiles=_MOST_TILES)


def _digest(
    x: torch.Tensor,
    out: torch.Tensor | None,
    order: ProgramOrder | None,
    *,
    block: int,
    most_tiles: int,
) -> torch.Tensor:
    """Compute `digest` in tiles of ``block`` words, at most ``most_tiles`` to an instance."""
    if out is None:
        out = torch.empty(2, dtype=torch.int64, device=x.device)
    elif (
        out.shape != (2,)
        or out.dtype != torch.int64
        or not out.is_contiguous()
        or out.device != x.device
    ):
        found = f"{tuple(out.shape)} {out.dtype} on {out.device}"
        raise ValueError(f"digest: out [2] int64, contiguous, on {x.device} wanted, found {found}")
    raw = x.contiguous().view(-1).view(torch.uint8)
    if raw.data_ptr() % 8:
        raw = raw.clone()
    num_words, tail_bytes = divmod(raw.numel(), 8)
    words = raw[: num_words * 8].view(torch.int64)
    seeds = digest_seeds(x.dtype, tuple(x.shape))
    warps = TILES["digest"][0].num_warps

    all_tiles = triton.cdiv(num_words, block)
    if all_tiles <= min(_ALONE_TILES, most_tiles):
        tiles, programs, sums = all_tiles, 1, out
    else:
        tiles = min(most_tiles, triton.cdiv(all_tiles, _TARGET_PROGRAMS))
        programs = triton.cdiv(all_tiles, tiles)
        sums = torch.empty(programs, 2, dtype=torch.int64, device=x.device)
    launch(
        _digest_kernel,
        programs,
        raw,
        words,
        sums,
        num_words,
        tail_bytes,
        tiles,
        *seeds,
        order=order,
        num_warps=warps,
        BLOCK=block,
        ALONE=sums is out,
    )
    if sums is not out:
        launch(
            _digest_finish_kernel,
            1,
            sums,
            out,
            programs,
            *seeds,
            order=None,
            num_warps=warps,
            BLOCK=block,
        )
    return out


def digest_hex(digest: torch.Tensor) -> str:
    """Return a digest ``[2]`` int64 as 32 hexadecimal digits, lane 0 first."""
    return "".join(f"{lane & 0xFFFF_FFFF_FFFF_FFFF:016x}" for lane in digest.tolist())
