"""Runs a case once, comparing each digest with a stored run's as it goes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from swarepro.bundle.captured import captured
from swarepro.bundle.read import Bundle, open_bundle
from swarepro.bundle.schema import Manifest, TensorRecord
from swarepro.bundle.write import BundleWriter
from swarepro.case import CaseSpec
from swarepro.compare.divergence import compare_bundles
from swarepro.compare.expected import Expected, check_algorithm
from swarepro.compare.inputs import Place
from swarepro.compare.reach import Reach, Spot
from swarepro.compare.settings import differences
from swarepro.compare.types import Against, Divergence
from swarepro.errors import IncomparableError, UsageError
from swarepro.options import Progress, RunOptions
from swarepro.plan import Step
from swarepro.runs.once import execution, finish, planned_manifest, saying_what_broke
from swarepro.runs.prepare import Prepared, prepare
from swarepro.runs.window import Window
from swarepro.runtime.shapes import ExpectedTensor, expected_tensors


class HeldBack:
    """Holds records back until it is known whose tensors go with them; a `RecordSink`.

    Args:
        writer: takes them.
        window: knows the first mismatch.
    """

    def __init__(self, writer: BundleWriter, window: Window) -> None:
        self._writer = writer
        self._window = window
        self._steps: list[list[TensorRecord]] = [[]]

    def add(self, record: TensorRecord, data: memoryview | None) -> None:
        """Keep the record."""
        self._steps[-1].append(record)

    def end_step(self) -> None:
        """Hand the records on, once the first mismatch is known."""
        self._steps.append([])
        if self._window.first is not None:
            self.hand_on()

    def hand_on(self) -> None:
        """Write all records so far, with the tensors of the first mismatch and of its inputs."""
        first = self._window.first
        tensors = {} if first is None else first.tensors
        *ended, self._steps = *self._steps[:-1], [[]]
        for records in ended:
            for record in records:
                self._writer.add(record, tensors.get(_place(record)))
            self._writer.end_step()


def run_against(
    case: CaseSpec,
    baseline: Path,
    directory: Path,
    *,
    go_on: bool,
    options: RunOptions,
    progress: Progress,
) -> tuple[Manifest, Against, tuple[str, ...]]:
    """See `swarepro.api.run_against`; writes the bundle ``directory``.

    Returns its manifest, what was found, and the globs of points that match nothing of this run.
    """
    if options.engine != "paged":
        raise UsageError(
            f"a run is compared as it goes on the stage runtime, not on the engine"
            f" {options.engine}",
            hint="run without --against, and compare the bundles: swarepro diff-boundaries",
        )
    stored = open_bundle(baseline)
    digests = replace(options, capture=replace(options.capture, store="digest"))
    prepared = prepare(case, digests, progress=progress)
    manifest, found = against_prepared(prepared, stored, directory, go_on=go_on, progress=progress)
    return manifest, found, prepared.unmatched


def against_prepared(
    prepared: Prepared, stored: Bundle, directory: Path, *, go_on: bool, progress: Progress
) -> tuple[Manifest, Against]:
    """Run a prepared case, which stores digests alone, against the baseline ``stored``."""
    schedule, total = prepared.schedule, len(prepared.plan.steps)
    planned = planned_manifest(prepared, schedule=schedule)
    expected = Expected(stored, planned)
    _check_shared(prepared, stored, expected)
    spots = frozenset(_spots(prepared))
    ends = frozenset(spot for spot in spots if _name(spot) in expected.names)
    window = Window(expected, Reach(planned, spots, ends), planned)

    def ended(step: Step) -> None:
        window.end_step(step.index)
        progress(f"running {prepared.case.name}", step.index + 1, total)

    with BundleWriter(directory) as writer:
        sink = HeldBack(writer, window)
        run = execution(prepared, sink, schedule=schedule, witness=window)
        check_algorithm(stored, run.row_algorithm)
        num_steps = 0
        with saying_what_broke(run, also=lambda: _parted(window)):
            for num_steps in range(1, total + 1):
                run.run_steps(slice(num_steps - 1, num_steps), on_step=ended)
                if not go_on and (window.first or num_steps == len(stored.manifest.steps)):
                    break
            run.end()
        sink.hand_on()
        manifest = finish(writer, prepared, run.outcome, schedule=schedule, num_steps=num_steps)
    written = open_bundle(directory)
    found = compare_bundles(stored, written, align="step")
    _check_agreement(window, found)
    return manifest, Against(
        divergence=replace(found, differences=_differences(stored.manifest, planned)),
        steps_run=num_steps,
        steps_planned=total,
        steps_baseline=len(stored.manifest.steps),
        stored=tuple(record for record in written.records if record.file is not None),
        in_baseline=window.first is not None and window.first.record.file is not None,
        peak_bytes=window.peak_bytes,
    )


def _differences(baseline: Manifest, planned: Manifest) -> tuple[str, ...]:
    """Return what is set otherwise; neither where a run stops nor what it stores may matter."""
    kept = structs.replace(planned.capture, store=baseline.capture.store)
    planned = structs.replace(planned, capture=kept)
    if len(baseline.steps) < len(planned.steps):
        steps = planned.steps[: len(baseline.steps)]
        planned = structs.replace(planned, steps=steps, final_actions=baseline.final_actions)
    return differences(baseline, planned)


def _check_shared(prepared: Prepared, baseline: Bundle, expected: Expected) -> None:
    """Raise IncomparableError when this run captures no boundary that the baseline has."""

    def is_shared(tensor: ExpectedTensor) -> bool:
        return expected.has(tensor.step, tensor.point.concrete(tensor.layer), tensor.session)

    if not any(map(is_shared, _captured(prepared))):
        many, capture = len(list(_captured(prepared))), baseline.manifest.capture
        raise IncomparableError(
            f"{baseline.path} has none of the {many} boundaries that this run captures: its"
            f" capture is {capture.level}, points {', '.join(capture.points)}",
            hint="capture what the baseline has, with --capture and --points",
        )


def _captured(prepared: Prepared) -> Iterator[ExpectedTensor]:
    plan, capture = prepared.plan, prepared.capture
    last = len(plan.stages) - 1
    for tensor in expected_tensors(plan, prepared.model.config, itemsize=1):
        in_step = not capture.steps or tensor.step in capture.steps
        if in_step and captured(
            capture, tensor.point, tensor.layer, last_stage=tensor.stage == last
        ):
            yield tensor


def _spots(prepared: Prepared) -> Iterator[Spot]:
    """Yield every boundary of a step that is captured; any step has them all."""
    step = None
    for tensor in _captured(prepared):
        step = tensor.step if step is None else step
        if tensor.step != step:
            return
        yield Spot(tensor.stage, tensor.point.name, tensor.layer)


def _name(spot: Spot) -> str:
    return Place(step=0, session=0, stage=spot.stage, point=spot.point, layer=spot.layer).name


def _place(record: TensorRecord) -> Place:
    return Place(
        step=record.step,
        session=record.session,
        stage=record.stage,
        point=record.point,
        layer=record.layer,
    )


def _parted(window: Window) -> str | None:
    """Say where the run had parted when an error ended it."""
    first = window.first
    if first is None:
        return None
    place = first.place
    return (
        f"the run had parted from the baseline at step {place.step}, {place.name}: without --go-on"
        " it stops there"
    )


def _check_agreement(window: Window, found: Divergence) -> None:
    """The comparison of the finished bundles has to find what was found on the way."""
    seen, first = window.first, found.first
    on_the_way = seen and (seen.record.step, seen.record.session, seen.record.name)
    afterwards = first and (first.step, first.session, first.name.partition("#")[0])
    if on_the_way != afterwards:
        raise RuntimeError(f"the first mismatch was {on_the_way} on the way, then {afterwards}")
