"""Which tensor of a dump goes where. Works on names and tags; opens no tensor."""

from collections.abc import Sequence
from dataclasses import dataclass

from swarepro.errors import ForeignError
from swarepro.foreign.maps import ForeignMap
from swarepro.foreign.patterns import FIELDS, MAX_DIGITS, MAX_NAME, Values
from swarepro.foreign.rules import Rule, Rules
from swarepro.foreign.tensors import Found
from swarepro.points import Scope

MOST_MATCHES = 4_000_000
"""Names times patterns that are tried at most."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """One boundary of the dump.

    Attributes:
        step: the engine's number.
        rule: number of the rule that gives it.
        layer: of the model, or -1.
        session: -1 = all sessions of the step, one after another.
        stage: that emitted it; 0 unless the names say it.
    """

    step: int
    rule: int
    layer: int
    session: int
    stage: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """The tensors of one boundary: for each source of its rule, by rank.

    Attributes:
        place: of the boundary.
        rule: that gives it.
        sources: by rank, in the order of the rule's patterns.
    """

    place: Place
    rule: Rule
    sources: tuple[dict[int, Found], ...]

    @property
    def name(self) -> str:
        """As users see the boundary."""
        return self.rule.point.concrete(None if self.place.layer < 0 else self.place.layer)

    @property
    def shown(self) -> str:
        """The name with the engine's step, for errors."""
        return f"{self.name} of step {self.place.step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """What became of every name.

    Attributes:
        matched: complete boundaries, in the order of their places.
        unmatched: tensors that no rule takes.
        skipped: how many names the map leaves out on purpose.
        ambiguous: boundaries that two tensors claim, in words.
        incomplete: boundaries that lack a source or a rank, in words.
        unused: rules that no name matches.
        num_ranks: that split a tensor.
    """

    matched: tuple[Matched, ...]
    unmatched: tuple[Found, ...]
    skipped: int
    ambiguous: tuple[str, ...]
    incomplete: tuple[str, ...]
    unused: tuple[int, ...]
    num_ranks: int


def match_names(rules: Rules, found: Sequence[Found]) -> Matching:
    """Match every name against every rule.

    Raises:
        ForeignError: more names and patterns than can be tried, or a name that contradicts its
            tags.
    """
    patterns = sum(len(rule.patterns) for rule in rules.points) + len(rules.skip)
    if len(found) * patterns > MOST_MATCHES:
        raise ForeignError(
            f"{len(found):,} tensors and {patterns} patterns: more than {MOST_MATCHES:,} to try",
            hint="import fewer steps at a time, or take patterns out of the map",
        )
    steps = _known_steps(rules.spec)
    claims: dict[Place, list[dict[int, list[Found]]]] = {}
    unmatched: list[Found] = []
    skipped = 0
    for item in found:
        taken = False
        if not item.dtype:
            unmatched.append(item)
            continue
        for number, rule in enumerate(rules.points):
            for source, place, rank in _claims(item, number, rule, rules.spec):
                if steps is not None and place.step not in steps:
                    continue
                taken = True
                of_place = claims.setdefault(place, [{} for _ in rule.patterns])
                of_place[source].setdefault(rank, []).append(item)
        if not taken:
            if any(pattern.match(item.name) is not None for pattern in rules.skip):
                skipped += 1
            else:
                unmatched.append(item)
    return _complete(rules, claims, tuple(unmatched), skipped)


def _known_steps(spec: ForeignMap) -> frozenset[int] | None:
    if spec.steps is None:
        return None
    return frozenset(
        place if row.step is None else row.step for place, row in enumerate(spec.steps)
    )


def _claims(item: Found, number: int, rule: Rule, spec: ForeignMap) -> list[tuple[int, Place, int]]:
    """Return (source, place, rank) for each pattern of ``rule`` that the name matches."""
    if len(item.name) > MAX_NAME:
        raise ForeignError(
            f"{item.shown[:80]}...: a name of {len(item.name)} characters, {MAX_NAME} is the most"
        )
    if any(item.tags.get(tag) != value for tag, value in rule.spec.where.items()):
        return []
    claims = []
    for source, pattern in enumerate(rule.patterns):
        values = pattern.match(item.name)
        if values is None:
            continue
        values = _with_tags(values, item, spec)
        layer = -1
        if rule.point.scope is Scope.LAYER:
            if "layer" not in values:
                continue
            layer = values["layer"] + rule.spec.layer_offset
            if layer < 0 or (rule.spec.layers and layer not in rule.spec.layers):
                continue
        place = Place(
            step=values.get("step", 0),
            rule=number,
            layer=layer,
            session=values.get("session", -1),
            stage=values.get("stage", 0),
        )
        rank = values.get("rank", 0)
        if rule.split is not None and spec.num_ranks is not None:
            rank %= spec.num_ranks
        claims.append((source, place, rank))
    return claims


def _with_tags(values: Values, item: Found, spec: ForeignMap) -> Values:
    merged = dict(values)
    for field in (*FIELDS, "stage"):
        text = item.tags.get(spec.fields.get(field, field))
        if text is None:
            continue
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
            raise ForeignError(f"{item.shown}: the tag of {field} is {text[:40]!r}, no number")
        if merged.setdefault(field, int(text)) != int(text):
            raise ForeignError(
                f"{item.shown}: its name says {field} {merged[field]}, and its tag {text}"
            )
    return merged


def _complete(
    rules: Rules,
    claims: dict[Place, list[dict[int, list[Found]]]],
    unmatched: tuple[Found, ...],
    skipped: int,
) -> Matching:
    ranks = {rank for sources in claims.values() for by_rank in sources for rank in by_rank}
    num_ranks = rules.spec.num_ranks or max(ranks, default=0) + 1
    ambiguous: list[str] = []
    incomplete: list[str] = []
    matched: list[Matched] = []
    givers: dict[_Boundary, list[Place]] = {}
    for place in sorted(claims):
        givers.setdefault(_boundary(rules, place), []).append(place)
    for place in sorted(claims):
        rule = rules.points[place.rule]
        sources = claims[place]
        whole = Matched(
            place=place,
            rule=rule,
            sources=tuple({rank: items[0] for rank, items in one.items()} for one in sources),
        )
        twice = next((x for one in sources for x in one.values() if len(x) > 1), None)
        if twice is not None:
            ambiguous.append(f"{whole.shown}: {twice[0].shown} and {twice[1].shown}")
        elif len(both := givers[_boundary(rules, place)]) > 1:
            if place == both[0]:
                numbers = " and ".join(str(other.rule) for other in both)
                ambiguous.append(f"{whole.shown}: points {numbers} of the map give it")
        else:
            lacking = _lacking(whole, num_ranks)
            if lacking is None:
                matched.append(whole)
            else:
                incomplete.append(f"{whole.shown}: {lacking}")
    used = {place.rule for place in claims}
    return Matching(
        matched=tuple(matched),
        unmatched=unmatched,
        skipped=skipped,
        ambiguous=tuple(ambiguous),
        incomplete=tuple(incomplete),
        unused=tuple(number for number in range(len(rules.points)) if number not in used),
        num_ranks=num_ranks,
    )


_Boundary = tuple[int, str, int, int, int]


def _boundary(rules: Rules, place: Place) -> _Boundary:
    point = rules.points[place.rule].point.name
    return place.step, point, place.layer, place.session, place.stage


def _lacking(matched: Matched, num_ranks: int) -> str | None:
    wanted = range(num_ranks)
    for pattern, by_rank in zip(matched.rule.patterns, matched.sources, strict=True):
        if not by_rank:
            return f"no tensor for {pattern.text!r}"
        if matched.rule.split is None:
            continue
        if lacking := [rank for rank in wanted if rank not in by_rank]:
            return f"rank {', '.join(map(str, lacking))} of {num_ranks} is missing"
    return None
