"""Scripted runs of a very small model, and what each session gives when it runs alone.

The model has a sliding, a full and a sliding layer, and a window of 8: a few dozen positions fill
pages, leave windows and wrap pools.
"""

from dataclasses import dataclass, replace
from functools import cache

from swarepro.backend import Backend
from swarepro.build import Execution, Model, RunOutcome, Setting, load_model
from swarepro.bundle.schema import CaptureEntry, TensorRecord
from swarepro.capture import MemorySink
from swarepro.case import ReuseSpec, RowsSpec, ScriptEntry
from swarepro.checkpoint import open_checkpoint
from swarepro.checkpoint.synthetic import SyntheticCheckpoint
from swarepro.plan import Action, Reuse, RunPlan, Span, Step, plan_stages
from swarepro.points import Level
from swarepro.script import plan_script

WINDOW = 8
WINDOW_LEFT = WINDOW - 1
VOCAB = 512
NUM_LAYERS = 3
STAGES = (None, "0:1,1:3", "0:1,1:2,2:3")
"""One stage, two, and three of which the middle one has no sliding layer."""
ALL = CaptureEntry(level=Level.OP, store="digest", points=("*",), layers=(), steps=())
OUTPUT = CaptureEntry(level=Level.OFF, store="digest", points=("*",), layers=(), steps=())
SLOT_NAMES = ("full_slots", "swa_slots")

Key = tuple[int, int, str, int | None, int | None]
"""Stage, last position of the span, name, row_start, rows: one tensor of one session."""


@cache
def small_checkpoint() -> SyntheticCheckpoint:
    """Layers 4, 5 and 6 of the tiny Gemma 4, with a shorter window."""
    checkpoint = open_checkpoint("synthetic:gemma4-tiny")
    assert isinstance(checkpoint, SyntheticCheckpoint)
    layers = tuple(
        replace(layer, layer=index, sliding_window=layer.sliding_window and WINDOW)
        for index, layer in enumerate(checkpoint.config.layers[4:7])
    )
    return replace(checkpoint, config=replace(checkpoint.config, layers=layers))


@cache
def small_model(stages: str | None, dtype: str = "fp32", triton: str = "off") -> Model:
    """Return the loaded model of the small checkpoint, cut into ``stages``."""
    plan = RunPlan(
        prompts=(),
        steps=(),
        stages=plan_stages(stages=stages, layers=None, num_layers=NUM_LAYERS),
        capacity=1,
        swa_capacity=1,
    )
    backend = Backend(device="cpu", triton=triton)
    return load_model(small_checkpoint(), plan, dtype=dtype, backend=backend)


def prompt(rows: int, seed: int) -> tuple[int, ...]:
    """Return ``rows`` token ids; a longer prompt of the same seed begins with a shorter one."""
    return tuple((seed * 97 + 31 * i * i + 7 * i + seed * i) % VOCAB for i in range(rows))


def prefill(session: int, rows: int) -> RowsSpec:
    """Return a chunk of ``rows`` rows."""
    return RowsSpec(session=session, prefill=rows)


def decode(session: int) -> RowsSpec:
    """Return one decoded token."""
    return RowsSpec(session=session, decode=True)


def batch(*rows: RowsSpec, times: int = 1) -> ScriptEntry:
    """Return one forward pass over ``rows``."""
    return ScriptEntry(rows=rows, times=times)


def finish(*sessions: int, keep: bool = False) -> ScriptEntry:
    """Return the end of ``sessions``."""
    return ScriptEntry(finish=sessions, keep=keep)


def reuse(session: int, of: int, rows: int) -> ScriptEntry:
    """Return a prefix that is taken over."""
    return ScriptEntry(reuse=ReuseSpec(session=session, of=of, rows=rows))


RESET = ScriptEntry(reset=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """How large the pools are, and how they are used."""

    capacity: int = 256
    swa_capacity: int = 256
    page_size: int = 1
    evict: bool = False


def script_plan(
    script: tuple[ScriptEntry, ...],
    prompts: tuple[tuple[int, ...], ...],
    pools: Pools,
    stages: str | None = None,
) -> RunPlan:
    """Return the plan of a script."""
    steps, final = plan_script(script, prompts, capacity=pools.capacity, page_size=pools.page_size)
    return RunPlan(
        prompts=prompts,
        steps=steps,
        stages=plan_stages(stages=stages, layers=None, num_layers=NUM_LAYERS),
        capacity=pools.capacity,
        swa_capacity=pools.swa_capacity,
        page_size=pools.page_size,
        evict=pools.evict,
        final_actions=final,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run gave."""

    records: tuple[TensorRecord, ...]
    outcome: RunOutcome

    def of(self, session: int, plan: RunPlan) -> dict[Key, str]:
        """Return the digests of one session, but for those of slot numbers and unwritten rows."""
        ends = {(step.index, span.session): span.end for step in plan.steps for span in step.spans}
        return {
            (
                r.stage,
                ends[r.step, session],
                r.name,
                r.row_start,
                r.shape[0] if r.shape else None,
            ): (r.digest)
            for r in self.records
            if r.session == session and r.name not in SLOT_NAMES and "_pre_write" not in r.name
        }


def set_up(
    plan: RunPlan,
    stages: str | None,
    sink: MemorySink,
    *,
    faults: tuple[str, ...] = (),
    route: str = "eager",
    capture: CaptureEntry = ALL,
    dtype: str = "fp32",
) -> Execution:
    """Return an execution of ``plan`` on the small model."""
    model = small_model(stages, dtype, "off" if route == "eager" else "interpret")
    setting = Setting(capture=capture, faults=faults, schedule="program", route=route)
    return Execution(plan, model, setting, sink=sink)


def run_plan(plan: RunPlan, stages: str | None = None, on_step=None, **fields) -> Ran:
    """Run a plan; ``on_step`` is called with the execution and each finished step."""
    sink = MemorySink([])
    execution = set_up(plan, stages, sink, **fields)
    outcome = execution.run(
        on_step=lambda step: None if on_step is None else on_step(execution, step)
    )
    return Ran(records=tuple(sink.records), outcome=outcome)


def alone(plan: RunPlan, session: int) -> RunPlan:
    """Return the plan that runs ``session`` alone, with the same chunks, in roomy pools.

    A session that took over a prefix needs those who computed it: they run first, as they ran in
    ``plan``, and what was kept is taken over; nothing is evicted.
    """
    lineage = {session}
    steps: list[Step] = []
    for step in reversed(plan.steps):
        for action in reversed(step.actions):
            if isinstance(action, Reuse) and action.session in lineage:
                lineage.add(action.of)
    actions: list[Action] = []
    for step in plan.steps:
        for action in step.actions:
            if action.session in lineage and (isinstance(action, Reuse) or action.keep):
                actions.append(action)
        spans = tuple(span for span in step.spans if span.session in lineage)
        if spans:
            steps.append(Step(index=len(steps), spans=spans, actions=tuple(actions)))
            actions = []
    roomy = sum(span.rows for step in steps for span in step.spans)
    return replace(
        plan,
        steps=tuple(steps),
        final_actions=(),
        capacity=roomy,
        swa_capacity=roomy,
        page_size=1,
        evict=False,
    )


def cold(plan: RunPlan, session: int) -> RunPlan:
    """Return the plan that computes all positions of ``session`` itself, cut at the same edges."""
    spans = edges(plan, session)
    steps = tuple(
        Step(index=index, spans=(replace(span, session=session),))
        for index, span in enumerate(spans)
    )
    roomy = spans[-1].end
    return replace(alone(plan, session), steps=steps, capacity=roomy, swa_capacity=roomy)


def edges(plan: RunPlan, session: int) -> list[Span]:
    """Return the spans that computed a session's positions, those of its prefix among them."""
    own = [span for step in plan.steps for span in step.spans if span.session == session]
    for step in plan.steps:
        for action in step.actions:
            if isinstance(action, Reuse) and action.session == session:
                prefix = [span for span in edges(plan, action.of) if span.end <= action.rows]
                assert prefix and prefix[-1].end == action.rows
                return prefix + own
    return own


def assert_as_alone(plan: RunPlan, ran: Ran, stages: str | None = None, **fields) -> None:
    """Every session of ``plan`` gave the bytes that it gives alone, at every boundary."""
    assert differing(plan, ran, stages, **fields) == {}


def differing(plan: RunPlan, ran: Ran, stages: str | None = None, **fields) -> dict[int, Key]:
    """Return the first boundary of each session whose bytes are not those that it gives alone."""
    found = {}
    for session in range(len(plan.prompts)):
        single = alone(plan, session)
        expected = run_plan(single, stages, **fields).of(session, single)
        actual = ran.of(session, plan)
        assert expected.keys() == actual.keys()
        assert expected
        first = next((key for key, digest in expected.items() if actual[key] != digest), None)
        if first is not None:
            found[session] = first
    return found
