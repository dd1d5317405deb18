"""Legal variants of a case: the same weights and tokens, other reductions or other precision."""

from dataclasses import dataclass, replace
from itertools import accumulate

import msgspec

from swarepro.case import CaseSpec
from swarepro.compare.floor import Kind
from swarepro.images import cut_image
from swarepro.interventions.rounding import ROUNDINGS
from swarepro.options import Engine, RunOptions
from swarepro.plan import Phase, RunPlan
from swarepro.runtime.parts import PartWrapper
from swarepro.runtime.routes.table import other_route

_MOST_STEPS = 64
"""Of a variant: chunks that would take more are left out."""
_SIZES = (7, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to compute what a case computes.

    Attributes:
        name: e.g. ``chunks of 7``.
        kind: what it changes.
        case: with other chunks, or as it is.
        options: with another route or engine, or as they are.
        wrapper: around the parts of every stage, or None.
    """

    name: str
    kind: Kind
    case: CaseSpec
    options: RunOptions
    wrapper: PartWrapper | None = None


def legal_variants(
    case: CaseSpec, options: RunOptions, plan: RunPlan, *, route: str
) -> tuple[Variant, ...]:
    """Return the variants of ``case`` that there are.

    Args:
        case: what is run.
        options: how.
        plan: its steps.
        route: that ``options`` resolve to.
    """
    own = Variant(name="own", kind="order", case=case, options=options)
    # What a stage alone receives is cut into the chunks of the run that sent it.
    cuts = _other_chunks(case, plan) if options.recv is None else []
    found = [replace(own, name=f"chunks {name}", case=changed) for name, changed in cuts]
    alternate = other_route(route)
    found.append(replace(own, name=f"route {alternate}", options=replace(options, route=alternate)))
    found += [replace(own, name=name, wrapper=wrapper) for name, wrapper in ROUNDINGS.items()]
    engine: Engine = "dense-fp64" if case.dtype == "fp32" else "dense"
    dense = RunOptions(
        engine=engine,
        device=options.device,
        capture=options.capture,
        max_bundle_bytes=options.max_bundle_bytes,
        recv=options.recv,
    )
    found.append(replace(own, name=f"engine {engine}", kind="precision", options=dense))
    return tuple(found)


def _other_chunks(case: CaseSpec, plan: RunPlan) -> list[tuple[str, CaseSpec]]:
    """Return the case with its prompts cut otherwise; a script says its own chunks."""
    if case.script:
        return []
    longest = max(map(len, plan.prompts))
    cuts: dict[tuple[tuple[int, ...], ...], str] = {}
    wanted = {"whole": longest, "halves": -(-longest // 2)}
    wanted |= {f"of {size}": size for size in _SIZES if size < longest}
    for name, size in wanted.items():
        cuts.setdefault(tuple(_cut(len(prompt), size) for prompt in plan.prompts), name)
    last = tuple((len(p) - 1, 1) if len(p) > 1 else (1,) for p in plan.prompts)
    cuts.setdefault(last, "with the last row alone")
    own = tuple(
        tuple(
            span.rows
            for step in plan.steps
            for span in step.spans
            if span.session == session and span.phase is Phase.PREFILL
        )
        for session in range(len(plan.prompts))
    )
    return [
        (name, _with_chunks(case, chunks))
        for chunks, name in cuts.items()
        if chunks != own and sum(map(len, chunks)) <= _MOST_STEPS and not _cuts_image(case, chunks)
    ]


def _cuts_image(case: CaseSpec, chunks: tuple[tuple[int, ...], ...]) -> bool:
    return any(
        cut_image(edge, session.images)
        for session, own in zip(case.sessions, chunks, strict=True)
        for edge in accumulate(own)
    )


def _cut(rows: int, size: int) -> tuple[int, ...]:
    whole, rest = divmod(rows, size)
    return (size,) * whole + ((rest,) if rest else ())


def _with_chunks(case: CaseSpec, chunks: tuple[tuple[int, ...], ...]) -> CaseSpec:
    """Return the case cut into ``chunks``; a larger chunk may need the whole SWA pool."""
    sessions = tuple(
        msgspec.structs.replace(session, chunk=None, chunks=own)
        for session, own in zip(case.sessions, chunks, strict=True)
    )
    return msgspec.structs.replace(case, sessions=sessions, swa_capacity=None)
