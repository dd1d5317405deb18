"""Which known defects give what a run has where it parts from another."""

from collections import Counter

from swarepro.compare.explanation import Explanation, Fit, Hypothesis
from swarepro.report.jsonout import Document
from swarepro.report.model import Report, Tone, shortened
from swarepro.report.settings import settings_said
from swarepro.report.words import MISSING, count, listed, percent

_WORDS: dict[Fit, str] = {"exact": "exact", "within": "but for noise", "leaves": "in part"}


def explanation_report(found: Explanation) -> Report:
    """Return the defect that fits, or the nearest one and what it leaves."""
    shown = [each for each in found.hypotheses if each.fit in ("exact", "within", "leaves")]
    counts = Counter(each.fit for each in found.hypotheses)
    rest = [f"{counts[fit]} {words}" for fit, words in _REST.items() if counts[fit]]
    lines = [
        f"Held against it: {count(len(found.hypotheses), 'known defect')}; `left` is of the"
        " difference between baseline and target."
    ]
    if rest:
        lines.append(f"Not among these: {'; '.join(rest)}.")
    return Report(
        headline=_headline(found),
        tone=Tone.BAD if found.best else Tone.UNSURE,
        grids=(
            (
                shortened(
                    "Known defects that act there",
                    ("defect", "reports", "fits", ">values off", ">left", ">equal in all"),
                    [_row(each, found) for each in shown],
                    most=10,
                ),
            )
            if shown
            else ()
        ),
        lines=tuple(lines),
        preface=settings_said(found.differences, equal=False),
    )


_REST: dict[Fit, str] = {
    "none": "change nothing there",
    "earlier": "would show earlier, where the runs agree",
    "error": "end with an error",
}


def _headline(found: Explanation) -> str:
    where = f"the target's {found.name} of step {found.step}"
    best = found.best
    if not best:
        nearest = next((each for each in found.hypotheses if each.fit == "leaves"), None)
        tail = "none of them acts there"
        if nearest is not None and nearest.remainder is not None:
            tail = f"the nearest, {nearest.fault}, leaves {percent(nearest.remainder)}"
        elif nearest is not None:
            tail = f"{nearest.fault} acts there, and gives something else"
        number = count(len(found.hypotheses), "known defect")
        if found.num_values and not found.baseline_differing:
            tail = "a healthy run does: the defect is not in the target, it may be in the baseline"
        return f"UNEXPLAINED. None of {number} gives {where}; {tail}."
    names = listed([each.fault for each in best], most=4)
    if best[0].fit == "within":
        how = "but for noise"
    elif found.num_values:
        how = f"0 of {found.num_values:,} values differ"
    else:
        how = "to the byte"
    if len(best) > 1:
        return (
            f"A TIE of {len(best)}. {where[:1].upper()}{where[1:]} is what the baseline gives with"
            f" any of {names}; {how}."
        )
    return (
        f"EXPLAINED. {where[:1].upper()}{where[1:]} is what the baseline gives with {names}"
        f" ({best[0].summary}); {how}."
    )


def _row(each: Hypothesis, found: Explanation) -> tuple[str, ...]:
    equal = MISSING if each.equal is None else f"{each.equal} of {found.boundaries}"
    return (
        each.fault,
        each.mechanism or MISSING,
        _WORDS[each.fit],
        MISSING if each.differing is None else f"{each.differing:,}",
        MISSING if each.remainder is None else percent(each.remainder),
        equal,
    )


def explanation_document(found: Explanation) -> Document:
    """Return what `swarepro explain --json` prints; ``best`` names several in a tie, or none."""
    return {
        "baseline": found.baseline,
        "target": found.target,
        "differences": list(found.differences),
        "step": found.step,
        "session": found.session,
        "name": found.name,
        "layer": found.layer,
        "kind": str(found.kind),
        "num_values": found.num_values,
        "baseline_differing": found.baseline_differing,
        "boundaries": found.boundaries,
        "best": [each.fault for each in found.best],
        "hypotheses": [
            {
                "fault": each.fault,
                "mechanism": each.mechanism,
                "summary": each.summary,
                "fit": each.fit,
                "differing": each.differing,
                "remainder": each.remainder,
                "earlier": each.earlier,
                "error": each.error,
                "equal": each.equal,
            }
            for each in found.hypotheses
        ],
    }
