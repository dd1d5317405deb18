"""Trials of one step, each from the same frozen state."""

from dataclasses import dataclass

from swarepro.build import Execution
from swarepro.bundle.schema import StageOwnership, TensorRecord
from swarepro.capture import MemorySink
from swarepro.frozen import prove_restored
from swarepro.runs.once import ownership_entries
from swarepro.runs.prepare import Prepared
from swarepro.runs.repeat import flat_tokens, schedule_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrial:
    """What one trial gave.

    Attributes:
        schedule: under which it ran.
        records: of the step alone.
        tokens: of all sessions, those before the step among them.
        ownership: at its end, by stage and KV group.
        changed: parts of the state that it changed.
        rows_restored: rows of the pools that had to be copied before it.
    """

    schedule: str
    records: tuple[TensorRecord, ...]
    tokens: tuple[int, ...]
    ownership: tuple[StageOwnership, ...]
    changed: frozenset[str]
    rows_restored: int


class StepTrials:
    """One step of an execution, any number of times.

    Args:
        prepared: what runs.
        run: stands before the step; its state is frozen now.
        step: index of the step.

    Attributes:
        before: digests of the frozen state, by what each is of.
    """

    def __init__(self, prepared: Prepared, run: Execution, step: int) -> None:
        self.prepared = prepared
        self.step = step
        self._run = run
        self._frozen = run.freeze()
        self.before = run.state()

    def run(self, trial: int) -> StepTrial:
        """Restore the state, prove it, and run the step under the schedule of ``trial``.

        Raises:
            RuntimeError: the state is not the frozen one: the tool itself is wrong.
        """
        rows = self._run.thaw(self._frozen)
        prove_restored(self.before, self._run.state(), f"before trial {trial}")
        sink = MemorySink([])
        schedule = schedule_of(self.prepared, trial)
        self._run.use(schedule, sink)
        self._run.run_steps(slice(self.step, self.step + 1))
        if self.step == len(self.prepared.plan.steps) - 1:
            self._run.end()
        outcome, after = self._run.outcome, self._run.state()
        changed = frozenset(name for name, digest in self.before.items() if after[name] != digest)
        return StepTrial(
            schedule=schedule,
            records=tuple(sink.records),
            tokens=flat_tokens(outcome.tokens),
            ownership=ownership_entries(outcome),
            changed=changed,
            rows_restored=rows,
        )

    def finish(self) -> None:
        """Restore once more, and prove it: what the last trial changed is put back."""
        self._run.thaw(self._frozen)
        prove_restored(self.before, self._run.state(), "after the last trial")
