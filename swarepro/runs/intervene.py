"""Changes one variable at a time, against an unchanged control, from the same state."""

from collections.abc import Sequence

from swarepro.case import CaseSpec
from swarepro.compare.arms import (
    Arm,
    ArmVerdict,
    Compared,
    changed_before,
    changed_inputs,
    counterbalanced,
    judge_arms,
    records_of_step,
)
from swarepro.compare.determinism import classify
from swarepro.compare.types import Determinism
from swarepro.errors import SwareproError
from swarepro.interventions import FACTORS, GRAFT, Factor
from swarepro.options import Progress, RunOptions
from swarepro.plan import Phase
from swarepro.runs.asked import check_number, check_step
from swarepro.runs.factor_trials import FactorTrials, TrialRun, evidence_options
from swarepro.runs.graft import read_graft, split_graft
from swarepro.runs.prefix import prefix_run
from swarepro.runs.prepare import Prepared, prepare
from swarepro.runs.results import FactorResult, InterveneResult, Trial


def intervene_case(
    case: CaseSpec,
    *,
    factors: tuple[str, ...],
    step: int | None,
    trials: int,
    options: RunOptions,
    progress: Progress,
) -> InterveneResult:
    """See `swarepro.api.intervene_case`."""
    check_number(trials, "trials")
    names = tuple(dict.fromkeys(factors or FACTORS.names()))
    for name in names:
        _check_name(name)
    prepared = prepare(case, evidence_options(options), copies=0, progress=progress)
    target = target_step(prepared, step)
    chosen = tuple(find_factor(name, prepared, target) for name in names)
    _, varying = prefix_run(prepared, target, progress=progress)
    results = []
    for index, factor in enumerate(() if varying else chosen):
        progress(f"changing {factor.name}", index, len(chosen))
        results.append(_judged(prepared, factor, target, trials))
    progress("changing one variable at a time", len(chosen), len(chosen))
    return InterveneResult(
        case=case.name,
        step=target,
        trials=trials,
        varying_outputs=varying,
        factors=tuple(results),
    )


def find_factor(name: str, prepared: Prepared, step: int) -> Factor:
    """Return the factor called ``name``, or the graft that it asks for.

    Raises:
        UsageError: no such factor, or a graft that cannot be made; see `read_graft`.
        BundleError: the bundle of a graft is refused.
    """
    return read_graft(name, prepared, step) if name.startswith(GRAFT) else FACTORS.get(name)


def _check_name(name: str) -> None:
    """Raise UsageError for a name that can be seen to be wrong before anything is loaded."""
    if name.startswith(GRAFT):
        split_graft(name)
    else:
        FACTORS.get(name)


def target_step(prepared: Prepared, step: int | None) -> int:
    """Return the target step: as asked, else the last one that computes a chunk.

    Raises:
        UsageError: the case has no such step.
    """
    steps = prepared.plan.steps
    if step is None:
        return max(
            each.index for each in steps if any(span.phase is Phase.PREFILL for span in each.spans)
        )
    check_step(prepared, step)
    return step


def _judged(prepared: Prepared, factor: Factor, step: int, trials: int) -> FactorResult:
    """Run both arms in the order C T T C ... and say what the factor does."""
    bench = FactorTrials(prepared, factor, step)
    if bench.reason is not None:
        return _without(factor, "NOT_APPLICABLE", bench.reason)
    seen: dict[Arm, list[TrialRun]] = {"control": [], "treatment": []}
    order: list[Trial] = []
    for place, (arm, index) in enumerate(counterbalanced(trials)):
        try:
            ran = bench.run(arm, index)
        except SwareproError as error:
            if arm == "control":
                raise
            return _without(factor, "REFUSED", f"it ends with an error: {error.message}", order)
        seen[arm].append(ran)
        order.append(Trial(order=place, arm=arm, schedule=ran.schedule))
    changed = _changed(factor, seen["control"], seen["treatment"], step)
    if changed is not None:
        return _without(factor, "REFUSED", changed, order)
    control, treatment = (_classified(runs) for runs in seen.values())
    compared: Compared = "tokens" if factor.rounds_differently else "bytes"
    return FactorResult(
        factor=factor.name,
        summary=factor.summary,
        scope=str(factor.scope),
        verdict=judge_arms(control, treatment, compared=compared),
        reason=None,
        caution=factor.caution(bench.ran),
        compared=compared,
        control=control,
        treatment=treatment,
        trials=tuple(order),
    )


def _changed(
    factor: Factor, control: Sequence[TrialRun], treatment: Sequence[TrialRun], step: int
) -> str | None:
    """Say what the treatment changes that it must not, or return None."""
    if factor.steps is None:
        return changed_before(
            [ran.records for ran in control],
            [ran.records for ran in treatment],
            step,
            outputs=factor.dtype is None,
        )
    return changed_inputs([ran.inputs for ran in control], [ran.inputs for ran in treatment])


def _classified(runs: Sequence[TrialRun]) -> Determinism:
    return classify(
        [records_of_step(ran.records, ran.step) for ran in runs], [ran.tokens for ran in runs]
    )


def _without(
    factor: Factor, verdict: ArmVerdict, reason: str, trials: Sequence[Trial] = ()
) -> FactorResult:
    return FactorResult(
        factor=factor.name,
        summary=factor.summary,
        scope=str(factor.scope),
        verdict=verdict,
        reason=reason,
        caution=None,
        compared="bytes",
        control=None,
        treatment=None,
        trials=tuple(trials),
    )
