"""Who owns which KV slot at the end of a run, and which ownership rule was broken first."""

from collections.abc import Sequence

from swarepro.bundle.schema import (
    Manifest,
    Owner,
    OwnerRange,
    StageEntry,
    StageOwnership,
    Violation,
)
from swarepro.report.model import Grid, shortened
from swarepro.report.words import MISSING, count, listed, literal, ranges, span


def violations_in_order(
    ownership: Sequence[StageOwnership],
) -> list[tuple[StageOwnership, Violation]]:
    """Return all violations in execution order, each with the slots it is about.

    Bundles of version 1 do not state the order; there it is by step and stage.
    """
    found = [(owned, problem) for owned in ownership for problem in owned.violations]
    return sorted(found, key=lambda pair: (pair[1].order, pair[1].step, pair[0].stage))


def violations_sentence(ownership: Sequence[StageOwnership]) -> str | None:
    """Say the first broken ownership rule and how many there are; None when there is none.

    Its message names owner and user; the table of `ownership_grids` has them as columns.
    """
    broken = violations_in_order(ownership)
    if not broken:
        return None
    owned, first = broken[0]
    place = [f"step {first.step}", f"stage {owned.stage}"]
    place += [] if first.layer is None else [f"layer {first.layer}"]
    place += [] if first.group is None else [f"{first.group} group"]
    return (
        f"Ownership: {literal(first.kind)} at {', '.join(place)}: {literal(first.message)}."
        f" {count(len(broken), 'violation')} in all."
    )


def ownership_sentence(manifest: Manifest) -> str:
    """Say in one sentence or two whether the KV slots were owned and used as they should be."""
    broken = violations_sentence(manifest.ownership)
    if broken is not None:
        return broken
    if not manifest.shadow:
        return "Ownership was not checked: the ownership shadow was off."
    if not manifest.ownership:
        return "No stage has sliding layers, so no SWA slot is owned."
    if all(owned.group == "sliding" for owned in manifest.ownership):
        return "Every stored position owns an SWA slot of its own."
    return "No ownership rule was broken."


def ownership_grids(manifest: Manifest) -> tuple[Grid, ...]:
    """Return the slots of each stage and KV group, who owns them, and what was broken."""
    if not manifest.ownership:
        return ()
    return slot_grids(manifest.ownership, manifest.stages, shadow=manifest.shadow)


def slot_grids(
    ownership: Sequence[StageOwnership], stages: tuple[StageEntry, ...], *, shadow: bool
) -> tuple[Grid, ...]:
    """Return the books, the owners and the violations; ``shadow``: whether it watched."""
    return (_books(ownership, stages, shadow), _owners(ownership), *_broken(ownership))


def _books(
    ownership: Sequence[StageOwnership], stages: tuple[StageEntry, ...], shadow: bool
) -> Grid:
    rows = tuple(
        (
            str(owned.stage),
            owned.group,
            _layers(stages, owned.stage),
            f"{owned.capacity:,}",
            f"{owned.free:,}",
            f"{owned.live:,}",
            f"{owned.evictable:,}",
            f"{owned.reserved:,}",
            f"{owned.positions:,}",
            f"{len(owned.violations):,}" if shadow else MISSING,
        )
        for owned in ownership
    )
    columns = (
        ">stage", "group", "layers", ">slots", ">free", ">live", ">evictable", ">reserved",
        ">stored", ">broken",
    )  # fmt: skip
    title = f"KV slots at the end of the run{'' if shadow else ', not checked'}"
    return Grid(title=title, columns=columns, rows=rows)


def _owners(ownership: Sequence[StageOwnership]) -> Grid:
    rows: list[tuple[str, ...]] = []
    for owned in ownership:
        place = str(owned.stage), owned.group
        by_session: dict[int, list[OwnerRange]] = {}
        for owner in owned.owners:
            by_session.setdefault(owner.session, []).append(owner)
        for session, owners in sorted(by_session.items()):
            rows.append((*place, str(session), listed([_owner(each) for each in owners], most=3)))
        if not by_session:
            rows.append((*place, MISSING, "no position owns a slot"))
    columns = (">stage", "group", ">session", "position -> slot")
    return shortened("Who owns which slots", columns, rows)


def _owner(owner: OwnerRange) -> str:
    return f"{span(owner.start, owner.start + len(owner.slots))} -> {_slots(owner.slots, most=3)}"


def _slots(slots: tuple[int, ...], *, most: int) -> str:
    shared = len(slots) > 1 and len(set(slots)) == 1
    return f"{slots[0]} for all" if shared else ranges(slots, most=most)


def _layers(stages: tuple[StageEntry, ...], rank: int) -> str:
    if rank >= len(stages):
        return MISSING
    return f"{stages[rank].layer_start}-{stages[rank].layer_end - 1}"


def _broken(ownership: Sequence[StageOwnership]) -> tuple[Grid, ...]:
    """Return the violations in order.

    Where they name layers, owners or users, what they mean is a table of its own: one table for all
    of it would be too wide to be read.
    """
    broken = violations_in_order(ownership)
    if not broken:
        return ()
    title = count(len(broken), "ownership violation")
    problems = [problem for _, problem in broken]
    extra = [
        (heading, cells)
        for heading, cells in (
            (">layer", [_or_missing(problem.layer) for problem in problems]),
            ("group", [_or_missing(problem.group) for problem in problems]),
            ("owner", [_short(problem.owner) for problem in problems]),
            ("user", [_short(problem.user) for problem in problems]),
        )
        if any(cell != MISSING for cell in cells)
    ]
    people = [heading for heading, _ in extra if heading in ("owner", "user")]
    if people:
        title += f" ({' and '.join(people)}: session at position)"
    before, after = extra[: len(extra) - len(people)], extra[len(extra) - len(people) :]
    most = 2 if extra else 3
    rows = [
        (
            str(problem.step),
            str(owned.stage),
            *(cells[index] for _, cells in before),
            literal(problem.kind),
            ranges(problem.positions, most=most),
            _slots(problem.slots, most=most),
            *(cells[index] for _, cells in after),
            *([] if extra else [literal(problem.message)]),
        )
        for index, (owned, problem) in enumerate(broken)
    ]
    columns = (
        ">step",
        ">stage",
        *(heading for heading, _ in before),
        "kind",
        "positions",
        "slots",
        *(heading for heading, _ in after),
        *([] if extra else ["what it means"]),
    )
    grids = [shortened(title, columns, rows)]
    if extra:
        meaning: dict[str, str] = {}
        for problem in problems:
            meaning.setdefault(literal(problem.kind), literal(problem.message))
        grids.append(
            Grid(
                title="What the first of each kind means",
                columns=("kind", "what it means"),
                rows=tuple(meaning.items()),
            )
        )
    return tuple(grids)


def _short(person: Owner | None) -> str:
    return MISSING if person is None else f"{person.session} at {person.position}"


def _or_missing(value: object | None) -> str:
    return MISSING if value is None else str(value)
