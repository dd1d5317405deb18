"""Interventions on the run as a whole: its cut into chunks, and the dtype of its values."""

from swarepro.interventions.base import FACTORS, Factor, Ran, Scope
from swarepro.plan import Phase, RunPlan, Span, Step


def _one_chunk(plan: RunPlan, step: int) -> tuple[Step, ...]:
    """Return one step that computes what all steps up to ``step`` do."""
    (span,) = plan.steps[step].spans
    images = tuple(
        image for before in plan.steps[: step + 1] for own in before.spans for image in own.images
    )
    whole = Span(session=span.session, start=0, end=span.end, images=images)
    return (Step(index=0, spans=(whole,)),)


def _no_head(ran: Ran) -> str | None:
    if ran.plan.stages[-1].has_head:
        return None
    return "no stage has the head: no token is chosen that could be compared"


def _is_chunked(ran: Ran) -> str | None:
    if ran.scripted or len(ran.plan.prompts) > 1:
        return "the case has a script or several sessions: its steps are no cut of one prompt"
    (span,) = ran.plan.steps[ran.step].spans
    if span.phase is not Phase.PREFILL:
        return f"step {ran.step} decodes a token: it is no chunk of the prompt"
    if span.start == 0:
        return f"no chunk comes before step {ran.step}: the prompt is in one piece up to there"
    return _no_head(ran)


def _is_narrower(ran: Ran) -> str | None:
    return "the run is in fp32 already" if ran.dtype == "fp32" else _no_head(ran)


def _other_cut(ran: Ran) -> str | None:
    return "other cuts round differently, so of the results the chosen tokens alone are compared"


def _other_dtype(ran: Ran) -> str | None:
    return "dtypes round differently, so of the results the chosen tokens alone are compared"


FACTORS.register(
    "single-shot",
    Factor(
        name="single-shot",
        summary="the prompt up to the step's end is one chunk: what a later one reads back, if so",
        part="plan",
        scope=Scope.START,
        applies=_is_chunked,
        caution=_other_cut,
        steps=_one_chunk,
    ),
)
FACTORS.register(
    "fp32",
    Factor(
        name="fp32",
        summary="weights and activations are float32: rounding, if so",
        part="model",
        scope=Scope.START,
        applies=_is_narrower,
        caution=_other_dtype,
        dtype="fp32",
    ),
)
