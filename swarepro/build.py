"""The composition root: plan, weights, backend, faults and capture become a runner."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from swarepro.backend import Backend, torch_dtype
from swarepro.bundle.schema import CaptureEntry
from swarepro.capture import Recorder, RecordSink, Witness
from swarepro.checkpoint.config import ModelConfig
from swarepro.checkpoint.contract import Checkpoint
from swarepro.checkpoint.weights import StageWeights
from swarepro.faults import FAULTS, Fault
from swarepro.frozen import (
    FrozenState,
    LiveState,
    StateTree,
    describe,
    fill_in,
    state_digests,
)
from swarepro.kvcache import HybridKVCache
from swarepro.ownership import (
    OwnershipShadow,
    SlotAccount,
    Violation,
    ViolationLog,
    slot_accounts,
)
from swarepro.plan import RunPlan, Step
from swarepro.runtime.chain import HiddenSource, StageChain, Tokens
from swarepro.runtime.edge import StreamEdge
from swarepro.runtime.groups import stage_groups
from swarepro.runtime.layer_table import StageLayers
from swarepro.runtime.metadata import ContiguousPositions
from swarepro.runtime.parts import PartWrapper, StageParts
from swarepro.runtime.routes import ROUTE_CODES, build_route
from swarepro.runtime.schedule import ChosenSchedule, parse_schedule
from swarepro.runtime.scratch import FilledScratch
from swarepro.runtime.stage import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Loaded weights of every stage of a plan; shared by all repeats of a run."""

    config: ModelConfig
    dtype: torch.dtype
    backend: Backend
    weights: tuple[StageWeights, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """What one execution gave besides its records.

    Attributes:
        tokens: by session.
        accounts: by stage and KV group, at the end.
        violations: in execution order.
    """

    tokens: tuple[tuple[int, ...], ...]
    accounts: tuple[tuple[SlotAccount, ...], ...]
    violations: tuple[Violation, ...]


def load_model(checkpoint: Checkpoint, plan: RunPlan, *, dtype: str, backend: Backend) -> Model:
    """Load what each stage of ``plan`` needs, and nothing else. Raises CheckpointError."""
    weights = tuple(
        checkpoint.load_stage(
            stage.layer_start,
            stage.layer_end,
            embedding=stage.has_embedding,
            head=stage.has_head,
            dtype=torch_dtype(dtype),
            device=backend.torch_device,
        )
        for stage in plan.stages
    )
    return Model(
        config=checkpoint.config, dtype=torch_dtype(dtype), backend=backend, weights=weights
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How one execution is set up.

    Attributes:
        capture: what is captured.
        faults: names, wrapped in this order.
        schedule: resolved: ``program``, ``seeded:N`` or ``hardware``.
        route: resolved name of the attention implementation.
        shadow: whether the ownership shadow watches.
        fill: what memory holds that nobody wrote; None = zeros, but for what a seeded schedule
            draws.
        source: of hidden states, for a chain that does not begin at layer 0.
    """

    capture: CaptureEntry
    faults: tuple[str, ...]
    schedule: str
    route: str
    shadow: bool = True
    fill: float | None = None
    source: HiddenSource | None = None


class Execution:
    """One execution on fresh KV pools, set up and ready to run.

    Args:
        plan: what runs.
        model: its weights.
        setting: how.
        sink: takes the records.
        witness: sees every tensor when it is captured.

    Attributes:
        chain: the stages.
        log: the violations that were seen so far, also when the run ends with an error.

    Raises:
        UsageError: no such fault or schedule.
        BackendError: the process runs kernels in another mode.
    """

    def __init__(
        self,
        plan: RunPlan,
        model: Model,
        setting: Setting,
        *,
        sink: RecordSink,
        witness: Witness | None = None,
    ) -> None:
        chosen = tuple(FAULTS.get(name) for name in setting.faults)
        model.backend.activate()
        self._plan = plan
        self._schedule = ChosenSchedule(parse_schedule(setting.schedule))
        self._route = build_route(setting.route, self._schedule, model.backend)
        self._recorder = Recorder(setting.capture, sink, self._route.digester, witness=witness)
        self.log = ViolationLog()
        self._tokens: Tokens = ((),) * len(plan.prompts)
        self._shadows: list[OwnershipShadow] = []
        stages = []
        last = len(plan.stages) - 1
        for rank, (spec, weights) in enumerate(zip(plan.stages, model.weights, strict=True)):
            groups = stage_groups(model.config, spec)
            cache = HybridKVCache(
                groups,
                capacity=plan.capacity,
                swa_capacity=plan.swa_capacity,
                page_size=plan.page_size,
                dtype=model.dtype,
                device=model.backend.torch_device,
                fill=setting.fill or 0.0,
            )
            parts = StageParts(
                allocator=cache.lifecycle,
                metadata=ContiguousPositions(),
                layers=StageLayers(groups),
                attention=self._route.attention,
                store=self._route.store,
                ops=self._route.ops,
                edge=StreamEdge(),
                scratch=FilledScratch(
                    setting.fill,
                    self._schedule,
                    dtype=model.dtype,
                    device=model.backend.torch_device,
                ),
                tap=self._recorder.tap(rank, is_last=rank == last),
                schedule=self._schedule,
            )
            parts = wrap_parts(parts, chosen)
            if setting.shadow:
                parts = self._watch(rank, cache, parts)
            stages.append(
                Stage(
                    spec=spec,
                    config=model.config,
                    weights=weights,
                    cache=cache,
                    parts=parts,
                    together=self._route.together,
                    evict=plan.evict,
                    dtype=model.dtype,
                    device=model.backend.torch_device,
                )
            )
        self._stages = tuple(stages)
        self.chain = StageChain(
            self._stages,
            last_tap=parts.tap,
            device=model.backend.torch_device,
            source=setting.source,
        )

    def _watch(self, rank: int, cache: HybridKVCache, parts: StageParts) -> StageParts:
        shadow = OwnershipShadow(
            self.log, stage=rank, pools=cache.pools, row_digests=self._route.digester.rows
        )
        self._shadows.append(shadow)
        return shadow.watch(parts)

    def run(self, *, on_step: Callable[[Step], None] = lambda step: None) -> RunOutcome:
        """Run the whole plan; ``on_step`` is called with each finished step.

        Raises:
            SessionError: what the lifecycle refuses; `log` says what was seen until then.
        """
        self.run_steps(slice(None), on_step=on_step)
        self.end()
        return self.outcome

    def end(self) -> None:
        """Account for every slot once more, after the last step."""
        for shadow in self._shadows:
            shadow.end()

    def run_steps(
        self, steps: slice, *, on_step: Callable[[Step], None] = lambda step: None
    ) -> None:
        """Run some of the plan's steps, from the state that is theirs; see `run`."""
        self._tokens = self.chain.run(
            self._plan,
            before_step=self.before_step,
            after_step=lambda step: self._after_step(step, on_step),
            steps=steps,
            tokens=self._tokens,
        )

    def use(self, schedule: str, sink: RecordSink, *, capture: CaptureEntry | None = None) -> None:
        """Order what follows by a resolved ``schedule``, and give its records to ``sink``.

        ``capture`` says what they are, None = what they were.
        """
        self._schedule.current = parse_schedule(schedule)
        self._recorder.give_to(sink)
        if capture is not None:
            self._recorder.capture = capture

    def wrap(self, wrapper: PartWrapper) -> None:
        """Wrap the parts of every stage, outermost, until the next `thaw`."""
        for stage in self._stages:
            stage.parts = wrapper(stage.parts)

    def routes(self, step: Step) -> frozenset[str]:
        """Return the names of the attention implementations that ``step`` takes."""
        names = {code: name for name, code in ROUTE_CODES.items()}
        return frozenset(
            names[stage.parts.attention.route(span, layer)]
            for stage in self._stages
            for span in step.spans
            for layer in range(stage.spec.layer_start, stage.spec.layer_end)
        )

    def freeze(self) -> FrozenState:
        """Return a copy of everything that the steps so far left behind, of all stages."""
        return FrozenState.of(self._live(), self._tokens, shared=self._shared())

    def thaw(self, frozen: FrozenState) -> int:
        """Go back to ``frozen``; return how many rows of the pools had to be copied."""
        live, rows = frozen.restore(self._live(), shared=self._shared())
        self._shadows, self.log, self._tokens = list(live.shadows), live.log, frozen.tokens
        return rows

    def state(self) -> dict[str, str]:
        """Return the digests of the state as it is now, by what it is of."""
        return state_digests(self._live(), self._tokens, shared=self._shared())

    def describe(self) -> StateTree:
        """Return what everything but the pools knows now, as data; its tensors are live ones."""
        return describe(self._live().graph, shared=self._shared())

    def adopt(self, tree: StateTree, tokens: Tokens) -> None:
        """Know what another execution, set up alike, knew when it was described; pools are as ever.

        Raises:
            BundleError: the other one was not set up alike.
        """
        fill_in(tree, self._live().graph, shared=self._shared())
        self._tokens = tokens

    def pools(self) -> dict[str, torch.Tensor]:
        """Return the pools ``[L, S, 2, K, D]`` themselves, by stage and group."""
        return {
            f"{rank} {group}": pool.kv
            for rank, stage in enumerate(self._stages)
            for group, pool in stage.pools.items()
        }

    @property
    def row_algorithm(self) -> str:
        """The algorithm of the row digests that the shadow keeps."""
        return self._route.digester.algorithm

    def _live(self) -> LiveState:
        return LiveState(stages=self._stages, shadows=tuple(self._shadows), log=self.log)

    def _shared(self) -> tuple[object, ...]:
        """Return what parts refer to and is no state."""
        pools = [pool for stage in self._stages for pool in stage.pools.values()]
        taps = [stage.parts.tap for stage in self._stages]
        return (*pools, *taps, self._recorder, self._route.digester, self._schedule)

    @property
    def outcome(self) -> RunOutcome:
        """What there is so far; a run that ended with an error has no tokens."""
        return RunOutcome(
            tokens=self._tokens, accounts=self.accounts(), violations=self.log.violations
        )

    def before_step(self, step: Step) -> None:
        """What is captured and seen from now on belongs to ``step``."""
        self._recorder.begin_step(step.index)
        self.log.begin_step(step.index)

    def _after_step(self, step: Step, on_step: Callable[[Step], None]) -> None:
        self._recorder.end_step()
        on_step(step)

    def accounts(self) -> tuple[tuple[SlotAccount, ...], ...]:
        """Return each stage's slots by group, as they are now."""
        return tuple(slot_accounts(stage.parts.allocator) for stage in self._stages)


def wrap_parts(parts: StageParts, faults: tuple[Fault, ...]) -> StageParts:
    """Fold ``faults`` into ``parts``, the first one innermost."""
    for fault in faults:
        parts = fault.wrap(parts)
    return parts
