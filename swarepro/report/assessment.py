"""What a comparison against a noise floor says: is it wrong, is it noise, is it a tie."""

from collections.abc import Sequence
from math import isfinite

from swarepro.compare.assessment import Assessment, Drift, Flip, Measured, VerdictClass
from swarepro.report.growth import growth_grids
from swarepro.report.jsonout import Document
from swarepro.report.model import Report, Tone, shortened
from swarepro.report.settings import settings_said
from swarepro.report.words import MISSING, count, figure, listed, literal, percent, ranges

_TONES = {
    VerdictClass.WRONG: Tone.BAD,
    VerdictClass.INCOMPARABLE: Tone.UNSURE,
}


def assessment_report(found: Assessment) -> Report:
    """Return the answer, what lies above the floor, the growth, and the tokens that flipped."""
    grids = []
    if found.above:
        grids.append(
            shortened(
                "Tokens that were chosen otherwise"
                if found.verdict is VerdictClass.TIE
                else f"{count(len(found.above), 'boundary')} above the floor",
                (">step", "boundary", "kind", ">rows", "heads", ">worst", ">rel. L2", ">x limit"),
                [_row(each) for each in found.above],
            )
        )
    grids += growth_grids(found.growth)
    lines = [f"There: {'; '.join(found.patterns)}."] if found.patterns else []
    lines += [_flip(flip, found) for flip in found.flips]
    if found.drift is not None and found.drift.moved:
        lines.append(_drift(found.drift))
    if found.unsteady:
        lines.append(
            "The baseline itself reads rows otherwise than it wrote them, first at"
            f" {found.unsteady[0]}: it is no measure."
        )
    unjudged = [each.name for each in found.unjudged if each.reason is None]
    if unjudged:
        lines.append(
            f"Not judged, although bytes differ: {count(len(unjudged), 'boundary')} ("
            f"{listed(unjudged, most=4)}): digests alone, other"
            " shapes, or no floor."
        )
    for side, names in (("baseline", found.only_baseline), ("target", found.only_target)):
        if names:
            lines.append(
                f"Rows that only the {side} has: of {count(len(names), 'boundary')}"
                f" ({listed(names, most=4)})."
            )
    if found.skipped:
        skipped = listed([name.format(layer="*") for name in found.skipped], most=8)
        lines.append(f"Not compared, because it is no row of a position: {skipped}.")
    lines.append(
        f"Compared {count(found.compared, 'boundary')} by position, {found.identical:,} of them"
        f" equal byte for byte, against {literal(found.floor)} ({_KINDS[found.floor_kind]}, margin"
        f" {found.margin:g})."
    )
    return Report(
        headline=_headline(found),
        tone=_TONES.get(found.verdict, Tone.GOOD),
        grids=tuple(grids),
        lines=tuple(lines),
        preface=settings_said(found.differences, equal=found.verdict is VerdictClass.IDENTICAL),
    )


_KINDS = {
    "order": "what the order of reductions changes",
    "precision": "what precision and order change",
}


def _headline(found: Assessment) -> str:
    if found.verdict is VerdictClass.WRONG and found.first is not None:
        return f"WRONG. {_first(found, found.first)}"
    if found.verdict is VerdictClass.NOISE:
        return f"NOISE. {_noise(found.within)}."
    if found.verdict is VerdictClass.TIE:
        if not all(flip.equal for flip in found.flips):
            return (
                f"TIE. {_equal(found)}, and other tokens were chosen, from logits that were not"
                " captured: look at what lies behind the last boundary."
            )
        return (
            f"TIE. {_equal(found)}, logits too, and other tokens were chosen: look at the sampler,"
            " not at the model."
        )
    if found.verdict is VerdictClass.IDENTICAL:
        return f"IDENTICAL. {_equal(found)}."
    return f"INCOMPARABLE. {found.reason}."


def _noise(within: Sequence[Measured]) -> str:
    most = max(within, key=share)
    differ = f"{count(len(within), 'boundary')} {'differs' if len(within) == 1 else 'differ'}"
    if not any(each.worst for each in within):
        return f"{differ} in bytes alone: every value is the same"
    takes = f"takes {percent(share(most))} of its limit"
    if len(within) == 1:
        return f"{differ}, and rounding explains it: {most.name} {takes}"
    return f"{differ}, and rounding explains all of them: the largest, {most.name}, {takes}"


def _equal(found: Assessment) -> str:
    which = f"All {count(found.compared, 'boundary')} are"
    if found.compared == 1:
        which = "The 1 boundary that was compared is"
    one_sided = found.only_baseline or found.only_target
    return f"{which} equal byte for byte{' in the rows that both runs have' if one_sided else ''}"


def share(found: Measured) -> float:
    """Return how much of its limit a boundary takes; above 1 it is above the floor."""
    shares = [
        value / limit
        for value, limit in (
            (found.worst, found.limit),
            (found.relative_l2 or 0.0, found.limit_l2),
        )
        if limit
    ]
    return max(shares, default=0.0)


def _first(found: Assessment, first: Measured) -> str:
    where = f"step {first.step}, {first.name}"
    if first.layer is not None:
        where += f" (layer {first.layer}, {first.kind})"
    if first.reason is not None:
        how = f"{first.reason}, at position {first.positions[0]}"
        return f"{where}: {how}; {_before(found, first)}."
    rows = f"{len(first.positions):,} of {count(first.num_rows, 'row')}"
    rows += f", positions {ranges(first.positions, most=4)}"
    if first.num_heads:
        rows += f", {len(first.heads)} of {count(first.num_heads, 'head')}"
    if first.reread:
        how = "rows that an earlier step wrote are read otherwise here"
    elif not first.limit:
        how = "integers differ, which no rounding does"
    elif not isfinite(first.worst):
        how = "it is not finite on one side alone"
    else:
        how = f"{figure(share(first))} times what rounding explains"
    return f"{where}: {how}, in {rows}; {_before(found, first)}."


def _before(found: Assessment, first: Measured) -> str:
    if first.is_source:
        one_sided = found.only_baseline or found.only_target
        return f"nothing before it{' that both runs have' if one_sided else ''} differs"
    if found.unjudged_before:
        return f"{count(found.unjudged_before, 'boundary')} before it could not be judged"
    return "all before it is within the floor"


def _row(found: Measured) -> tuple[str, ...]:
    heads = f"{len(found.heads)} of {found.num_heads}" if found.num_heads else MISSING
    return (
        str(found.step),
        found.name,
        str(found.kind),
        f"{len(found.positions)} of {found.num_rows}",
        heads,
        figure(found.worst),
        figure(found.relative_l2),
        figure(share(found)) if found.limit else MISSING,
    )


def _flip(flip: Flip, found: Assessment) -> str:
    what = (
        f"Session {flip.session} chose token {flip.target} instead of {flip.baseline} at position"
        f" {flip.position}"
    )
    rest = "; what follows has other inputs, and is left out."
    if flip.equal:
        return f"{what}, from equal logits ({_gap(flip)}){rest}"
    if flip.baseline_gap is None or flip.target_gap is None or flip.apart is None:
        return f"{what}; the logits were not stored, so nobody knows by how little{rest}"
    text = f"{what}: {_gap(flip)}, and the runs' logits differ by up to {figure(flip.apart)}"
    sides = ("baseline", flip.baseline_gap < 0), ("target", flip.target_gap > 0)
    against = [side for side, is_against in sides if is_against]
    if against:
        text += f": the {' and the '.join(against)} chose against its own logits"
    elif found.verdict is VerdictClass.NOISE:
        text += ": rounding decided"
    return text + rest


def _drift(drift: Drift) -> str:
    return (
        f"The log-probability of the baseline's first choice moves by at most"
        f" {figure(abs(drift.moved))} nat (session {drift.session}, position {drift.position},"
        f" token {drift.token}; KL divergence {figure(drift.kl)} nat)."
    )


def _gap(flip: Flip) -> str:
    if flip.baseline_gap is None:
        return "not stored"
    if flip.baseline_gap == 0.0:
        return "both tokens have one logit: a tie"
    return f"in the baseline their logits are {figure(abs(flip.baseline_gap))} apart"


def assessment_document(found: Assessment) -> Document:
    """Return what `swarepro diff-boundaries --floor --json` prints."""
    return {
        "verdict": str(found.verdict),
        "reason": found.reason,
        "baseline": found.baseline,
        "target": found.target,
        "differences": list(found.differences),
        "floor": found.floor,
        "floor_kind": found.floor_kind,
        "margin": found.margin,
        "compared": found.compared,
        "identical": found.identical,
        "first": None if found.first is None else _measured(found.first),
        "patterns": list(found.patterns),
        "above": [_measured(each) for each in found.above],
        "within": [_measured(each) for each in found.within],
        "unjudged": [_measured(each) for each in found.unjudged],
        "flips": [{name: getattr(flip, name) for name in _FLIP} for flip in found.flips],
        "drift": None
        if found.drift is None
        else {name: getattr(found.drift, name) for name in _DRIFT},
        "unsteady": list(found.unsteady),
        "growth": [{name: getattr(layer, name) for name in _GROWTH} for layer in found.growth],
        "only_baseline": list(found.only_baseline),
        "only_target": list(found.only_target),
        "skipped": list(found.skipped),
    }


_FLIP = (
    *("session", "position", "baseline", "target"),
    *("baseline_gap", "target_gap", "apart", "equal"),
)
_DRIFT = ("session", "position", "token", "moved", "kl")
_GROWTH = ("layer", "relative_l2", "cosine", "added", "floor_l2")
_MEASURED = (
    *("step", "session", "name", "point", "layer", "worst", "relative_l2", "cosine"),
    *("limit", "limit_l2", "is_source", "reread", "reason", "positions"),
    *("heads", "num_heads", "num_rows"),
)


def _measured(found: Measured) -> Document:
    return {
        **{name: getattr(found, name) for name in _MEASURED},
        "kind": str(found.kind),
        "share": share(found),
    }
