"""The trials of one factor, each callable by itself, each from restored state."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from msgspec import structs

from swarepro import points
from swarepro.build import Execution
from swarepro.bundle.schema import TensorRecord
from swarepro.capture import MemorySink
from swarepro.compare.arms import Arm
from swarepro.errors import SwareproError
from swarepro.frozen import prove_restored
from swarepro.interventions import Factor, Means, Ran, Scope
from swarepro.options import RunOptions, no_progress
from swarepro.ownership import Violation
from swarepro.runs.once import execution
from swarepro.runs.prepare import Prepared, prepare
from swarepro.runs.repeat import flat_tokens, schedule_of
from swarepro.runtime.parts import (
    Attention,
    PartWrapper,
    Schedule,
    Scratch,
    ScratchUse,
    StageParts,
    Tap,
)
from swarepro.runtime.routes import build_route
from swarepro.runtime.routes.table import other_route
from swarepro.runtime.wrappers import ScratchWrapper, TapWrapper, on_scratch, on_tap


def evidence_options(options: RunOptions) -> RunOptions:
    """Return ``options`` such that a trial captures every boundary of every step, as a digest."""
    capture = replace(
        options.capture,
        store="digest",
        level=points.Level.OP,
        points=("*",),
        layers=(),
        steps=(),
    )
    return replace(options, capture=capture)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRun:
    """What one trial gave.

    Attributes:
        schedule: under which it ran.
        records: of all its steps, in execution order.
        step: the judged one among them: not the target step, where the factor has steps of its own.
        inputs: token ids that went into the model in all its steps, by session.
        tokens: generated until its end, all sessions in order.
        state: digests of the state that it began from, by what each is of.
        violations: of slot ownership until its end, in execution order.
    """

    schedule: str
    records: tuple[TensorRecord, ...]
    step: int
    inputs: dict[int, tuple[int, ...]]
    tokens: tuple[int, ...]
    state: dict[str, str]
    violations: tuple[Violation, ...]


class FactorTrials:
    """One factor at one step of a prepared case.

    Args:
        prepared: with `evidence_options`.
        factor: what the treatment changes.
        step: whose values are judged.
        standing_before: makes an execution that stands before the step, for trials that begin from
            there; None = the steps before it are run.

    Attributes:
        ran: what the step does without the factor.
        reason: why the factor does not apply to that, or None.

    Raises:
        SwareproError: the case cannot be run up to the step.
    """

    def __init__(
        self,
        prepared: Prepared,
        factor: Factor,
        step: int,
        *,
        standing_before: Callable[[], Execution] | None = None,
    ) -> None:
        self.factor = factor
        self._prepared = prepared
        self._step = step
        first = 0 if factor.scope is Scope.START else step
        self._bench = _Bench(prepared, first, step, standing_before if first else None)
        self.ran = self._bench.ran()
        self.reason = factor.applies(self.ran)

    def run(self, arm: Arm, index: int) -> TrialRun:
        """Run trial ``index`` (from 0) of an arm.

        Both arms of one index share their schedule, unless the factor fixes it.

        Raises:
            ValueError: a treatment that does not apply.
            SwareproError: what ends the trial.
        """
        schedule = schedule_of(self._prepared, index)
        when = f"before trial {index} of the {arm} of {self.factor.name}"
        if arm == "control":
            return self._bench.trial(schedule, _as_it_is, when)
        if self.reason is not None:
            raise ValueError(f"{self.factor.name} does not apply: {self.reason}")
        return self._treated.trial(
            self.factor.schedule or schedule, self.factor.wrap(self._means), when
        )

    @cached_property
    def _treated(self) -> "_Bench":
        """Where treatments run: with the control, unless the factor changes what is prepared."""
        prepared, step = self._prepared, self._step
        if self.factor.dtype is not None:
            case = structs.replace(prepared.case, dtype=self.factor.dtype)
            prepared = prepare(case, prepared.options, copies=0, progress=no_progress)
        if self.factor.steps is not None:
            steps = self.factor.steps(prepared.plan, step)
            prepared = replace(prepared, plan=replace(prepared.plan, steps=steps))
            step = steps[-1].index
        return self._bench if prepared is self._prepared else _Bench(prepared, 0, step)

    @cached_property
    def _means(self) -> Means:
        backend = self._prepared.model.backend
        other = other_route(self._prepared.route)

        def attention(schedule: Schedule) -> Attention:
            return build_route(other, schedule, backend).attention

        wait = torch.cuda.synchronize if backend.device.startswith("cuda") else _nothing
        return Means(other_attention=attention, synchronize=wait)


class _Bench:
    """An execution at the state that trials begin from, and the steps that a trial runs."""

    def __init__(
        self,
        prepared: Prepared,
        first: int,
        step: int,
        standing_before: Callable[[], Execution] | None = None,
    ) -> None:
        self._prepared = prepared
        self._first, self._step = first, step
        self._standing_before = standing_before
        self._begin()

    def _begin(self) -> None:
        if self._standing_before is not None:
            self._run = self._standing_before()
        else:
            schedule = schedule_of(self._prepared, 0)
            self._run = execution(self._prepared, MemorySink([]), schedule=schedule)
            self._run.run_steps(slice(0, self._first))
        self._frozen, self._state = self._run.freeze(), self._run.state()

    def ran(self) -> Ran:
        """Run once and return what the step does."""
        used: set[ScratchUse] = set()
        self._run.run_steps(slice(self._first, self._step))
        self._run.wrap(on_scratch(lambda inner: _Noted(inner, used)))
        self._run.run_steps(slice(self._step, self._step + 1))
        prepared = self._prepared
        layers = prepared.model.config.layers
        return Ran(
            routes=self._run.routes(prepared.plan.steps[self._step]),
            scratch=frozenset(used),
            has_sliding=any(
                layer.sliding_window is not None
                for stage in prepared.plan.stages
                for layer in layers[stage.layer_start : stage.layer_end]
            ),
            schedule=schedule_of(prepared, 0),
            device=prepared.model.backend.device,
            dtype=prepared.case.dtype,
            plan=prepared.plan,
            step=self._step,
            scripted=bool(prepared.case.script),
        )

    def trial(self, schedule: str, wrapper: PartWrapper, when: str) -> TrialRun:
        """Restore the state, prove it, and run."""
        self._run.thaw(self._frozen)
        state = self._run.state()
        prove_restored(self._state, state, when)
        sink = MemorySink([])
        self._run.use(schedule, sink)
        self._run.wrap(wrapper)
        ids: dict[int, list[torch.Tensor]] = {}
        self._run.wrap(on_tap(lambda inner: _InputsNoted(inner, ids)))
        try:
            self._run.run_steps(slice(self._first, self._step + 1))
        except SwareproError:
            self._begin()  # what was captured of the step that failed must not reach another trial
            raise
        outcome = self._run.outcome
        return TrialRun(
            schedule=schedule,
            records=tuple(sink.records),
            step=self._step,
            inputs={
                session: tuple(int(token) for part in parts for token in part.tolist())
                for session, parts in ids.items()
            },
            tokens=flat_tokens(outcome.tokens),
            state=state,
            violations=outcome.violations,
        )


class _Noted(ScratchWrapper):
    """Takes note of what scratch memory is for."""

    def __init__(self, inner: Scratch, used: set[ScratchUse]) -> None:
        super().__init__(inner)
        self._used = used

    def take(
        self, shape: tuple[int, ...], use: ScratchUse, dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Note the use."""
        self._used.add(use)
        return super().take(shape, use, dtype)


class _InputsNoted(TapWrapper):
    """Takes note of the token ids that go into the model."""

    def __init__(self, inner: Tap, ids: dict[int, list[torch.Tensor]]) -> None:
        super().__init__(inner)
        self._ids = ids

    def __call__(
        self,
        point: points.CapturePoint,
        tensor: torch.Tensor,
        layer: int | None = None,
        *,
        session: int,
        row_start: int | None = None,
    ) -> None:
        """Note the ids."""
        if point == points.INPUT_IDS:
            self._ids.setdefault(session, []).append(tensor.clone())
        super().__call__(point, tensor, layer, session=session, row_start=row_start)


def _as_it_is(parts: StageParts) -> StageParts:
    """Change nothing."""
    return parts


def _nothing() -> None:
    """Wait for nothing: on the CPU all work is done when a call returns."""
