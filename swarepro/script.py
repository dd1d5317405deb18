"""From a script to steps: a batch of several sessions each, and what happens between them."""

from dataclasses import dataclass, field

from swarepro.case import ReuseSpec, RowsSpec, ScriptEntry
from swarepro.errors import CaseError
from swarepro.plan import MAX_SPANS, Action, Finish, Phase, Reuse, Span, Step


@dataclass(slots=True)
class _Session:
    """Where a session stands while its script is laid out."""

    tokens: tuple[int, ...]
    frontier: int = 0
    state: str = "new"  # new, running, kept, finished


@dataclass(slots=True)
class _Layout:
    sessions: list[_Session]
    page_size: int
    capacity: int
    steps: list[Step] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    reset: bool = False


def plan_script(
    script: tuple[ScriptEntry, ...],
    prompts: tuple[tuple[int, ...], ...],
    *,
    capacity: int,
    page_size: int,
) -> tuple[tuple[Step, ...], tuple[Action, ...]]:
    """Lay out a script.

    Args:
        script: as in the case.
        prompts: token ids by session.
        capacity: positions that a session may use at most.
        page_size: of the pools.

    Returns:
        The steps, and what is done after the last one.

    Raises:
        CaseError: an entry that cannot be done at its place, by its number and by what was found.
    """
    for index, tokens in enumerate(prompts):
        if not tokens:
            raise CaseError(f"sessions[{index}]: the prompt is empty")
    spans = sum(entry.times * len(entry.rows) for entry in script)
    if spans > MAX_SPANS:
        raise CaseError(
            f"the script computes {spans} spans; a run has {MAX_SPANS} at most",
            hint="lower times, or split the case",
        )
    layout = _Layout([_Session(tokens) for tokens in prompts], page_size, capacity)
    for number, entry in enumerate(script):
        _lay_out(layout, entry, f"script[{number}]")
    if not layout.steps:
        raise CaseError("the script computes nothing", hint="add an entry with rows")
    if layout.reset:
        raise CaseError(
            "the script ends with a reset that nothing follows", hint="leave the reset out"
        )
    used = {span.session for step in layout.steps for span in step.spans}
    for index in range(len(prompts)):
        if index not in used:
            raise CaseError(
                f"the script never runs sessions[{index}]",
                hint=f"add rows of session {index}, or leave the session out",
            )
    return tuple(layout.steps), tuple(layout.actions)


def _lay_out(layout: _Layout, entry: ScriptEntry, where: str) -> None:
    given = [name for name in ("rows", "finish", "reuse", "reset") if getattr(entry, name)]
    if len(given) != 1:
        raise CaseError(
            f"{where} needs exactly one of rows, finish, reuse and reset;"
            f" found {', '.join(given) or 'none'}"
        )
    if entry.keep and not entry.finish:
        raise CaseError(
            f"{where}: keep goes with finish", hint="write { finish = [N], keep = true }"
        )
    if entry.times > 1 and not all(rows.decode for rows in entry.rows or (RowsSpec(session=0),)):
        raise CaseError(
            f"{where}: times goes with rows that all decode",
            hint="write prefill rows in an entry of their own",
        )
    if entry.rows:
        _check_times(layout, entry, where)
        for _ in range(entry.times):
            _step(layout, entry.rows, where)
    for index in entry.finish:
        session = _session(layout, index, where)
        if session.state != "running":
            raise CaseError(f"{where}: session {index} is {session.state}; it cannot be finished")
        session.state = "kept" if entry.keep else "finished"
        layout.actions.append(Finish(session=index, keep=entry.keep))
    if entry.reuse is not None:
        _reuse(layout, entry.reuse, where)
    if entry.reset:
        _reset(layout, where)


def _check_times(layout: _Layout, entry: ScriptEntry, where: str) -> None:
    """Refuse decoded tokens beyond the capacity before any of them is laid out."""
    for wanted in entry.rows if entry.times > 1 else ():
        session = _session(layout, wanted.session, where)
        if session.state == "running" and session.frontier >= len(session.tokens):
            _check_capacity(wanted.session, session.frontier + entry.times, where, layout.capacity)


def _check_capacity(session: int, end: int, where: str, capacity: int) -> None:
    if end > capacity:
        raise CaseError(
            f"{where}: session {session} reaches {end} positions; the capacity is {capacity}",
            hint="raise the capacity or shorten the session",
        )


def _reset(layout: _Layout, where: str) -> None:
    if not layout.steps or layout.actions or layout.reset:
        raise CaseError(
            f"{where}: a reset stands between two steps, before any finish or reuse between them"
        )
    layout.reset = True
    for session in layout.sessions:
        if session.state in ("running", "kept"):
            session.state = "finished"


def _step(layout: _Layout, rows: tuple[RowsSpec, ...], where: str) -> None:
    spans: list[Span] = []
    for wanted in rows:
        session = _session(layout, wanted.session, where)
        if any(span.session == wanted.session for span in spans):
            raise CaseError(f"{where}: session {wanted.session} is twice in one step")
        if session.state not in ("new", "running"):
            raise CaseError(
                f"{where}: session {wanted.session} is {session.state}; it cannot go on"
            )
        spans.append(_span(session, wanted, where, layout.capacity))
        session.state = "running"
        session.frontier = spans[-1].end
    layout.steps.append(
        Step(
            index=len(layout.steps),
            spans=tuple(spans),
            reset=layout.reset,
            actions=tuple(layout.actions),
        )
    )
    layout.reset, layout.actions = False, []


def _span(session: _Session, wanted: RowsSpec, where: str, capacity: int) -> Span:
    index, start, prompt = wanted.session, session.frontier, len(session.tokens)
    if wanted.decode == (wanted.prefill is not None):
        raise CaseError(f"{where}: session {index} needs either prefill = N or decode = true")
    if wanted.decode:
        if start < prompt:
            raise CaseError(
                f"{where}: session {index} decodes before its prompt is done:"
                f" {start} of {prompt} rows"
            )
        phase, end = Phase.DECODE, start + 1
    else:
        phase, end = Phase.PREFILL, start + (wanted.prefill or 0)
        if end > prompt:
            raise CaseError(
                f"{where}: session {index} has {prompt - start} of {prompt} prompt rows left;"
                f" prefill asks for {wanted.prefill}"
            )
    _check_capacity(index, end, where, capacity)
    return Span(session=index, start=start, end=end, phase=phase)


def _reuse(layout: _Layout, wanted: ReuseSpec, where: str) -> None:
    session = _session(layout, wanted.session, where)
    source = _session(layout, wanted.of, where)
    if session.state != "new":
        raise CaseError(f"{where}: session {wanted.session} has begun; it cannot reuse a prefix")
    if source.state != "kept":
        raise CaseError(
            f"{where}: session {wanted.of} is {source.state}, not kept; nothing can be reused",
            hint="finish it with keep = true first",
        )
    if wanted.rows % layout.page_size:
        raise CaseError(
            f"{where}: {wanted.rows} rows are no whole number of pages of {layout.page_size}"
        )
    if wanted.rows > source.frontier or wanted.rows >= len(session.tokens):
        raise CaseError(
            f"{where}: {wanted.rows} rows cannot be reused: session {wanted.of} computed"
            f" {source.frontier}, and one of session {wanted.session}'s {len(session.tokens)}"
            " prompt rows at least has to be computed"
        )
    shared = min(wanted.rows, len(source.tokens))
    if session.tokens[:shared] != source.tokens[:shared] or shared < wanted.rows:
        raise CaseError(
            f"{where}: the first {wanted.rows} tokens of the prompts of sessions {wanted.session}"
            f" and {wanted.of} are not the same"
        )
    source.state = "finished"
    session.state = "running"
    session.frontier = wanted.rows
    layout.actions.append(Reuse(session=wanted.session, of=wanted.of, rows=wanted.rows))


def _session(layout: _Layout, index: int, where: str) -> _Session:
    if index >= len(layout.sessions):
        raise CaseError(
            f"{where}: the case has no session {index}",
            hint=f"its sessions are 0 to {len(layout.sessions) - 1}",
        )
    return layout.sessions[index]
