"""What a reader demands of a manifest: every number in its range, and no two at odds."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from swarepro.bundle.checks import MOST
from swarepro.bundle.schema import (
    ActionEntry,
    Manifest,
    OwnerRange,
    StageEntry,
    StageOwnership,
    StepEntry,
    Violation,
)
from swarepro.errors import BundleError

_MOST_BYTES = 2**63 - 1
_COUNTS = ("capacity", "free", "live", "evictable", "reserved", "positions")


def check_manifest(path: Path, manifest: Manifest) -> None:
    """Check that a manifest says nothing impossible and nothing that contradicts the rest of it.

    Args:
        path: of the manifest, for messages.
        manifest: as decoded.

    Raises:
        BundleError: with the step, stage or field and what is wrong with it.
    """
    for wrong in _wrong(manifest):
        raise BundleError(f"{path}: {wrong}", hint="it was not written by a run of swarepro")


def _wrong(manifest: Manifest) -> Iterator[str]:
    yield from _wrong_numbers(manifest)
    yield from _wrong_stages(manifest.stages, manifest.num_layers)
    yield from _wrong_steps(manifest)
    yield from _wrong_tokens(manifest)
    yield from _wrong_ownership(manifest)


def _wrong_numbers(manifest: Manifest) -> Iterator[str]:
    if not 1 <= manifest.num_layers <= MOST:
        yield f"num_layers is {manifest.num_layers}, not 1 or more"
    if not 1 <= manifest.backend.num_threads <= MOST:
        yield f"num_threads is {manifest.backend.num_threads}, not 1 or more"
    if not (manifest.backend.engine.isprintable() and 0 < len(manifest.backend.engine) <= 100):
        yield f"engine is {manifest.backend.engine!r}, no name of 1 to 100 characters"
    for what, values in (("layer", manifest.capture.layers), ("step", manifest.capture.steps)):
        for value in values:
            if not 0 <= value <= MOST:
                yield f"capture: {value} is no {what}"
    for code in manifest.backend.routes:
        if not (code.isascii() and code.isdigit()):
            yield f"routes: {code!r} is no code of a route"


def _wrong_stages(stages: tuple[StageEntry, ...], num_layers: int) -> Iterator[str]:
    if not stages:
        yield "it has no stage"
    for rank, stage in enumerate(stages):
        what = f"stage {rank}: layers {stage.layer_start}:{stage.layer_end}"
        if not 0 <= stage.layer_start < stage.layer_end <= num_layers:
            yield f"{what} are no range of the model's {num_layers}"
        elif rank and stage.layer_start != stages[rank - 1].layer_end:
            yield f"{what} do not follow on {stages[rank - 1].layer_end}"
        role = _role(stage, num_layers)
        if stage.role != role:
            yield f"{what} of {num_layers} make it {role}, not {stage.role}"
        for name in ("bytes_read", "header_bytes"):
            if not 0 <= getattr(stage, name) <= _MOST_BYTES:
                yield f"stage {rank}: {name} is {getattr(stage, name)}"


def _role(stage: StageEntry, num_layers: int) -> str:
    if stage.layer_start == 0:
        return "single" if stage.layer_end == num_layers else "first"
    return "last" if stage.layer_end == num_layers else "middle"


def _wrong_steps(manifest: Manifest) -> Iterator[str]:
    num_sessions = len(manifest.prompts)
    for place, step in enumerate(manifest.steps):
        if step.index != place:
            yield f"step {step.index} stands where step {place} is next"
        for wrong in (
            *_wrong_spans(step, num_sessions),
            *_wrong_actions(step.actions, num_sessions),
        ):
            yield f"step {step.index}: {wrong}"
    for wrong in _wrong_actions(manifest.final_actions, num_sessions):
        yield f"after the last step: {wrong}"


def _wrong_spans(step: StepEntry, num_sessions: int) -> Iterator[str]:
    if not step.spans:
        yield "it computes nothing"
    seen: set[int] = set()
    for span in step.spans:
        if not 0 <= span.session < num_sessions:
            yield f"the manifest has no session {span.session}"
        if span.session in seen:
            yield f"session {span.session} has two spans"
        seen.add(span.session)
        if not 0 <= span.start < span.end <= MOST:
            yield f"session {span.session}: {span.start} to {span.end} are no positions"
        if step.phase == "mixed" and span.phase is None:
            yield f"it is mixed, and the span of session {span.session} has no phase"
        if step.phase != "mixed" and span.phase not in (None, step.phase):
            yield f"it is a {step.phase}, and the span of session {span.session} is a {span.phase}"


def _wrong_actions(actions: tuple[ActionEntry, ...], num_sessions: int) -> Iterator[str]:
    for action in actions:
        named = (action.session,) if action.of is None else (action.session, action.of)
        for session in named:
            if not 0 <= session < num_sessions:
                yield f"{action.kind}: the manifest has no session {session}"
        if action.kind != "reuse":
            if action.of is not None or action.rows is not None:
                yield f"{action.kind} of session {action.session} takes over no rows"
        elif action.of is None or action.rows is None:
            yield f"reuse for session {action.session} names no session to take over, or no rows"
        elif action.of == action.session:
            yield f"session {action.session} cannot take over its own rows"
        elif action.rows < 1:
            yield f"reuse for session {action.session} takes over {action.rows} rows, not 1 or more"


def _wrong_tokens(manifest: Manifest) -> Iterator[str]:
    num_sessions = len(manifest.prompts)
    if len(manifest.tokens) != num_sessions:
        yield f"it has tokens of {len(manifest.tokens)} sessions, and prompts of {num_sessions}"
    for what, by_session in (("prompt", manifest.prompts), ("tokens", manifest.tokens)):
        for session, ids in enumerate(by_session):
            for token in ids:
                if not 0 <= token < MOST:
                    yield f"{what} of session {session}: {token} is no token id"


def _wrong_ownership(manifest: Manifest) -> Iterator[str]:
    seen: set[tuple[int, str]] = set()
    for owned in manifest.ownership:
        what = f"ownership of stage {owned.stage}, {owned.group}"
        if not 0 <= owned.stage < len(manifest.stages):
            yield f"{what}: the manifest has no stage {owned.stage}"
        if (owned.stage, owned.group) in seen:
            yield f"{what}: it is there twice"
        seen.add((owned.stage, owned.group))
        for wrong in (*_wrong_books(owned, manifest), *_wrong_owners(owned, manifest)):
            yield f"{what}: {wrong}"
        for violation in owned.violations:
            for wrong in _wrong_violation(violation, manifest):
                yield f"{what}: {violation.kind}: {wrong}"


def _wrong_books(owned: StageOwnership, manifest: Manifest) -> Iterator[str]:
    for name in _COUNTS:
        if not 0 <= getattr(owned, name) <= MOST:
            yield f"{name} is {getattr(owned, name)}, no number of slots"
    total = owned.free + owned.live + owned.evictable + owned.reserved
    sound = manifest.shadow and not manifest.faults and not owned.violations
    if sound and total != owned.capacity:
        yield f"its slots are {total} by state, and its capacity is {owned.capacity}"


def _wrong_owners(owned: StageOwnership, manifest: Manifest) -> Iterator[str]:
    for owner in owned.owners:
        if not 0 <= owner.session < len(manifest.prompts):
            yield f"owners: the manifest has no session {owner.session}"
        elif not 0 <= owner.start <= owner.start + len(owner.slots) <= _positions(manifest, owner):
            yield (
                f"owners: session {owner.session} has no positions"
                f" {owner.start} to {owner.start + len(owner.slots)}"
            )
        yield from _out_of_range("owners: slot", owner.slots)


def _positions(manifest: Manifest, owner: OwnerRange) -> int:
    """Return how many positions the owner's session reached."""
    return max(
        (
            span.end
            for step in manifest.steps
            for span in step.spans
            if span.session == owner.session
        ),
        default=0,
    )


def _wrong_violation(found: Violation, manifest: Manifest) -> Iterator[str]:
    if not 0 <= found.step < len(manifest.steps):
        yield f"the manifest has no step {found.step}"
    if found.layer is not None and not 0 <= found.layer < manifest.num_layers:
        yield f"the model has no layer {found.layer}"
    if not 0 <= found.order <= MOST:
        yield f"order is {found.order}, not 0 or more"
    yield from _out_of_range("position", found.positions)
    yield from _out_of_range("slot", found.slots)
    for holder in (found.owner, found.user):
        if holder is not None:
            if not 0 <= holder.session < len(manifest.prompts):
                yield f"the manifest has no session {holder.session}"
            yield from _out_of_range("position", (holder.position,))


def _out_of_range(what: str, values: Iterable[int]) -> Iterator[str]:
    """A defect may use a slot below 0; none of it is beyond what an index can be."""
    for value in values:
        if not -MOST <= value <= MOST:
            yield f"{what} {value} is out of every range"
