"""From evidence to conclusions: a pure function of the bytes, without a GPU or a model."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from swarepro.bundle.schema import TensorRecord
from swarepro.compare.arms import changed_before, changed_inputs, judge_arms, records_of_step
from swarepro.compare.determinism import classify
from swarepro.compare.types import BoundaryClasses, Determinism
from swarepro.errors import BundleError
from swarepro.evidence.answer import Found, answer_of, conditions_of
from swarepro.evidence.chance import alike_by_chance, rates_differ_by_chance
from swarepro.evidence.conclusions import (
    Against,
    Boundary,
    Conclusions,
    Observed,
    OfCase,
    Replayed,
    Tried,
    Varies,
)
from swarepro.evidence.held import Evidence
from swarepro.evidence.schema import PlannedFactor, Trial
from swarepro.evidence.units import NOTE, OBSERVED, Unit
from swarepro.points import PointKind


def conclude(evidence: Evidence) -> Conclusions:
    """Return what the evidence says.

    Raises:
        BundleError: trials that are compared with each other cannot be.
    """
    plan = evidence.plan
    failures = {unit.folder: error for unit, error in evidence.failures().items()}
    found = Found(
        plan=plan,
        failures=failures,
        anchors=tuple(_of_case(evidence, case.name, anchor=True) for case in plan.anchors)
        if not _lacks_baseline(evidence)
        else (),
        control=None
        if plan.control is None or _lacks_baseline(evidence)
        else _of_case(evidence, plan.control.name, anchor=False),
    )
    return Conclusions(
        plan=evidence.plan_digest,
        answer=answer_of(found),
        conditions=conditions_of(found),
        stabilisers=found.stabilisers,
        order_alone=found.order_alone,
        rejected=found.on_every_anchor("REJECTED"),
        chance=found.chance,
        anchors=found.anchors,
        control=found.control,
        launches=evidence.launches,
        failures=failures,
    )


def _lacks_baseline(evidence: Evidence) -> bool:
    return any(
        not evidence.is_done(Unit(case.name, "baseline", number))
        for case in evidence.plan.cases
        for number in range(evidence.plan.processes)
    )


def _of_case(evidence: Evidence, case: str, *, anchor: bool) -> OfCase:
    baseline = evidence.baseline(case)
    observed = _observed(evidence, case) if anchor else ()
    modal = _repeat(evidence, case, baseline.modal_repeat)
    first = baseline.first_value_varying if anchor else None
    return OfCase(
        case=case,
        processes=evidence.processes(case),
        baseline=_varies(baseline, _repeats(evidence, case)),
        ownership=modal.violations[0].message if modal.violations else None,
        observed=observed,
        observers_differ=_observers_differ(observed),
        replay=None if first is None else _replayed(evidence, case, first.step),
        factors=() if first is None else _factors(evidence, case, first.step),
        against=_against(evidence.reference, modal.records) if anchor else None,
    )


def _repeat(evidence: Evidence, case: str, index: int) -> Trial:
    process = index // evidence.plan.repeats
    unit = Unit(case, "baseline", process)
    return evidence.trials[unit.file(f"repeat-{index}")]


def _repeats(evidence: Evidence, case: str) -> list[Trial]:
    units = [Unit(case, "baseline", number) for number in range(evidence.plan.processes)]
    return [trial for unit in units for trial in evidence.of(unit)]


def _observed(evidence: Evidence, case: str) -> tuple[Observed, ...]:
    arms = {
        capture: [_outputs(trial) for trial in evidence.of(Unit(case, "observer"), f"{capture}-")]
        for capture in OBSERVED
    }
    pooled = Counter(output for outputs in arms.values() for output in outputs)
    if not pooled:
        return ()
    modal = pooled.most_common(1)[0][0]
    return tuple(
        Observed(
            capture=capture,
            repeats=len(outputs),
            distinct=len(set(outputs)),
            deviating=sum(output != modal for output in outputs),
        )
        for capture, outputs in arms.items()
        if outputs
    )


def _outputs(trial: Trial) -> tuple[object, ...]:
    return trial.tokens, tuple((r.step, r.session, r.digest) for r in trial.records)


def _observers_differ(observed: Sequence[Observed]) -> float | None:
    pairs = list(combinations([(arm.deviating, arm.repeats) for arm in observed], 2))
    if not pairs:
        return None
    return min(1.0, len(pairs) * min(rates_differ_by_chance(*pair) for pair in pairs))


def _replayed(evidence: Evidence, case: str, step: int) -> Replayed | None:
    unit = Unit(case, "replay")
    note = evidence.replay_notes.get(unit.file(NOTE))
    if note is None:
        return None
    trials = evidence.of(unit)
    evidence.check_one_state(unit, state=note.state)
    evidence.check_alike(unit, across_arms=True)
    evidence.check_saved_state(case, note.state)
    _check_step(evidence, unit, step)
    changed = {part for trial in trials for part in trial.changed}
    found = _varies(_classified(trials), trials)
    return Replayed(step=step, found=found, changed=len(changed))


def _check_step(evidence: Evidence, unit: Unit, step: int) -> None:
    """Raise BundleError unless the trials of a unit are of the step that varies first."""
    for name in unit.trials(evidence.plan):
        found = evidence.trials[unit.file(name)].step
        if found != step:
            raise BundleError(
                f"{evidence.folder / unit.file(name)} is of step {found}; step {step} is the first"
                " whose values vary in the baseline"
            )


def _factors(evidence: Evidence, case: str, step: int) -> tuple[Tried, ...]:
    return tuple(
        tried
        for number in range(len(evidence.plan.factors))
        if (tried := _tried(evidence, Unit(case, "factor", number), step)) is not None
    )


def _tried(evidence: Evidence, unit: Unit, step: int) -> Tried | None:
    factor = evidence.plan.factors[unit.number]
    note = evidence.factor_notes.get(unit.file(NOTE))
    if note is None:
        return None
    if note.verdict is not None:
        return _unjudged(factor.name, note.verdict, note.reason)
    control, treatment = (evidence.of(unit, f"{arm}-") for arm in ("control", "treatment"))
    evidence.check_alike(unit, across_arms=not factor.own_steps)
    if not factor.own_steps:
        _check_step(evidence, unit, step)
    state = evidence.check_one_state(unit, "control-")
    # Arms that are compared by tokens alone have other weights, or other steps, from the start.
    same = factor.compared == "bytes"
    evidence.check_one_state(unit, "treatment-", state=state if same else None)
    changed = _changed(factor, control, treatment, step)
    if changed is not None:
        return _unjudged(factor.name, "REFUSED", changed)
    arms = _classified(control), _classified(treatment)
    verdict = judge_arms(*arms, compared=factor.compared)
    chance = None
    if verdict == "STABILISES":
        chance = alike_by_chance(
            *([_values(trial) for trial in arm] for arm in (control, treatment))
        )
    return Tried(
        factor=factor.name,
        verdict=verdict,
        reason=None,
        caution=note.caution,
        control=_varies(arms[0], control),
        treatment=_varies(arms[1], treatment),
        chance=chance,
    )


def _changed(
    factor: PlannedFactor, control: Sequence[Trial], treatment: Sequence[Trial], step: int
) -> str | None:
    """Say what the treatment changes that it must not, or return None."""
    if factor.own_steps:
        return changed_inputs(
            *([trial.inputs or {} for trial in arm] for arm in (control, treatment))
        )
    return changed_before(
        [trial.records for trial in control],
        [trial.records for trial in treatment],
        step,
        outputs=factor.compared == "bytes",
    )


def _unjudged(factor: str, verdict: str, reason: str | None) -> Tried:
    return Tried(
        factor=factor,
        verdict="REFUSED" if verdict == "REFUSED" else "NOT_APPLICABLE",
        reason=reason,
        caution=None,
        control=None,
        treatment=None,
        chance=None,
    )


def _judged(trial: Trial) -> Sequence[TensorRecord]:
    """Return the records of the step that is judged."""
    return trial.records if trial.step is None else records_of_step(trial.records, trial.step)


def _values(trial: Trial) -> tuple[tuple[int, int, str, str], ...]:
    return tuple(
        (record.stage, record.session, record.name, record.digest)
        for record in _judged(trial)
        if record.kind is PointKind.VALUE
    )


def _classified(trials: Sequence[Trial]) -> Determinism:
    return classify([_judged(trial) for trial in trials], [trial.tokens for trial in trials])


def _against(
    reference: Sequence[TensorRecord] | None, records: Sequence[TensorRecord]
) -> Against | None:
    """Compare the values that both have, by digest."""
    if reference is None:
        return None
    right = {_place(record): record.digest for record in reference}
    both = [r for r in records if r.kind is PointKind.VALUE and _place(r) in right]
    differing = [record for record in both if right[_place(record)] != record.digest]
    first = f"step {differing[0].step}, {differing[0].name}" if differing else None
    return Against(compared=len(both), differing=len(differing), first=first)


def _place(record: TensorRecord) -> tuple[object, ...]:
    return (
        *(record.step, record.stage, record.session, record.name, record.occurrence),
        *(record.row_start, record.shape, record.dtype, record.algorithm),
    )


def _varies(found: Determinism, trials: Sequence[Trial]) -> Varies:
    return Varies(
        trials=found.repeats,
        distinct=len({_values(trial) for trial in trials}),
        boundaries=len(found.points),
        varying=sum(point.distinct > 1 for point in found.points),
        earliest=_boundary(found.earliest_varying),
        first_value=_boundary(found.first_value_varying),
    )


def _boundary(point: BoundaryClasses | None) -> Boundary | None:
    if point is None:
        return None
    return Boundary(
        step=point.step,
        stage=point.stage,
        session=point.session,
        name=point.name,
        distinct=point.distinct,
        classes=point.classes,
    )
