"""Images in a prompt: what is refused, which spans have them, and what a query sees of them."""

from typing import Any

import pytest
import torch

from swarepro import api
from swarepro.case import CaseSpec, convert_case
from swarepro.checkpoint import open_checkpoint
from swarepro.errors import CaseError
from swarepro.interventions import FACTORS
from swarepro.options import RunOptions
from swarepro.plan import Phase, Span
from swarepro.runs.prepare import plan_case
from swarepro.runs.variants import legal_variants
from swarepro.runtime.images import keys_ahead
from swarepro.runtime.parts import Request


def case(*sessions: dict[str, Any], model: str = "synthetic:gemma4-tiny", **more: Any) -> CaseSpec:
    data = {"name": "x", "model": model, "capacity": 64, "sessions": list(sessions), **more}
    return convert_case(data, source="x.toml")


def session(images: list[list[int]], *, rows: int = 20, **more: Any) -> dict[str, Any]:
    return {"prompt": {"random": rows, "seed": 1}, "images": images, **more}


def reusing(kept: list[list[int]], images: list[list[int]]) -> CaseSpec:
    """Return a case whose second session takes over the first 5 rows of the first."""
    return case(
        session(kept),
        session(images),
        script=[
            {"rows": [{"session": 0, "prefill": 20}]},
            {"finish": [0], "keep": True},
            {"reuse": {"session": 1, "of": 0, "rows": 5}},
            {"rows": [{"session": 1, "prefill": 15}]},
        ],
    )


def spans(spec: CaseSpec) -> list[tuple[int, int, tuple[tuple[int, int], ...]]]:
    plan = plan_case(spec, open_checkpoint(spec.model))
    return [(s.start, s.end, s.images) for step in plan.steps for s in step.spans]


@pytest.mark.parametrize(
    ("images", "said"),
    [
        ([[3, 4]], "the image [3, 4] holds 1 tokens"),
        ([[4, 3]], "the image [4, 3] holds 0 tokens"),
        ([[3, 7], [6, 9]], "the image [6, 9] begins before 7"),
        ([[8, 12], [3, 7]], "the image [3, 7] begins before 12"),
        ([[3]], "images[0]"),
        ([[-1, 3]], "images[0][0]"),
    ],
)
def test_ranges_that_are_no_images(images: list[list[int]], said: str) -> None:
    with pytest.raises(CaseError) as caught:
        case(session(images))
    assert said in caught.value.message
    assert caught.value.message.startswith("x.toml: ")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (case(session([[15, 21]])), "the image [15, 21] ends beyond the prompt's 20 tokens"),
        (
            case(session([[3, 9]], chunks=[8, 12])),
            "sessions[0]: the chunk [0, 8] cuts the image [3, 9] at 8",
        ),
        (case(session([[3, 9]], chunk=4)), "the chunk [0, 4] cuts the image [3, 9] at 4"),
        (
            reusing([[3, 9]], [[3, 9]]),
            "sessions[1]: the chunk [5, 20] cuts the image [3, 9] at 5",
        ),
        (
            reusing([], [[1, 4]]),
            "sessions[1] reuses 5 rows of session 0, and has the images [[1, 4]] in them; session 0"
            " has none",
        ),
        (reusing([[1, 4]], []), "the images none in them; session 0 has [[1, 4]]"),
        (reusing([[1, 4]], [[2, 4]]), "[[2, 4]] in them; session 0 has [[1, 4]]"),
        (reusing([[3, 9]], []), "the images none in them; session 0 has [[3, 9]]"),
        (case(session([[3, 9]]), model="synthetic:gemma2-tiny"), "is a model of text alone"),
    ],
    ids=[
        *("beyond", "chunks", "chunk", "reuse"),
        *("image reuses text", "text reuses image", "image reuses another", "text reuses a part"),
        "gemma2",
    ],
)
def test_images_that_cannot_be_computed(spec: CaseSpec, said: str) -> None:
    with pytest.raises(CaseError) as caught:
        plan_case(spec, open_checkpoint(spec.model))
    assert said in caught.value.message
    assert caught.value.hint


def test_a_prefix_with_the_same_images_is_reused() -> None:
    """What lies behind it may differ."""
    assert spans(reusing([[1, 4], [6, 9]], [[1, 4], [7, 9]])) == [
        (0, 20, ((1, 4), (6, 9))),
        (5, 20, ((7, 9),)),
    ]


def test_each_chunk_has_the_images_in_it() -> None:
    found = spans(case(session([[2, 6], [6, 8], [8, 14], [16, 20]], chunks=[8, 8, 4], decode=1)))
    assert found == [
        (0, 8, ((2, 6), (6, 8))),
        (8, 16, ((8, 14),)),
        (16, 20, ((16, 20),)),
        (20, 21, ()),
    ]


def test_one_chunk_instead_of_several_keeps_them() -> None:
    """Those of chunks up to the step: what comes behind is not computed."""
    spec = case(session([[2, 6], [10, 14], [17, 19]], chunks=[8, 8, 4]))
    plan = plan_case(spec, open_checkpoint(spec.model))
    (step,) = FACTORS.get("single-shot").steps(plan, 1)
    assert step.spans == (Span(session=0, start=0, end=16, images=((2, 6), (10, 14))),)


def test_no_variant_cuts_an_image() -> None:
    with_image = case(session([[5, 9]], rows=40, chunks=[20, 20]))
    without = case(session([], rows=40, chunks=[20, 20]))
    names = []
    for spec in (with_image, without):
        plan = plan_case(spec, open_checkpoint(spec.model))
        names.append({v.name for v in legal_variants(spec, RunOptions(), plan, route="eager")})
    assert names[1] - names[0] == {"chunks of 7"}
    assert "chunks whole" in names[0]


def request(span: Span, *, row: int) -> Request:
    return Request(
        span=span,
        rows=slice(row, row + span.rows),
        entries=slice(0, span.end),
        visible_start=0,
    )


def test_a_query_sees_to_the_end_of_its_image() -> None:
    first = Span(session=0, start=4, end=10, images=((5, 8),))
    other = Span(session=1, start=30, end=31, phase=Phase.DECODE)
    third = Span(session=2, start=2, end=6, images=((2, 4), (4, 6)))
    requests = [request(first, row=0), request(other, row=6), request(third, row=7)]
    found = keys_ahead(requests, device=torch.device("cpu"))
    assert found is not None
    assert found.tolist() == [0, 2, 1, 0, 0, 0, 0, 1, 0, 1, 0]
    assert keys_ahead([request(other, row=0)], device=torch.device("cpu")) is None


@pytest.mark.parametrize(
    ("start", "end", "ahead"),
    [(6, 10, [1, 0, 0, 0]), (0, 7, [0, 0, 0, 0, 0, 2, 1]), (0, 4, None), (9, 12, None)],
    ids=["from inside", "to inside", "before", "behind"],
)
def test_of_a_request_that_a_fault_cut_its_own_rows_alone(
    start: int, end: int, ahead: list[int] | None
) -> None:
    """As the last rows of a chunk alone, or rows that are said to lie elsewhere."""
    cut = Span(session=0, start=start, end=end, images=((5, 8),))
    found = keys_ahead([request(cut, row=0)], device=torch.device("cpu"))
    assert (None if found is None else found.tolist()) == ahead


def test_sessions_of_a_batch_have_images_of_their_own(tmp_path: Any) -> None:
    """Together or one after another: the same bytes, each with its own mask."""
    sessions = (session([[3, 7]], rows=12), session([[1, 9]], rows=10))
    together = case(
        *sessions,
        script=[{"rows": [{"session": 0, "prefill": 12}, {"session": 1, "prefill": 10}]}],
    )
    apart = case(
        *sessions,
        script=[
            {"rows": [{"session": 0, "prefill": 12}]},
            {"rows": [{"session": 1, "prefill": 10}]},
        ],
    )
    for name, spec in (("together", together), ("apart", apart)):
        api.run_case(spec, out=tmp_path, run_id=name)
    found = api.diff_runs(tmp_path / "together", tmp_path / "apart", align="position")
    assert found.verdict == "IDENTICAL"
    assert found.compared > 100
