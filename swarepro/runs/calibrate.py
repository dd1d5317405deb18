"""Measures a noise floor: a case beside its legal variants."""

import tempfile
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from swarepro.bundle.environment import read_environment
from swarepro.bundle.read import Bundle, open_bundle
from swarepro.case import CaseSpec
from swarepro.compare.align import align_positions
from swarepro.compare.assess import measured_boundaries
from swarepro.compare.flips import find_flips
from swarepro.compare.floor import (
    FLOOR_VERSION,
    Floor,
    FloorEntry,
    FloorVariant,
    Kind,
    num_positions,
    write_floor,
)
from swarepro.errors import IncomparableError, UsageError
from swarepro.options import Progress, RunOptions
from swarepro.runs.once import run_to_bundle
from swarepro.runs.prepare import prepare
from swarepro.runs.variants import Variant, legal_variants

_Key = tuple[str, int | None]


@dataclass(slots=True)
class _Largest:
    """The largest spread seen, by kind: of a vector, and relative L2."""

    order: float = 0.0
    order_l2: float = 0.0
    precision: float = 0.0
    precision_l2: float = 0.0

    def add(self, kind: Kind, worst: float, relative_l2: float) -> None:
        if kind == "order":
            self.order, self.order_l2 = max(self.order, worst), max(self.order_l2, relative_l2)
        else:
            self.precision = max(self.precision, worst)
            self.precision_l2 = max(self.precision_l2, relative_l2)


def calibrate_case(case: CaseSpec, options: RunOptions, *, out: Path, progress: Progress) -> Floor:
    """See `swarepro.api.calibrate_case`."""
    if options.faults or options.engine != "paged":
        raise UsageError(
            "a floor is measured on a healthy run of the stage runtime",
            hint="leave out the faults and the other engine",
        )
    if case.background:
        raise UsageError(
            f"the case {case.name} runs with the fault {', '.join(case.background)} in both arms: a"
            " floor measured with a defect means nothing",
            hint="leave `background` out of a copy of the case, and calibrate that",
        )
    if options.capture.store != "tensor":
        raise UsageError(
            "a floor is measured on tensors, and digests were asked for",
            hint="capture tensors: RunOptions(capture=CaptureOptions(store='tensor'))",
        )
    if out.exists():
        raise UsageError(
            f"{out} exists already; a floor is never overwritten",
            hint="choose another --out, or remove it first",
        )
    if not out.parent.is_dir():
        raise UsageError(
            f"cannot write {out}: {out.parent} is no folder",
            hint="make it first, or choose another --out",
        )
    prepared = prepare(case, options, copies=2, needs_tensors=True, progress=progress)
    variants = legal_variants(case, options, prepared.plan, route=prepared.route)
    largest: dict[_Key, _Largest] = {}
    told: list[FloorVariant] = []
    with tempfile.TemporaryDirectory(prefix="swarepro-") as folder:
        place = Path(folder)
        run_to_bundle(
            prepared, place / "own", schedule=prepared.schedule, on_step=lambda step: None
        )
        own = open_bundle(place / "own")
        for index, variant in enumerate(variants):
            progress(f"running {variant.name}", index, len(variants))
            told.append(_add(own, variant, place / str(index), largest, progress))
    progress("running the variants", len(variants), len(variants))
    floor = Floor(
        floor_version=FLOOR_VERSION,
        model=case.model,
        dtype=case.dtype,
        device=own.manifest.backend.device,
        case=case.name,
        positions=num_positions(own.manifest),
        variants=tuple(told),
        entries=tuple(
            FloorEntry(
                point=point,
                layer=layer,
                order=found.order,
                order_l2=found.order_l2,
                precision=found.precision,
                precision_l2=found.precision_l2,
            )
            for (point, layer), found in largest.items()
        ),
        environment=read_environment(gpu=own.manifest.environment.gpu),
    )
    write_floor(out, floor)
    return floor


def _add(
    own: Bundle, variant: Variant, folder: Path, largest: dict[_Key, _Largest], progress: Progress
) -> FloorVariant:
    """Run ``variant`` and add how far it is from the case's own run; its bundle goes again."""
    prepared = prepare(
        variant.case, variant.options, copies=1, needs_tensors=True, progress=progress
    )
    run_to_bundle(
        prepared,
        folder,
        schedule=prepared.schedule,
        on_step=lambda step: None,
        wrapper=variant.wrapper,
    )
    other = open_bundle(folder)
    flips = find_flips(own, other)
    aligned = align_positions(own, other)
    compared = 0
    for boundary in measured_boundaries(
        own, other, [joined.overlaps for joined in aligned.joined], flips
    ):
        record, spread = boundary.parts[0].baseline, boundary.spread
        compared += 1
        if boundary.reason is not None:
            raise IncomparableError(f"{variant.name}: {record.name}: {boundary.reason}")
        worst = 0.0 if spread is None else spread.worst
        if not isfinite(worst):
            raise IncomparableError(
                f"{variant.name}: {record.name} of step {record.step} is not finite on one side:"
                " the case is not healthy, and its floor means nothing",
                hint="`swarepro fill-probe` and `swarepro ownership` look for the reason",
            )
        found = largest.setdefault((record.point, record.layer), _Largest())
        found.add(variant.kind, worst, 0.0 if spread is None else spread.relative_l2 or 0.0)
    for path in sorted(folder.rglob("*.safetensors")):
        path.unlink()
    return FloorVariant(
        name=variant.name, kind=variant.kind, boundaries=compared, tokens_differ=bool(flips)
    )
