"""What runs computed, step by step and session by session. Works on manifests alone.

A step is a batch: the order of its spans says nothing about what belongs together.
"""

from swarepro.bundle.schema import Manifest, SpanEntry, StepEntry

At = tuple[int, int]
"""A step and a session in it."""
_Computed = tuple[int, int, str]
"""Start, end and phase of a span."""


def phase_of(step: StepEntry, span: SpanEntry) -> str:
    """Return the phase of one span of a step."""
    return step.phase if span.phase is None else span.phase


def several_sessions(*manifests: Manifest) -> bool:
    """Return whether one of the runs has more than one session, so that a session needs a name."""
    return any(len(manifest.prompts) > 1 for manifest in manifests)


def same_steps(baseline: Manifest, target: Manifest) -> bool:
    """Return whether both runs computed the same spans in the same steps, in any order inside."""
    return first_differing_step(baseline, target) is None


def first_differing_step(
    baseline: Manifest, target: Manifest, *, common: bool = False
) -> str | None:
    """Say at which step two runs differ first; None when they have the same steps.

    Args:
        baseline: one run.
        target: the other.
        common: look no further than the shorter one goes.
    """
    steps = baseline.steps, target.steps
    for index in range((min if common else max)(map(len, steps))):
        left, right = (run[index] if index < len(run) else None for run in steps)
        if _computed(left) != _computed(right):
            return f"step {index}: {_show(left)} against {_show(right)}"
    return None


def last_common_step(baseline: Manifest, target: Manifest) -> int:
    """Return the last step of the shorter of two runs, of which one begins as the other does."""
    return min(len(baseline.steps), len(target.steps)) - 1


def same_spans(baseline: Manifest, target: Manifest) -> bool:
    """Return whether every session that both runs have was cut into the same spans.

    Which sessions ran beside it, and in which step of the run, may differ.
    """
    left, right = _by_session(baseline), _by_session(target)
    return all(left[session] == right[session] for session in left.keys() & right.keys())


def previous_spans(manifest: Manifest) -> dict[At, tuple[At, ...]]:
    """Return for each span of a session what it goes on from; nothing where that is empty slots.

    First comes the session's own last step, or, where it begins by a reuse, the last step of the
    session that it takes over. Then, after a reuse, come the steps that wrote the rows taken over:
    a sliding layer of the last step no longer shows rows that have left its window.
    """
    previous: dict[At, tuple[At, ...]] = {}
    last: dict[int, tuple[At, ...]] = {}
    written: dict[int, list[tuple[At, int]]] = {}  # by session: the writer, its first position
    for step in manifest.steps:
        if step.reset:
            last.clear()
            written.clear()
        for action in step.actions:
            if action.kind == "reuse" and action.of in last:
                of, rows = action.of, action.rows or 0
                shared = [writer for writer in written[of] if writer[1] < rows]
                latest = last[of][0]
                others = (at for at, _ in shared if at != latest)
                last[action.session] = (latest, *others)
                written[action.session] = shared
        for span in step.spans:
            here = step.index, span.session
            if span.session in last:
                previous[here] = last[span.session]
            last[span.session] = (here,)
            written.setdefault(span.session, []).append((here, span.start))
    return previous


def _computed(step: StepEntry | None) -> tuple[object, ...] | None:
    if step is None:
        return None
    spans = (((span.session, span.start, span.end), phase_of(step, span)) for span in step.spans)
    return step.index, step.reset, *sorted(spans)


def _show(step: StepEntry | None) -> str:
    if step is None:
        return "none"
    words: list[str] = []
    last = None
    for span in step.spans:
        phase = phase_of(step, span)
        words.append(
            f"{'' if phase == last else f'{phase} of '}"
            f"session {span.session} rows {span.start}:{span.end}"
        )
        last = phase
    return ", ".join(words) + (" after a reset" if step.reset else "")


def _by_session(manifest: Manifest) -> dict[int, list[_Computed]]:
    found: dict[int, list[_Computed]] = {}
    for step in manifest.steps:
        for span in step.spans:
            found.setdefault(span.session, []).append((span.start, span.end, phase_of(step, span)))
    return found
