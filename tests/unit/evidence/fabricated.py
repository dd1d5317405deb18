"""Evidence made by hand: folders as a diagnosis leaves them, with digests as a test wants them."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from swarepro import points
from swarepro.bundle.digest import digest_bytes
from swarepro.bundle.environment import read_environment
from swarepro.bundle.schema import TensorRecord
from swarepro.evidence import conclude, ledger, read_evidence
from swarepro.evidence.check import load_evidence
from swarepro.evidence.folder import write_manifest, write_once
from swarepro.evidence.held import state_digest
from swarepro.evidence.schema import (
    CONCLUSIONS,
    PLAN,
    REFERENCE,
    FactorNote,
    HowRun,
    Plan,
    PlannedCase,
    PlannedFactor,
    PlannedReference,
    ReplayNote,
    Trial,
)
from swarepro.evidence.units import NOTE, Unit, first_units, index_of, later_units
from swarepro.evidence.written import conclusions_data
from swarepro.points import PointKind

STORE, VALUE = "L0_kv_slice_post_write", "L0_attention_output"


def record(step, name, digest, *, index=0, kind=PointKind.VALUE, point=None):
    return TensorRecord(
        index=index,
        step=step,
        stage=0,
        name=name,
        point=point or name.replace("L0_", "L{layer}_"),
        layer=0 if name.startswith("L0_") else None,
        occurrence=0,
        kind=kind,
        dims=("T", "H", "D"),
        dtype="F32",
        shape=(3, 2, 4),
        digest=digest_bytes(digest.encode()),
        session=0,
        row_start=0,
        file=None,
    )


def records(store, value, *, ids="the ids", before="right"):
    """Two steps: one whose output is ``before``, one that stores ``store`` and gives ``value``."""
    return (
        record(0, "logits", before, point=points.LOGITS.name),
        record(1, "input_ids", ids, kind=PointKind.METADATA, point=points.INPUT_IDS.name),
        record(1, STORE, store, kind=PointKind.STATE),
        record(1, VALUE, value),
        record(1, "logits", f"from {value}", point=points.LOGITS.name),
    )


@dataclass
class Story:
    """What happens in a diagnosis; each callable takes the number of the repeat or trial.

    ``values`` and ``stores`` are by case; ``treated`` by case and factor, None where it does not
    apply. ``fixing`` factors fix the schedule, ``rounding`` ones are compared by tokens, those with
    ``own_steps`` run other steps; ``inputs`` and ``states`` are theirs, by arm.
    """

    anchors: tuple[str, ...] = ("a", "b")
    control: str | None = "quiet"
    factors: tuple[str, ...] = ("alloc-swa", "sync-before-attention")
    processes: int = 2
    repeats: int = 3
    trials: int = 6
    values: dict = field(default_factory=dict)
    observed: dict = field(default_factory=dict)
    replayed: dict = field(default_factory=dict)
    treated: dict = field(default_factory=dict)
    stores: dict = field(default_factory=dict)
    fixing: tuple = ()
    rounding: tuple = ()
    own_steps: tuple = ()
    inputs: dict = field(default_factory=dict)
    states: dict = field(default_factory=dict)
    reference: tuple | None = None
    state: str = "frozen"

    def value(self, case, index):
        if case in self.values:
            return self.values[case](index)
        return "same" if case == self.control else f"value {index}"

    def arm(self, case, factor):
        for key in ((case, factor), factor):
            if key in self.treated:
                return self.treated[key]
        if factor == "alloc-swa":
            return lambda index: "right"
        return lambda index: f"value {index}"


def planned(name):
    case = {"name": name}
    return PlannedCase(name=name, digest=digest_bytes(msgspec.json.encode(case)), case=case)


def write_plan(folder: Path, story: Story) -> Plan:
    reference = None
    if story.reference is not None:
        data = msgspec.json.encode(story.reference)
        reference = PlannedReference(source="right", sha256=ledger.sha256(data))
    plan = Plan(
        written=ledger.now(),
        code="0" * 64,
        environment=read_environment(),
        anchors=tuple(planned(name) for name in story.anchors),
        control=None if story.control is None else planned(story.control),
        how=HowRun(faults=(), device="cpu", route="eager", ownership=True),
        processes=story.processes,
        repeats=story.repeats,
        trials=story.trials,
        factors=tuple(
            PlannedFactor(
                name=name,
                summary=name,
                compared="tokens" if name in story.rounding else "bytes",
                own_steps=name in story.own_steps,
                schedule="program" if name in story.fixing else None,
            )
            for name in story.factors
        ),
        schedules=tuple(
            f"seeded:{index}" for index in range(max(story.processes * story.repeats, story.trials))
        ),
        chance=0.05,
        reference=reference,
    )
    folder.mkdir(parents=True)
    data = msgspec.json.encode(plan)
    (folder / PLAN).write_bytes(data)
    ledger.append(folder, "plan", what=PLAN, digest=ledger.sha256(data))
    if story.reference is not None:
        write_once(folder, REFERENCE, story.reference)
    return plan


def fabricate(folder: Path, story: Story | None = None, *, without=(), failed=()) -> Path:
    """Write a whole folder; units in ``without`` leave nothing, those in ``failed`` an error."""
    story = story or Story()
    plan = write_plan(folder, story)
    digest = ledger.sha256((folder / PLAN).read_bytes())

    def trial(what, value, **more):
        store = more.pop("store", f"store of {value}")
        tokens = more.pop("tokens", ())
        return Trial(
            plan=digest,
            launch=launch,
            schedule=more.pop("schedule", f"seeded:{index_of(what)}"),
            state=more.pop("state", None),
            records=more.pop("records", records(store, value)),
            tokens=tokens,
            **more,
        )

    def stored(case, index, value):
        return story.stores[case](index) if case in story.stores else f"store of {value}"

    def do(unit: Unit) -> None:
        for what in unit.trials(plan):
            index = index_of(what)
            if unit.kind == "baseline":
                value = story.value(unit.case, index)
                made = trial(what, value, store=stored(unit.case, index, value))
            elif unit.kind == "observer":
                arm = what.partition("-")[0]
                value = story.observed.get(
                    (unit.case, arm), lambda i, case=unit.case: story.value(case, i)
                )
                made = trial(what, value(index), records=records("", value(index))[-1:])
            elif unit.kind == "replay":
                value = story.replayed.get(unit.case, lambda i: f"value {i}")(index)
                store = stored(unit.case, index, value)
                made = trial(
                    what,
                    value,
                    step=1,
                    state=state_digest({"all": story.state}),
                    changed=("mapping",),
                    records=records(store, value)[1:],
                )
            else:
                factor = story.factors[unit.number]
                value = story.arm(unit.case, factor)
                if value is None:
                    break
                control = what.startswith("control")
                given = f"value {index}" if control else value(index)
                given = given if isinstance(given, tuple) else records(f"store of {given}", given)
                arm = "control" if control else "treatment"
                more = {"inputs": story.inputs.get(arm, {0: (1, 2)})}
                if not control and factor in story.fixing:
                    more["schedule"] = "program"
                state = state_digest({"all": story.states.get(arm, story.state)})
                made = trial(what, "", records=given, step=1, state=state, **more)
            write_once(folder, unit.file(what), made, launch=launch)
        if unit.kind == "replay":
            for name in unit.states():
                write_once(folder, name, {"digests": {"all": story.state}}, launch=launch)
            state = state_digest({"all": story.state})
            note = ReplayNote(plan=digest, launch=launch, state=state)
            write_once(folder, unit.file(NOTE), note, launch=launch)
        if unit.kind == "factor":
            applies = story.arm(unit.case, story.factors[unit.number]) is not None
            note = FactorNote(
                plan=digest,
                launch=launch,
                verdict=None if applies else "NOT_APPLICABLE",
                reason=None if applies else "the step takes no scratch",
                caution=None,
            )
            write_once(folder, unit.file(NOTE), note, launch=launch)

    launch = 0
    for stage in (first_units, None):
        if stage is None and load_evidence(folder).expected() == first_units(plan):
            units = ()
        else:
            units = (
                first_units(plan)
                if stage is first_units
                else later_units(plan, load_evidence(folder).reproduced())
            )
        for unit in units:
            launch += 1
            ledger.append(folder, "launch", launch=launch, what=unit.folder)
            if unit in failed:
                ledger.append(folder, "failed", launch=launch, what=unit.folder, error="it broke")
            elif unit not in without:
                do(unit)
            ledger.append(folder, "end", launch=launch)
    return seal(folder)


def seal(folder: Path) -> Path:
    """Write the conclusions that follow and the manifest."""
    (folder / CONCLUSIONS).write_bytes(conclusions_data(conclude(load_evidence(folder))))
    write_manifest(folder)
    return folder


def concluded(folder: Path, story: Story | None = None, **more):
    """Fabricate, read again with every check, and conclude."""
    return conclude(read_evidence(fabricate(folder, story, **more)))
