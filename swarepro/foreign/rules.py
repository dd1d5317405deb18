"""A map that has been checked: its patterns compiled, its layouts parsed, its letters at one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from swarepro import points
from swarepro.bundle.dtypes import NUM_BYTES
from swarepro.errors import ForeignError, SwareproError
from swarepro.foreign.layout import UNIT, Layout, parse_layout
from swarepro.foreign.maps import MOST_RULES, ForeignMap, PointRule
from swarepro.foreign.patterns import FIELDS, Pattern, compile_pattern
from swarepro.points import CapturePoint, Scope

ROW = "R"
"""In a layout: rows of which there is one for each span, where a point has its last row only."""
TOKENS = "T"
HIDDEN_STATES = frozenset(
    point.name
    for point in (
        *(points.BOUNDARY_RECV_HIDDEN, points.ATTN_RESIDUAL, points.AFTER_LAYER),
        points.BOUNDARY_SEND_HIDDEN,
    )
)
"""Points of the residual stream: a map has to say which plane it found."""
OWN_ENGINES = ("paged", "dense", "dense-fp64")
_MOST_SOURCES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One of the parts that are fused along a letter; its letters give its size over all ranks."""

    name: str
    letters: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A checked `PointRule`.

    Attributes:
        spec: as it is in the map.
        point: that it gives.
        patterns: of its tensors, in order.
        layouts: of each of them.
        dims: of the result, with `ROW` or `TOKENS` for the point's ``1``.
        split: the letter along which ranks and parts lie, or None.
        parts: in the order of the file.
        keep: of the point, in its order; empty = all.
        sizes: of letters, over all ranks.
    """

    spec: PointRule
    point: CapturePoint
    patterns: tuple[Pattern, ...]
    layouts: tuple[Layout, ...]
    dims: tuple[str, ...]
    split: str | None
    parts: tuple[Part, ...]
    keep: tuple[Part, ...]
    sizes: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A checked map."""

    spec: ForeignMap
    points: tuple[Rule, ...]
    skip: tuple[Pattern, ...]


def check_map(spec: ForeignMap, source: str) -> Rules:
    """Compile a map.

    Args:
        spec: as it was decoded.
        source: names it in errors.

    Raises:
        ForeignError: what contradicts itself, with the rule.
    """
    if not 1 <= len(spec.points) <= MOST_RULES:
        raise ForeignError(f"{source}: {len(spec.points)} points, wanted 1 to {MOST_RULES}")
    if len(spec.skip) > MOST_RULES:
        raise ForeignError(f"{source}: {len(spec.skip)} patterns in skip, at most {MOST_RULES}")
    if spec.engine in OWN_ENGINES and spec.names != "index":
        raise ForeignError(f"{source}: engine {spec.engine!r} is swarepro's own")
    for field in spec.fields:
        if field not in FIELDS:
            raise ForeignError(
                f"{source}: fields: no such field: {field[:40]!r}",
                hint=f"fields are {', '.join(FIELDS)}",
            )
    rules = []
    for number, rule in enumerate(spec.points):
        try:
            rules.append(_rule(rule, spec))
        except SwareproError as error:
            raise ForeignError(
                f"{source}: points[{number}] ({rule.point[:60]}): {error.message}", hint=error.hint
            ) from None
    try:
        skip = tuple(compile_pattern(text) for text in spec.skip)
    except ForeignError as error:
        raise ForeignError(f"{source}: skip: {error.message}", hint=error.hint) from None
    return Rules(spec=spec, points=tuple(rules), skip=skip)


def _rule(spec: PointRule, whole: ForeignMap) -> Rule:
    point = points.by_name(spec.point)
    if not 1 <= len(spec.names) <= _MOST_SOURCES:
        raise ForeignError(f"{len(spec.names)} names, wanted 1 to {_MOST_SOURCES}")
    rule = Rule(
        spec=spec,
        point=point,
        patterns=tuple(compile_pattern(text) for text in spec.names),
        layouts=_layouts(spec, point),
        dims=_dims(spec, point),
        split=None if spec.ranks == "same" else spec.ranks,
        parts=tuple(_part(part) for part in spec.parts),
        keep=(),
        sizes={**whole.sizes, **spec.sizes},
    )
    by_name = {part.name: part for part in rule.parts}
    for name in spec.keep:
        if name not in by_name:
            raise ForeignError(f"keep: no such part: {name[:40]!r}")
    kept = tuple(by_name[name] for name in spec.keep) or rule.parts
    for wrong in (*_wrong_rule(spec, point, whole), *_wrong_split(rule, kept)):
        raise ForeignError(wrong)
    return replace(rule, keep=kept)


def _dims(spec: PointRule, point: CapturePoint) -> tuple[str, ...]:
    row = TOKENS if spec.rows == "last" else ROW
    return tuple(row if letter == UNIT else letter for letter in point.dims)


def _layouts(spec: PointRule, point: CapturePoint) -> tuple[Layout, ...]:
    given = spec.layout
    if given is None:
        given = " ".join(_dims(spec, point))
    texts = (given,) * len(spec.names) if isinstance(given, str) else given
    if len(texts) != len(spec.names):
        raise ForeignError(f"{len(texts)} layouts for {len(spec.names)} names")
    return tuple(parse_layout(text) for text in texts)


def _part(entry: dict[str, str]) -> Part:
    if len(entry) != 1:
        raise ForeignError(
            f"a part with {len(entry)} names", hint="""write parts = [{ q = "H D" }, ...]"""
        )
    ((name, text),) = entry.items()
    letters = parse_layout(text).letters
    if not letters:
        raise ForeignError(f"the part {name[:40]!r} has no letter")
    return Part(name=name, letters=letters)


def _wrong_rule(spec: PointRule, point: CapturePoint, whole: ForeignMap) -> Iterator[str]:
    in_layer = point.scope is Scope.LAYER
    for text in spec.names:
        says_layer = "{layer}" in text
        if in_layer and not says_layer and whole.names == "plain":
            yield f"the pattern {text!r} has no {{layer}}"
        if says_layer and not in_layer:
            yield f"the pattern {text!r} has a {{layer}}, and the point has none"
    if (spec.layers or spec.layer_offset) and not in_layer:
        yield "layers and layer_offset go with points of a layer"
    if spec.rows == "last" and UNIT not in point.dims:
        yield "rows = 'last' goes with points of one row"
    if spec.dtype is not None and spec.dtype not in NUM_BYTES:
        yield f"unknown dtype {spec.dtype[:40]!r}; known: {' '.join(NUM_BYTES)}"
    yield from _wrong_plane(spec, point)
    yield from _wrong_join(spec, point)


def _wrong_plane(spec: PointRule, point: CapturePoint) -> Iterator[str]:
    if point.name not in HIDDEN_STATES:
        if spec.plane is not None or spec.join == "add":
            yield "plane and join = 'add' go with hidden states only"
        return
    if spec.plane is None:
        yield (
            "a hidden state needs a plane: 'residual' for the residual stream, 'sum' where the"
            " engine keeps a layer's output and the residual apart and both are named"
        )
    elif spec.plane == "delta":
        yield (
            "a delta is what a layer adds, not the residual stream: name the residual, too, and"
            " write plane = 'sum', join = 'add'"
        )
    elif (spec.plane == "sum") != (spec.join == "add"):
        yield "plane = 'sum' and join = 'add' go together"


def _wrong_join(spec: PointRule, point: CapturePoint) -> Iterator[str]:
    if (len(spec.names) > 1) != (spec.join is not None):
        yield "several names need a join ('add' or a letter), and one has none"
    elif spec.join not in (None, "add") and spec.join not in point.dims:
        yield f"join = {spec.join!r} is no dimension of {' '.join(point.dims)}"


def _wrong_split(rule: Rule, kept: tuple[Part, ...]) -> Iterator[str]:
    split = rule.split
    if rule.parts and split is None:
        yield "parts need ranks = LETTER, the letter along which they lie"
    if len({part.name for part in rule.parts}) != len(rule.parts):
        yield "a part is there twice"
    for part in rule.parts:
        for letter in part.letters:
            if letter not in rule.sizes:
                yield f"the part {part.name!r} needs a size of {letter}: [sizes], or --sizes"
    for layout in rule.layouts:
        letters = layout.letters
        if split is not None and split not in letters:
            yield f"ranks = {split!r} is no letter of the layout {layout.text!r}"
        if split in (TOKENS, ROW):
            yield "ranks cannot split rows"
        if split is not None and split not in rule.dims and len(kept) == 1:
            at = letters.index(split) if split in letters else 0
            letters = (*letters[:at], *kept[0].letters, *letters[at + 1 :])
        if sorted(letters) != sorted(rule.dims):
            yield (
                f"layout {layout.text!r} gives dimensions {' '.join(letters) or 'none'}, and the"
                f" point has {' '.join(rule.dims) or 'none'}"
            )


def part_size(part: Part, sizes: Mapping[str, int], num_ranks: int) -> tuple[int, int]:
    """Return how much of a part one rank has, and how many ranks have the same.

    Raises:
        ForeignError: the first letter of the part does not divide among the ranks.
    """
    heads = sizes[part.letters[0]]
    inner = prod(sizes[letter] for letter in part.letters[1:])
    own, copies = shared(part.letters[0], heads, num_ranks)
    return own * inner, copies


def shared(letter: str, size: int, num_ranks: int) -> tuple[int, int]:
    """Return how many of ``size`` one rank has, and how many ranks have the same ones.

    Raises:
        ForeignError: neither number divides the other.
    """
    if size % num_ranks == 0:
        return size // num_ranks, 1
    if num_ranks % size == 0:
        return 1, num_ranks // size
    raise ForeignError(f"{letter} = {size} does not divide among {num_ranks} ranks")
