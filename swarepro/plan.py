"""From a case to a run plan: which steps run, over which spans, on which stages. No torch here."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from swarepro.case import DEFAULT_CHUNK, PromptSpec, SessionSpec, split_range
from swarepro.errors import CaseError
from swarepro.images import Image, cut_image

MAX_SPANS = 2**20
"""Of one run. Laying out more takes memory and minutes; running them takes days."""


class Phase(StrEnum):
    """Prefill computes a chunk of a prompt; decode one token per request."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"  # of a step, never of a span


class StageRole(StrEnum):
    """Which ends of the model a stage owns."""

    FIRST = "first"
    MIDDLE = "middle"
    LAST = "last"
    SINGLE = "single"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec:
    """A pipeline stage: global layers ``[layer_start, layer_end)``."""

    layer_start: int
    layer_end: int
    role: StageRole

    @property
    def has_embedding(self) -> bool:
        """Whether the stage turns token ids into hidden states."""
        return self.role in (StageRole.FIRST, StageRole.SINGLE)

    @property
    def has_head(self) -> bool:
        """Whether the stage computes logits."""
        return self.role in (StageRole.LAST, StageRole.SINGLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Positions ``[start, end)`` of one session, computed as one chunk or as one decoded token.

    Attributes:
        images: half-open ranges of positions in it whose tokens see each other.
    """

    session: int
    start: int
    end: int
    phase: Phase = Phase.PREFILL
    images: tuple[Image, ...] = ()

    @property
    def rows(self) -> int:
        """Number of positions."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """A session ends; with ``keep`` its slots stay for a `Reuse`, until they are needed."""

    session: int
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """``session`` takes over positions ``[0, rows)`` of the kept session ``of``."""

    session: int
    of: int
    rows: int


Action = Finish | Reuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One forward pass over a batch of spans, at most one of each session.

    Attributes:
        index: from 0.
        spans: what it computes.
        reset: whether the runtime is reset before it (a new session begins).
        actions: done before it, after the reset.
    """

    index: int
    spans: tuple[Span, ...]
    reset: bool = False
    actions: tuple[Action, ...] = ()

    @property
    def phase(self) -> Phase:
        """The spans' phase; mixed where they differ."""
        phases = {span.phase for span in self.spans}
        return phases.pop() if len(phases) == 1 else Phase.MIXED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Everything that a run does, in order.

    Attributes:
        prompts: token ids per session.
        steps: in execution order.
        stages: in execution order; contiguous.
        capacity: positions that own a full slot at one time; no session is longer.
        swa_capacity: positions that own an SWA slot at one time.
        page_size: slots of a page of either pool.
        evict: whether SWA slots that no later query sees are freed.
        final_actions: done after the last step.
    """

    prompts: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]
    stages: tuple[StageSpec, ...]
    capacity: int
    swa_capacity: int
    page_size: int = 1
    evict: bool = False
    final_actions: tuple[Action, ...] = ()


def parse_range(text: str, *, num_layers: int) -> tuple[int, int]:
    """Parse ``"4:8"`` into ``(4, 8)``; raise CaseError unless ``start < end <= num_layers``."""
    start, end = split_range(text)
    if end > num_layers:
        raise CaseError(
            f"layer range {text!r} is not inside the model's {num_layers} layers",
            hint=f"ranges are half-open: 0:{num_layers} is all of them",
        )
    return start, end


def plan_stages(
    *, stages: str | None, layers: str | None, num_layers: int
) -> tuple[StageSpec, ...]:
    """Return the stages of a run.

    Args:
        stages: comma-separated half-open ranges that must tile ``[0, num_layers)``, or None.
        layers: one range to run alone, or None.
        num_layers: of the model.

    Raises:
        CaseError: a hole, an overlap, or a range outside the model, by name.
    """
    if stages is not None and layers is not None:
        raise CaseError("stages and layers exclude each other")
    if layers is not None:
        start, end = parse_range(layers, num_layers=num_layers)
        return (StageSpec(layer_start=start, layer_end=end, role=_role(start, end, num_layers)),)
    ranges = (
        [parse_range(part, num_layers=num_layers) for part in stages.split(",")]
        if stages is not None
        else [(0, num_layers)]
    )
    expected = 0
    for start, end in ranges:
        if start > expected:
            raise CaseError(
                f"stages {stages!r} leave a hole: no stage has layers {expected}:{start}"
            )
        if start < expected:
            raise CaseError(
                f"stages {stages!r} overlap: {start}:{end} begins before {expected},"
                " where the previous stage ends"
            )
        expected = end
    if expected != num_layers:
        raise CaseError(
            f"stages {stages!r} leave a hole: no stage has layers {expected}:{num_layers}"
        )
    return tuple(
        StageSpec(layer_start=start, layer_end=end, role=_role(start, end, num_layers))
        for start, end in ranges
    )


def _role(start: int, end: int, num_layers: int) -> StageRole:
    if start == 0:
        return StageRole.SINGLE if end == num_layers else StageRole.FIRST
    return StageRole.LAST if end == num_layers else StageRole.MIDDLE


def plan_chunks(session: SessionSpec, *, rows: int, where: str) -> tuple[int, ...]:
    """Return the chunk sizes of a prompt of ``rows`` tokens; raise CaseError unless they add up."""
    chunk = DEFAULT_CHUNK if session.chunk is None else session.chunk
    if chunk < 1 or any(size < 1 for size in session.chunks or ()):
        raise CaseError(f"{where}: a chunk has at least one row")
    if session.chunks is not None:
        if sum(session.chunks) != rows:
            listed = " + ".join(map(str, session.chunks))
            raise CaseError(
                f"{where}: chunks {listed} = {sum(session.chunks)}"
                f" do not add up to the prompt's {rows} rows"
            )
        return session.chunks
    full, rest = divmod(rows, chunk)
    return (chunk,) * full + ((rest,) if rest else ())


def resolve_prompt(prompt: PromptSpec, *, vocab_size: int, where: str) -> tuple[int, ...]:
    """Return the token ids of a prompt that is not text.

    Raises:
        CaseError: an id outside the vocabulary, or a text.
    """
    if prompt.tokens is not None:
        tokens = prompt.tokens
    elif prompt.random is not None:
        draw = random.Random(prompt.seed).random
        tokens = tuple(int(draw() * vocab_size) for _ in range(prompt.random))
    else:
        raise CaseError(f"{where}: a text prompt has to be encoded before it is planned")
    for index, token in enumerate(tokens):
        if not 0 <= token < vocab_size:
            raise CaseError(
                f"{where}: token {token} at position {index}"
                f" is outside the vocabulary of {vocab_size}"
            )
    return tokens


def plan_sessions(
    sessions: tuple[SessionSpec, ...], prompts: tuple[tuple[int, ...], ...], *, capacity: int
) -> tuple[Step, ...]:
    """Lay out the steps of all sessions, one after another.

    Args:
        sessions: as in the case.
        prompts: their token ids.
        capacity: positions per session.

    Raises:
        CaseError: an empty prompt; chunks that do not add up; a prompt with its decode steps longer
            than the capacity; more than `MAX_SPANS` spans.
    """
    lengths: list[tuple[int, ...]] = []
    for index, (session, tokens) in enumerate(zip(sessions, prompts, strict=True)):
        where = f"sessions[{index}]"
        if not tokens:
            raise CaseError(f"{where}: the prompt is empty")
        needed = len(tokens) + session.decode
        if needed > capacity:
            raise CaseError(
                f"{where}: {len(tokens)} prompt rows and {session.decode} decode steps"
                f" need {needed} positions; the capacity is {capacity}",
                hint="raise the capacity or shorten the prompt",
            )
        lengths.append(plan_chunks(session, rows=len(tokens), where=where))
    spans = sum(map(len, lengths)) + sum(session.decode for session in sessions)
    if spans > MAX_SPANS:
        raise CaseError(
            f"the sessions compute {spans} spans; a run has {MAX_SPANS} at most",
            hint="decode fewer steps, take larger chunks, or split the case",
        )
    steps: list[Step] = []
    for index, (session, chunks) in enumerate(zip(sessions, lengths, strict=True)):
        phases = [(Phase.PREFILL, size) for size in chunks]
        phases += [(Phase.DECODE, 1)] * session.decode
        start = 0
        for phase, size in phases:
            span = Span(session=index, start=start, end=start + size, phase=phase)
            reset = index > 0 and start == 0
            steps.append(Step(index=len(steps), spans=(span,), reset=reset))
            start += size
    return tuple(steps)


def with_images(
    steps: Iterable[Step], images: Sequence[Sequence[Image]], prompts: Sequence[Sequence[int]]
) -> tuple[Step, ...]:
    """Return the steps, each span with the images that are in it.

    Args:
        steps: of the plan.
        images: by session.
        prompts: by session.

    Raises:
        CaseError: an image beyond its prompt; a chunk that ends or begins inside one: its first
            tokens could not see the others, which are not computed yet; a reused prefix with other
            images: what lies there was computed from what they see.
    """
    for session, (own, prompt) in enumerate(zip(images, prompts, strict=True)):
        if own and own[-1][1] > len(prompt):
            raise CaseError(
                f"sessions[{session}]: the image {list(own[-1])} ends beyond the prompt's"
                f" {len(prompt)} tokens",
                hint="an image is inside the prompt",
            )
    steps = tuple(steps)
    for action in (action for step in steps for action in step.actions):
        if isinstance(action, Reuse):
            _check_reuse(action, images)
    return tuple(
        replace(step, spans=tuple(_with_images(span, images[span.session]) for span in step.spans))
        for step in steps
    )


def _check_reuse(reuse: Reuse, images: Sequence[Sequence[Image]]) -> None:
    own, other = (
        [list(image) for image in images[session] if image[0] < reuse.rows]
        for session in (reuse.session, reuse.of)
    )
    if own != other:
        raise CaseError(
            f"sessions[{reuse.session}] reuses {reuse.rows} rows of session {reuse.of}, and has the"
            f" images {own or 'none'} in them; session {reuse.of} has {other or 'none'}",
            hint="give both sessions the same images in what they share",
        )


def _with_images(span: Span, images: Sequence[Image]) -> Span:
    if span.phase is Phase.DECODE or not images:
        return span
    for edge in (span.start, span.end):
        cut = cut_image(edge, images)
        if cut is not None:
            raise CaseError(
                f"sessions[{span.session}]: the chunk [{span.start}, {span.end}] cuts the image"
                f" {list(cut)} at {edge}: its first tokens could not see the others",
                hint="choose chunks (or reuse a prefix) such that an image is in one of them",
            )
    own = tuple((start, end) for start, end in images if span.start <= start and end <= span.end)
    return replace(span, images=own)
