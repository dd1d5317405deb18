"""Runs a case with three fills of memory that nobody wrote: no boundary may depend on them."""

from dataclasses import replace

from msgspec import structs

from swarepro.bundle.schema import TensorRecord
from swarepro.case import CaseSpec
from swarepro.compare.fills import FillProbe, compare_fills
from swarepro.options import FILL_VALUES, Progress, RunOptions
from swarepro.runs.once import run_in_memory
from swarepro.runs.prepare import Prepared, prepare


def probe_case(case: CaseSpec, options: RunOptions, *, progress: Progress) -> FillProbe:
    """See `swarepro.api.probe_fill`."""
    return probe_prepared(prepare(case, options, copies=0, progress=progress), progress=progress)


def probe_prepared(prepared: Prepared, *, progress: Progress) -> FillProbe:
    """Run with each fill and compare every boundary's bytes."""
    runs: dict[str, tuple[TensorRecord, ...]] = {}
    for index, fill in enumerate(FILL_VALUES):
        progress(f"filling with {fill}", index, len(FILL_VALUES))
        filled = replace(
            prepared,
            capture=structs.replace(prepared.capture, store="digest"),
            options=replace(prepared.options, fill=fill),
        )
        runs[fill], _ = run_in_memory(filled, schedule=prepared.schedule, on_step=lambda step: None)
    progress("filling", len(FILL_VALUES), len(FILL_VALUES))
    return compare_fills(prepared.case.name, runs)
