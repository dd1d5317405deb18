"""The defect on the hardware's own order: each anchor unpatched and patched, on two models.

That the unpatched arm varies is chance on a GPU: it is shown, not judged. What a correct store
guarantees is judged: the patched arm, chunk 0, and the cases whose output cannot vary.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from bench.gpu.models import LoadedModel
from bench.gpu.report import Clock, Row, guarded
from swarepro import api, points
from swarepro.case import CaseSpec
from swarepro.compare.types import BoundaryClasses, Determinism
from swarepro.expect import PointRef
from swarepro.options import RunOptions
from swarepro.points import PointKind

CASES = ("anchor-a", "anchor-b", "one-row", "control", "probe-c2")
REPEATS = 6
_OUTPUTS = (points.LOGITS.name, points.BOUNDARY_SEND_HIDDEN.name)

Repeat = Callable[[CaseSpec, tuple[str, ...]], Determinism]
"""Runs a case with these faults as often as it takes."""


def output(found: Determinism, step: int) -> BoundaryClasses | None:
    """Return what ``step`` computed last: logits, or the hidden state that is sent on."""
    wanted = [b for b in found.points if b.step == step and b.name in _OUTPUTS]
    return wanted[-1] if wanted else None


def last_step(found: Determinism) -> int:
    """Return the last step that captured anything; -1 for none."""
    return max((boundary.step for boundary in found.points), default=-1)


def problems(case: CaseSpec, unpatched: Determinism, patched: Determinism) -> Iterator[str]:
    """Yield what is wrong on any hardware; nothing for a case that holds."""
    arms = {"unpatched": unpatched, "patched": patched}
    for name, found in arms.items():
        if found.only_some:
            yield f"{name}: {len(found.only_some)} boundaries are missing in some repeats"
        for step in (0, last_step(unpatched)):
            if output(found, step) is None:
                yield f"{name}: no output of step {step} was captured"
    if patched.verdict != "DETERMINISTIC":
        yield f"patched: varies, earliest at {_where(patched.earliest_varying)}"
    yield from _chunk_0(arms)
    last = output(unpatched, last_step(unpatched))
    if not _may_vary(case) and last is not None and last.distinct > 1:
        yield f"unpatched: the output varies ({last.distinct} distinct), which it cannot"


def _chunk_0(arms: dict[str, Determinism]) -> Iterator[str]:
    """Chunk 0 reads nothing from a pool: all its values are the same everywhere."""
    values = {
        name: [b for b in found.points if b.step == 0 and b.kind is PointKind.VALUE]
        for name, found in arms.items()
    }
    for name, boundaries in values.items():
        varying = [b.name for b in boundaries if b.distinct > 1]
        if varying:
            yield f"{name}: chunk 0 varies, first at {varying[0]}"
    unpatched, patched = values["unpatched"], values["patched"]
    if [b.name for b in unpatched] != [b.name for b in patched]:
        yield "chunk 0: the two arms captured different boundaries"
        return
    differing = [b.name for b, c in zip(unpatched, patched, strict=True) if b.modal != c.modal]
    if differing:
        yield f"chunk 0: the arms differ, first at {differing[0]}"


def off_the_table(case: CaseSpec, unpatched: Determinism, patched: Determinism) -> Iterator[str]:
    """Yield how the unpatched arm differs from what the case expects of its fault."""
    faulty, diff = case.expect.faulty, case.expect.diff
    if faulty is None or diff is None:
        raise ValueError(f"the case {case.name} does not say what its fault must show")
    for what, expected, seen in (
        ("earliest varying", faulty.earliest_varying, unpatched.earliest_varying),
        ("first value varying", faulty.first_value_varying, unpatched.first_value_varying),
    ):
        if _where(expected) != _where(seen):
            yield f"{what}: {_where(seen)} for {_where(expected)}"
    step = last_step(unpatched)
    out, right = output(unpatched, step), output(patched, step)
    if out is None or right is None:
        yield "no output"
        return
    if (out.distinct > 1) != _may_vary(case):
        yield f"output: {out.distinct} distinct"
    if (out.modal != right.modal) != (diff.first_value is not None):
        yield f"output: {'right' if out.modal == right.modal else 'wrong'}"


def row(case: CaseSpec, model: str, unpatched: Determinism, patched: Determinism) -> Row:
    """Return the row of one case on one model."""
    wrong = list(problems(case, unpatched, patched))
    differs = list(off_the_table(case, unpatched, patched))
    step = last_step(unpatched)
    out, right = output(unpatched, step), output(patched, step)
    values_seen = [
        f"unpatched {_distinct(out)}, earliest {_where(unpatched.earliest_varying)},"
        f" first value {_where(unpatched.first_value_varying)}",
        f"patched {_distinct(right)}",
        "as the table says" if not differs else f"not as the table says ({'; '.join(differs)})",
        *wrong,
    ]
    aim = "patched deterministic; chunk 0 equal in all repeats and both arms"
    if not _may_vary(case):
        aim += "; the output does not vary"
    return Row(
        part="defect",
        what=f"{case.name} on {model}",
        seen="; ".join(values_seen),
        aim=aim,
        ok=not wrong,
        judged=True,
        figures={
            "case": case.name,
            "model": model,
            "repeats": unpatched.repeats,
            "unpatched": _arm(unpatched, out),
            "patched": _arm(patched, right),
            "output_wrong": out is None or right is None or out.modal != right.modal,
            "expected_to_vary": _may_vary(case),
            "seen_to_vary": out is not None and out.distinct > 1,
            "off_the_table": differs,
            "problems": wrong,
        },
    )


def run(
    device: str,
    big: LoadedModel,
    *,
    clock: Clock,
    say: Callable[[str], None],
    repeats: int = REPEATS,
) -> Iterator[Row]:
    """Run every case on the model that it names and on ``big``; yield a row for each.

    Args:
        device: as in `RunOptions`.
        big: cases run on it in one stage.
        clock: when it is over, the rest is skipped.
        say: told what happens.
        repeats: of each arm.
    """

    def shipped(case: CaseSpec, faults: tuple[str, ...]) -> Determinism:
        options = RunOptions(device=device, faults=faults)
        return api.repeat_case(case, repeats=repeats, options=options).determinism

    def loaded(case: CaseSpec, faults: tuple[str, ...]) -> Determinism:
        return big.repeat(case, faults=faults, repeats=repeats)

    for name in CASES:
        case = api.find_case(name)
        yield from _one(case, shipped, clock, say)
    for name in CASES:
        case = msgspec.structs.replace(api.find_case(name), model=big.model, stages=None)
        yield from _one(case, loaded, clock, say)


def _one(case: CaseSpec, repeat: Repeat, clock: Clock, say: Callable[[str], None]) -> list[Row]:
    model = case.model.removeprefix("synthetic:")

    def both() -> Iterator[Row]:
        if case.fault is None:
            raise ValueError(f"the case {case.name} has no fault")
        yield row(case, model, repeat(case, (case.fault,)), repeat(case, ()))

    what = f"{case.name} on {model}"
    return guarded("defect", what, both, clock=clock, judged=True, say=say)


def _may_vary(case: CaseSpec) -> bool:
    return case.expect.faulty is not None and bool(case.expect.faulty.outputs_vary)


def _where(boundary: BoundaryClasses | PointRef | None) -> str:
    return "none" if boundary is None else f"step {boundary.step} {boundary.name}"


def _distinct(boundary: BoundaryClasses | None) -> str:
    return "no output" if boundary is None else f"{boundary.distinct} of {sum(boundary.classes)}"


def _arm(found: Determinism, out: BoundaryClasses | None) -> dict[str, Any]:
    return {
        "verdict": found.verdict,
        "output_classes": None if out is None else list(out.classes),
        "earliest_varying": _where(found.earliest_varying),
        "first_value_varying": _where(found.first_value_varying),
        "outputs_vary": list(found.outputs_vary),
        "boundaries": len(found.points),
        "varying": sum(boundary.distinct > 1 for boundary in found.points),
    }
