"""A model whose weights are loaded once, for any number of cases."""

import traceback
from dataclasses import replace

from swarepro.case import CaseSpec
from swarepro.checkpoint import open_checkpoint
from swarepro.compare.determinism import classify
from swarepro.compare.types import Determinism
from swarepro.options import CaptureOptions, RunOptions, no_progress
from swarepro.runs.once import run_in_memory
from swarepro.runs.prepare import Prepared, capture_entry, plan_case, prepare

DIGESTS = CaptureOptions(store="digest")


class LoadedModel:
    """Prepares cases on one copy of the weights; loads them with the first case.

    Args:
        model: as in a case.
        device: as in `RunOptions`.
    """

    def __init__(self, model: str, device: str) -> None:
        self.model = model
        self.device = device
        self._first: Prepared | None = None
        self._error: Exception | None = None

    def prepare(
        self, case: CaseSpec, *, faults: tuple[str, ...] = (), capture: CaptureOptions = DIGESTS
    ) -> Prepared:
        """Return ``case``, ready to run on this model.

        Raises:
            ValueError: the case is of another model, or cut into other stages than the first was.
            Exception: whatever loading raised, again each time: it is tried once.
        """
        if case.model != self.model:
            raise ValueError(f"the case {case.name} is of {case.model}, not of {self.model}")
        options = RunOptions(device=self.device, faults=faults, capture=capture)
        if self._error is not None:
            raise self._error
        if self._first is None:
            try:
                self._first = prepare(case, options, copies=0, progress=no_progress)
            except Exception as error:
                traceback.clear_frames(error.__traceback__)  # they hold what was loaded so far
                self._error = error
                raise
            return self._first
        plan = plan_case(case, open_checkpoint(case.model))
        if plan.stages != self._first.plan.stages or case.dtype != self._first.case.dtype:
            raise ValueError(f"the case {case.name} has other stages or another dtype than loaded")
        return replace(
            self._first, case=case, plan=plan, options=options, capture=capture_entry(capture)
        )

    def repeat(self, case: CaseSpec, *, faults: tuple[str, ...], repeats: int) -> Determinism:
        """Return what `swarepro.api.repeat_case` would say of ``case``."""
        prepared = self.prepare(case, faults=faults)
        runs = []
        for index in range(repeats):
            hardware = prepared.schedule == "hardware"
            runs.append(
                run_in_memory(
                    prepared,
                    schedule=prepared.schedule if hardware else f"seeded:{index}",
                    on_step=lambda step: None,
                )
            )
        tokens = [tuple(t for session in out.tokens for t in session) for _, out in runs]
        return classify([records for records, _ in runs], tokens)
