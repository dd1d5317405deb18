"""Runs what comes before a step, and shows whether its outputs are the same each time."""

from collections.abc import Sequence

from msgspec import structs

from swarepro import points
from swarepro.build import Execution
from swarepro.bundle.schema import TensorRecord
from swarepro.capture import MemorySink
from swarepro.options import Progress
from swarepro.runs.once import execution
from swarepro.runs.prepare import Prepared
from swarepro.runs.repeat import schedule_of
from swarepro.runs.results import StepOutput

PREFIX_RUNS = 3
"""Runs from scratch whose outputs before the step are compared: the frozen one and two more."""


def prefix_runs(step: int) -> int:
    """Return how often the steps before ``step`` are run from scratch; nothing comes before 0."""
    return PREFIX_RUNS if step else 1


def prefix_run(
    prepared: Prepared, step: int, *, progress: Progress
) -> tuple[Execution, tuple[StepOutput, ...]]:
    """Run the steps before ``step``, `PREFIX_RUNS` times from scratch.

    Returns:
        The first of the runs, under the schedule of trial 0, which stands before ``step``; and the
        outputs of the steps before it that differ between the runs.
    """
    outputs = structs.replace(prepared.capture, level=points.Level.OFF)
    executions: list[Execution] = []
    runs: list[Sequence[TensorRecord]] = []
    total = prefix_runs(step)
    for index in range(total):
        progress(f"running the steps before step {step}", index, total)
        sink, schedule = MemorySink([]), schedule_of(prepared, index)
        run = execution(prepared, sink, schedule=schedule)
        run.use(schedule, sink, capture=outputs)
        run.run_steps(slice(0, step))
        run.use(schedule, MemorySink([]), capture=prepared.capture)
        runs.append(sink.records)
        executions = executions or [run]
    return executions[0], _varying(prepared, runs)


def _varying(prepared: Prepared, runs: Sequence[Sequence[TensorRecord]]) -> tuple[StepOutput, ...]:
    last = len(prepared.plan.stages) - 1
    wanted = points.LOGITS if prepared.plan.stages[last].has_head else points.BOUNDARY_SEND_HIDDEN
    seen: dict[StepOutput, set[str]] = {}
    for records in runs:
        for record in records:
            if record.point == wanted.name and record.stage == last:
                output = StepOutput(step=record.step, session=record.session, name=record.name)
                seen.setdefault(output, set()).add(record.digest)
    return tuple(output for output, digests in seen.items() if len(digests) > 1)
