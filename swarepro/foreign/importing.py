"""A dump of another engine becomes a bundle: everything is looked at before anything is written."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from swarepro.bundle.schema import TensorRecord
from swarepro.bundle.write import BundleWriter
from swarepro.errors import BundleError, ForeignError
from swarepro.foreign.facts import Facts, check_facts, make_facts
from swarepro.foreign.index import Index, read_index, with_index
from swarepro.foreign.matching import Matched, Matching, match_names
from swarepro.foreign.outcome import rule_outcomes, span_outcomes, unmatched_names
from swarepro.foreign.pieces import Piece, by_step, pieces_of
from swarepro.foreign.results import ImportResult
from swarepro.foreign.rules import Rules
from swarepro.foreign.sanity import Sanity
from swarepro.foreign.sources import read_source
from swarepro.foreign.timeline import Timeline, make_timeline
from swarepro.foreign.tokens import inputs_of, outputs_of
from swarepro.options import Progress
from swarepro.points import TOKEN, PointKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """A dump whose every name was matched.

    Attributes:
        kind: of its files.
        source: where they are.
        rules: the map.
        index: of an export, else None.
        num_found: tensors in it.
        matching: of their names.
        by_step: its boundaries, by the engine's number of their step.
        timeline: None where the matching has problems.
    """

    kind: str
    source: Path
    rules: Rules
    index: Index | None
    num_found: int
    matching: Matching
    by_step: Mapping[int, tuple[Matched, ...]]
    timeline: Timeline | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Examined:
    """What was found when every tensor was looked at."""

    records: tuple[TensorRecord, ...]
    facts: Facts | None
    result: ImportResult


def open_dump(kind: str, source: Path, rules: Rules) -> Dump:
    """Read names, headers and steps of a dump; no tensor is read.

    Raises:
        ForeignError: something in it cannot be read or must not be, no name matches, or its
            tensors do not fit its steps.
    """
    names = rules.spec.names
    found = read_source(kind, source, names=names)
    index = read_index(source) if names == "index" else None
    if index is not None:
        found = with_index(found, index, source)
    matching = match_names(rules, found)
    if not (matching.matched or matching.ambiguous or matching.incomplete):
        first = ", ".join(item.name for item in found[:3])
        raise ForeignError(
            f"{source}: no name of {len(found):,} matches a pattern of the map",
            hint=f"its first names are {first}",
        )
    whole = not (matching.ambiguous or matching.incomplete)
    return Dump(
        kind=kind,
        source=source,
        rules=rules,
        index=index,
        num_found=len(found),
        matching=matching,
        by_step=by_step(matching),
        timeline=make_timeline(matching, rules.spec.steps, index) if whole else None,
    )


def check_dump(dump: Dump, *, progress: Progress) -> ImportResult:
    """Do all of an import but the writing, and say what it found. See `import_dump`."""
    return _examine(dump, progress).result


def import_dump(dump: Dump, directory: Path, *, progress: Progress) -> ImportResult:
    """Write the bundle ``directory``; nothing of it is there after a failure.

    Raises:
        ForeignError: the dump cannot be right; nothing was written.
        BundleError: the bundle cannot be written.
    """
    if directory.exists():  # before gigabytes are read; the writer looks again
        raise BundleError(
            f"{directory} exists already; a bundle is never overwritten",
            hint="choose another --out, or remove it first",
        )
    examined = _examine(dump, progress)
    problems = examined.result.problems
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise ForeignError(
            f"{dump.source} is not imported: {problems[0]}{more}",
            hint="`swarepro import ... --check` lists all of it",
        )
    timeline, facts = dump.timeline, examined.facts
    if timeline is None or facts is None:
        raise RuntimeError("a dump without problems has steps")
    with BundleWriter(directory) as writer:
        at = 0
        for place in range(len(timeline.steps)):
            for piece in _pieces(dump, timeline, place):
                if piece.record.digest != examined.records[at].digest:
                    raise ForeignError(f"{dump.source} changed while it was read")
                at += 1
                writer.add(piece.record, _bytes(piece))
            writer.end_step()
            progress(f"writing {directory.name}", place + 1, len(timeline.steps))
        writer.finish(**{name: getattr(facts, name) for name in Facts.__slots__})
    return replace(examined.result, bundle=directory)


def _examine(dump: Dump, progress: Progress) -> _Examined:
    timeline = dump.timeline
    records: list[TensorRecord] = []
    facts: Facts | None = None
    refusals: list[str] = []
    allowed: list[str] = []
    notes: tuple[str, ...] = ()
    num_bytes = 0
    if timeline is not None:
        sanity = Sanity(timeline)
        integers: list[Piece] = []
        for place in range(len(timeline.steps)):
            for piece in _pieces(dump, timeline, place):
                sanity.see(piece)
                records.append(piece.record)
                num_bytes += 0 if piece.array is None else piece.array.nbytes
                if piece.record.kind is PointKind.METADATA or piece.record.point == TOKEN.name:
                    integers.append(piece)
            progress(f"checking {dump.source.name}", place + 1, len(timeline.steps))
        spec, index = dump.rules.spec, dump.index
        inputs = inputs_of(integers, timeline)
        prompts, tokens = outputs_of(
            inputs,
            integers,
            timeline,
            prompts=index.prompts if index is not None else spec.prompts,
            tokens=index.tokens if index is not None else spec.tokens,
        )
        for refusal in sanity.refusals(inputs or prompts):
            (allowed if refusal.check in spec.allow else refusals).append(refusal.why)
        notes = sanity.notes()
        facts = make_facts(
            spec,
            index,
            timeline,
            records,
            imported=_imported(dump, timeline, allowed),
            prompts=prompts,
            tokens=tokens,
        )
        check_facts(facts, records, dump.source)
    matching = dump.matching
    result = ImportResult(
        engine=dump.rules.spec.engine if dump.index is None else dump.index.backend.engine,
        source=dump.source,
        num_found=dump.num_found,
        rules=rule_outcomes(dump.rules, matching),
        spans=() if timeline is None else span_outcomes(timeline),
        num_records=len(records),
        unmatched=tuple(item.shown for item in matching.unmatched),
        unmatched_names=unmatched_names(matching),
        skipped=matching.skipped,
        ambiguous=matching.ambiguous,
        incomplete=matching.incomplete,
        refusals=tuple(refusals),
        allowed=tuple(allowed),
        notes=notes,
        num_bytes=num_bytes,
        bundle=None,
    )
    return _Examined(records=tuple(records), facts=facts, result=result)


def _pieces(dump: Dump, timeline: Timeline, place: int) -> Iterator[Piece]:
    of_step = dump.by_step.get(timeline.numbers[place], ())
    return pieces_of(of_step, dump.matching.num_ranks, timeline, place)


def _bytes(piece: Piece) -> memoryview | None:
    return None if piece.array is None else memoryview(piece.array.reshape(-1).view("u1").data)


def _imported(dump: Dump, timeline: Timeline, allowed: list[str]) -> dict[str, object]:
    """Return what the case of the bundle says of where it comes from."""
    index = dump.index
    return {
        "from": dump.kind,
        "engine": dump.rules.spec.engine if index is None else index.backend.engine,
        "ranks": dump.matching.num_ranks,
        "steps": list(timeline.numbers),
        "unmatched": len(dump.matching.unmatched),
        "allowed": list(allowed),
    }
