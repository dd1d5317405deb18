"""One boundary from its pieces: ranks put together, fused parts taken apart, dimensions in order.

Values move and never change, but for the sum of a residual and what a layer adds to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from swarepro.bundle.dtypes import DTYPES, NUM_BYTES
from swarepro.errors import ForeignError, SwareproError
from swarepro.foreign.layout import Layout, arrange
from swarepro.foreign.matching import Matched
from swarepro.foreign.numbers import add
from swarepro.foreign.rules import TOKENS, Part, Rule, part_size, shared
from swarepro.foreign.tensors import Array, Digest, Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """One boundary of a whole step.

    Attributes:
        dtype: safetensors' name.
        shape: with the rule's dims.
        array: in the dtype's view, or None where there is a digest only.
        digest: then, else None.
    """

    dtype: str
    shape: tuple[int, ...]
    array: Array | None
    digest: Digest | None = None


def num_tokens(matched: Matched, num_ranks: int) -> int | None:
    """Return how many rows of tokens a boundary has; None where its rows are none. Opens nothing.

    Raises:
        ForeignError: its shape does not fit the layout.
    """
    layout = matched.rule.layouts[0]
    if TOKENS not in layout.letters:
        return None
    found = min(matched.sources[0].items())[1]
    try:
        return layout.extents(found.shape, _own_sizes(matched.rule, num_ranks))[TOKENS]
    except ForeignError as error:
        raise _at(matched, found, error) from None


def gather(matched: Matched, num_ranks: int) -> Gathered:
    """Open a boundary's tensors and put them together.

    Args:
        matched: the boundary.
        num_ranks: that split a tensor.

    Raises:
        ForeignError: shapes, dtypes or ranks that do not go together, with the file.
    """
    rule = matched.rule
    pieces: list[tuple[str, Array]] = []
    for layout, by_rank in zip(rule.layouts, matched.sources, strict=True):
        first = min(by_rank.items())[1]
        try:
            if first.digest is not None:
                return _digest(matched, layout, first)
            pieces.append(_together(rule, layout, by_rank, num_ranks))
        except SwareproError as error:
            raise _at(matched, first, error) from None
    dtypes = {dtype for dtype, _ in pieces}
    if len(dtypes) > 1:
        raise ForeignError(f"{matched.shown}: its tensors are {' and '.join(sorted(dtypes))}")
    dtype = pieces[0][0]
    try:
        array = _joined(rule, [array for _, array in pieces], dtype)
    except ForeignError as error:
        raise ForeignError(f"{matched.shown}: {error.message}", hint=error.hint) from None
    return Gathered(dtype=dtype, shape=array.shape, array=array)


def _joined(rule: Rule, arrays: list[Array], dtype: str) -> Array:
    if len(arrays) == 1:
        return arrays[0]
    if rule.spec.join != "add":
        axis = rule.dims.index(rule.spec.join or "")
        return _concatenate(arrays, axis)
    total = arrays[0]
    for array in arrays[1:]:
        if array.shape != total.shape:
            raise ForeignError(
                f"tensors of shape {list(total.shape)} and {list(array.shape)} are not added"
            )
        total = add(total, array, dtype)
    return total


def _concatenate(arrays: list[Array], axis: int) -> Array:
    if len(arrays) == 1:
        return arrays[0]
    shapes = {array.shape[:axis] + array.shape[axis + 1 :] for array in arrays}
    if len(shapes) > 1:
        listed = " and ".join(str(list(array.shape)) for array in arrays)
        raise ForeignError(f"tensors of shape {listed} do not lie one after another")
    return np.concatenate(arrays, axis=axis)


def _together(
    rule: Rule, layout: Layout, by_rank: Mapping[int, Found], num_ranks: int
) -> tuple[str, Array]:
    sizes = _own_sizes(rule, num_ranks)
    dtype = ""
    shards: list[Array] = []
    for _, found in sorted(by_rank.items()):
        own, array = _open(rule, found)
        if dtype and own != dtype:
            raise ForeignError(f"the ranks are {dtype} and {own}")
        dtype = own
        shards.append(layout.unpack(array, sizes))
    letters = layout.letters
    if rule.split is None:
        return dtype, _whole(shards, sorted(by_rank), letters, rule)
    axis = letters.index(rule.split)
    if rule.parts:
        array = _from_parts(rule, shards, axis, num_ranks)
        if rule.split not in rule.dims:
            (part,) = rule.keep
            inner = tuple(rule.sizes[letter] for letter in part.letters)
            array = array.reshape(array.shape[:axis] + inner + array.shape[axis + 1 :])
            letters = (*letters[:axis], *part.letters, *letters[axis + 1 :])
    else:
        copies = 1
        if rule.split in rule.sizes:
            copies = shared(rule.split, rule.sizes[rule.split], num_ranks)[1]
        array = _concatenate(_without_copies(shards, copies), axis)
    return dtype, arrange(array, letters, rule.dims)


def _open(rule: Rule, found: Found) -> tuple[str, Array]:
    if found.load is None:
        raise ForeignError("a digest where there are tensors")
    dtype, array = found.dtype, found.load()
    if rule.spec.dtype is not None and rule.spec.dtype != dtype:
        if NUM_BYTES[rule.spec.dtype] != NUM_BYTES[dtype]:
            raise ForeignError(f"{dtype} cannot hold the bits of {rule.spec.dtype}")
        dtype = rule.spec.dtype
        array = np.ascontiguousarray(array).view(DTYPES[dtype].view).reshape(array.shape)
    return dtype, array


def _own_sizes(rule: Rule, num_ranks: int) -> dict[str, int]:
    """Return the sizes of letters in one rank's tensor."""
    sizes = dict(rule.sizes)
    if rule.split is not None and rule.parts:
        sizes[rule.split] = sum(part_size(part, rule.sizes, num_ranks)[0] for part in rule.parts)
    elif rule.split in sizes:
        sizes[rule.split] = shared(rule.split, sizes[rule.split], num_ranks)[0]
    return sizes


def _whole(shards: list[Array], ranks: list[int], letters: tuple[str, ...], rule: Rule) -> Array:
    for rank, shard in zip(ranks[1:], shards[1:], strict=True):
        if not _same_bits(shards[0], shard):
            raise ForeignError(
                f"rank {rank} does not have what rank {ranks[0]} has",
                hint="if the ranks split it, write ranks = LETTER",
            )
    return arrange(shards[0], letters, rule.dims)


def _from_parts(rule: Rule, shards: list[Array], axis: int, num_ranks: int) -> Array:
    own = {part.name: part_size(part, rule.sizes, num_ranks) for part in rule.parts}
    begins: dict[str, int] = {}
    at = 0
    for part in rule.parts:
        begins[part.name] = at
        at += own[part.name][0]

    def of(part: Part) -> Array:
        size, copies = own[part.name]
        places = (slice(None),) * axis + (slice(begins[part.name], begins[part.name] + size),)
        return _concatenate(_without_copies([shard[places] for shard in shards], copies), axis)

    return _concatenate([of(part) for part in rule.keep], axis)


def _without_copies(shards: list[Array], copies: int) -> list[Array]:
    """Return one of each ``copies`` consecutive shards; ForeignError where they are not copies."""
    for rank, shard in enumerate(shards):
        first = rank - rank % copies
        if first != rank and not _same_bits(shards[first], shard):
            raise ForeignError(f"ranks {first} and {rank} have the same heads and other values")
    return shards[::copies]


def _same_bits(left: Array, right: Array) -> bool:
    """Compare by bytes: NaN equals itself, and zeros have a sign."""
    if left.shape != right.shape:
        return False
    bits = np.dtype(f"<u{left.dtype.itemsize}")
    a, b = np.ascontiguousarray(left).view(bits), np.ascontiguousarray(right).view(bits)
    return bool((a == b).all())


def _digest(matched: Matched, layout: Layout, found: Found) -> Gathered:
    """Take a digest as it is: it holds for the bytes in their order, so nothing may move."""
    rule = matched.rule
    moves = layout.letters != rule.dims or len(rule.patterns) > 1 or rule.spec.rows != "all"
    split = rule.split is not None and len(matched.sources[0]) > 1
    if moves or split or rule.parts or rule.spec.dtype is not None:
        raise ForeignError(
            "a digest holds for a whole tensor in its own order: it cannot be split, joined or"
            " turned",
            hint="dump the tensor, or a digest of the boundary as `swarepro points` has it",
        )
    others = {(other.dtype, other.shape, other.digest) for other in matched.sources[0].values()}
    if len(others) > 1:
        raise ForeignError("the ranks have other digests")
    shape = tuple(layout.extents(found.shape, rule.sizes).values())
    return Gathered(dtype=found.dtype, shape=shape, array=None, digest=found.digest)


def _at(matched: Matched, found: Found, error: SwareproError) -> ForeignError:
    return ForeignError(f"{matched.shown} ({found.shown}): {error.message}", hint=error.hint)
