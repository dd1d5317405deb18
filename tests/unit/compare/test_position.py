"""Comparison by token position: 64 + 3 rows against 67 at once."""

import numpy as np
import pytest

from swarepro import points
from swarepro.compare.divergence import compare_bundles
from swarepro.compare.types import Tolerance, Verdict
from swarepro.errors import IncomparableError
from swarepro.report.diff import diff_report
from tests.unit.bundle.factory import Run, item, spans

TOLERANCE = Tolerance(atol=1e-4)
CHUNKED, WHOLE = ((0, 64), (64, 67)), ((0, 67),)
WINDOW = 32


def hidden(seed):
    return np.random.default_rng(seed).normal(size=(67, 6)).astype(np.float32)


def pool(seed):
    return np.random.default_rng(seed).normal(size=(67, 2, 1, 4)).astype(np.float32)


def run(chunks, *, change=None, store=True, scale=1.0, slots=0, later=()):
    """A run over 67 positions; ``change(name, array)`` may edit the arrays over all positions.

    Rows of the pool at the positions ``later`` are shown otherwise by steps after their first.
    """
    tensors = {
        points.EMBEDDING_OUTPUT: hidden(1),
        points.ATTENTION_OUTPUT: hidden(2).reshape(67, 2, 3),
        points.AFTER_LAYER: hidden(3),
        points.KV_SLICE_POST_WRITE: pool(4),
        points.LOGITS: hidden(5),
    }
    for point, array in tensors.items():
        array *= scale
        if change:
            change(point, array)
    items = []
    for step, (start, end) in enumerate(chunks):
        visible = max(0, start - WINDOW + 1)
        at = {"step": step, "store": store}
        ids = np.arange(start, end)
        kv = tensors[points.KV_SLICE_POST_WRITE][visible:end].copy()
        kv[[position - visible for position in later if visible <= position < start]] += 100
        items += [
            item(points.INPUT_IDS, ids, dtype="I64", row_start=start, **at),
            item(points.PREFIX_LEN, np.array(start), dtype="I64", row_start=None, **at),
            item(points.SWA_SLOTS, np.arange(end) + slots, dtype="I64", row_start=0, **at),
            item(
                points.EMBEDDING_OUTPUT,
                tensors[points.EMBEDDING_OUTPUT][start:end],
                row_start=start,
                **at,
            ),
            item(points.KV_SLICE_PRE_WRITE, kv * 0, layer=0, row_start=visible, **at),
            item(points.KV_SLICE_POST_WRITE, kv, layer=0, row_start=visible, **at),
        ]
        for point, layer in ((points.ATTENTION_OUTPUT, 0), (points.AFTER_LAYER, 0)):
            items.append(item(point, tensors[point][start:end], layer=layer, row_start=start, **at))
        last = tensors[points.LOGITS][end - 1 : end]
        items.append(item(points.LOGITS, last, row_start=end - 1, **at))
    return Run(items=items, steps=spans(*chunks), prompts=(tuple(range(67)),))


@pytest.fixture
def judged(tmp_path):
    def compare(one, other, **more):
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        bundles = one.open(place / "a"), other.open(place / "b")
        return compare_bundles(*bundles, **({"tolerance": TOLERANCE} | more))

    return compare


def test_rows_are_joined_across_steps(judged):
    found = judged(run(CHUNKED), run(WHOLE))
    assert found.align == "position"
    assert found.verdict is Verdict.IDENTICAL
    # ids, embedding, the pool, attention, the layer, and the last row's logits
    assert found.compared == 6
    assert found.skipped == ("prefix_len", "swa_slots", "L{layer}_kv_slice_pre_write")
    # The first chunk's last row gives logits on one side only.
    assert [(one.step, one.name, one.positions) for one in found.only_baseline] == [
        (0, "logits", (63, 64))
    ]
    assert found.only_target == ()
    assert not found.exact


@pytest.mark.parametrize("swapped", [False, True])
def test_rows_that_one_side_lacks_are_listed(judged, swapped):
    """4 rows against 6: nothing says that the last two are right."""
    pair = run(((0, 4),)), run(((0, 6),))
    found = judged(*(reversed(pair) if swapped else pair))
    assert (found.verdict, found.exact) == (Verdict.IDENTICAL, False)
    more, less = found.only_target, found.only_baseline
    if swapped:
        more, less = less, more
    assert {(one.name, one.positions) for one in more} == {
        ("input_ids", (4, 6)),
        ("embedding_output", (4, 6)),
        ("L0_kv_slice_post_write", (4, 6)),
        ("L0_attention_output", (4, 6)),
        ("after_layer_0", (4, 6)),
        ("logits", (5, 6)),
    }
    assert [(one.name, one.positions) for one in less] == [("logits", (3, 4))]


def test_a_boundary_that_one_side_lacks_is_listed_with_all_its_rows(judged):
    one, other = run(CHUNKED), run(WHOLE)
    for each in (one, other):
        each.items = [e for e in each.items if e[0].name in ("input_ids", "after_layer_0")]
    one.items = [e for e in one.items if e[0].name == "input_ids"]
    for pair, side in (((one, other), "only_target"), ((other, one), "only_baseline")):
        found = judged(*pair)
        (lacking,) = getattr(found, side)
        assert (lacking.step, lacking.name, lacking.positions) == (0, "after_layer_0", (0, 67))
        assert not found.exact


def test_control_equal_rows_leave_nothing(judged):
    found = judged(run(((0, 6),)), run(((0, 6),)), align="position")
    assert found.only_baseline == found.only_target == ()
    assert found.exact


def test_rows_before_the_first_weaken_it_and_rows_after_do_not(judged):
    def change(point, array):
        if point is points.EMBEDDING_OUTPUT:
            array[50:60] += 1

    def compare(chunks):
        """Return what a target of these chunks lacks, and whether row 50 is exactly the first."""
        one, other = run(((0, 20), (20, 40), (40, 67))), run(chunks, change=change)
        for each in (one, other):  # one row in many, and its input
            each.items = [e for e in each.items if e[0].name in ("embedding_output", "input_ids")]
        found = judged(one, other)
        assert (found.first.step, found.first.origin) == (2, "source")
        return [one.positions for one in found.only_baseline], found.exact

    assert compare(((0, 20), (20, 40), (40, 67))) == ([], True)
    assert compare(((0, 20), (40, 67))) == ([(20, 40)] * 2, False)


def test_an_input_whose_rows_are_not_all_compared_is_not_equal(judged):
    """Six rows against eight in one step: rows 6 and 7 may have overwritten row 2."""

    def change(point, array):
        if point is points.AFTER_LAYER:
            array[2] += 1

    def origin(rows):
        one, other = run(((0, 6),)), run(((0, rows),), change=change)
        for each in (one, other):
            hidden = [e for e in each.items if e[0].name == "embedding_output"]
            each.items = [
                *(
                    item(point, entry[1], layer=0, row_start=0)
                    for entry in hidden
                    for point in (points.ATTN_RESIDUAL, points.MLP_OUTPUT)
                ),
                *(e for e in each.items if e[0].name == "after_layer_0"),
            ]
        return judged(one, other, align="position").first.origin

    assert origin(6) == "source"
    assert origin(8) == "unknown"


def test_both_directions_and_other_chunks(judged):
    found = judged(run(((0, 20), (20, 40), (40, 67))), run(CHUNKED))
    assert (found.verdict, found.compared) == (Verdict.IDENTICAL, 6)


def test_slots_may_differ(judged):
    assert judged(run(CHUNKED), run(WHOLE, slots=5)).verdict is Verdict.IDENTICAL


def test_within_tolerance(judged):
    found = judged(run(CHUNKED), run(WHOLE, scale=1 + 1e-6))
    assert found.verdict is Verdict.WITHIN_TOLERANCE
    assert len(found.boundaries) == 5
    assert found.boundaries[0].numbers.num_rows == 67
    assert found.boundaries[0].numbers.relative_l2 < 2e-6


@pytest.mark.parametrize(("position", "step"), [(3, 0), (63, 0), (64, 1), (66, 1)])
def test_a_row_is_found_with_its_position_and_step(judged, position, step):
    def change(point, array):
        if point is points.ATTENTION_OUTPUT:
            array[position, 1] += 1

    found = judged(run(CHUNKED), run(WHOLE, change=change))
    assert found.verdict is Verdict.DIVERGED
    assert len(found.boundaries) == 1
    first = found.first
    # Slots cannot be aligned by position, so that what the rows were read from is not known.
    assert (first.name, first.step, first.origin) == ("L0_attention_output", step, "unknown")
    assert first.numbers.positions == first.numbers.rows == (position,)
    assert (first.numbers.heads, first.numbers.num_heads) == ((1,), 2)
    assert (found.last_identical.name, found.last_identical.step) == (
        "L0_kv_slice_post_write",
        step,
    )


def test_the_pool_is_compared_at_the_first_write_of_each_row(judged):
    """The healthy pair already rewrites old rows in step 1; this changes row 50 itself."""

    def change(point, array):
        if point is points.KV_SLICE_POST_WRITE:
            array[50, 0, 0, 0] += 1

    found = judged(run(CHUNKED), run(WHOLE, change=change))
    assert found.first == found.first_state
    assert found.first_state.numbers.positions == (50,)
    assert found.first_state.step == 0


def test_first_is_the_earliest_step_not_the_earliest_point(judged):
    def change(point, array):
        if point is points.EMBEDDING_OUTPUT:
            array[65] += 1  # step 1
        if point is points.AFTER_LAYER:
            array[10] += 1  # step 0
            array[65] += 1

    found = judged(run(CHUNKED), run(WHOLE, change=change))
    assert [(b.name, b.step, b.origin) for b in found.boundaries] == [
        ("after_layer_0", 0, "unknown"),
        ("embedding_output", 1, "source"),
    ]


def test_later_points_inherit(judged):
    def change(point, array):
        if point in (points.KV_SLICE_POST_WRITE, points.ATTENTION_OUTPUT, points.AFTER_LAYER):
            array[65] += 1

    found = judged(run(CHUNKED), run(WHOLE, change=change))
    assert [b.origin for b in found.boundaries] == ["unknown", "inherited", "inherited"]


def test_it_needs_a_tolerance(judged):
    with pytest.raises(IncomparableError, match="the chunking differs"):
        judged(run(CHUNKED), run(WHOLE), tolerance=None)


def test_it_needs_stored_tensors(judged):
    with pytest.raises(IncomparableError, match="--store tensor"):
        judged(run(CHUNKED, store=False), run(WHOLE))


def test_the_same_steps_by_position_are_bitwise_by_default(judged):
    def change(point, array):
        if point is points.LOGITS:
            array.view(np.uint32)[66, 0] ^= 1

    found = judged(run(CHUNKED), run(CHUNKED, change=change), align="position", tolerance=None)
    assert found.verdict is Verdict.DIVERGED
    assert [(b.name, b.step) for b in found.boundaries] == [("logits", 1)]


def test_nothing_in_common(judged):
    one, other = run(((0, 20),)), run(((20, 67),))
    one.prompts = other.prompts = (tuple(range(67)),)
    other.items = [
        entry for entry in other.items if entry[0].point != "L{layer}_kv_slice_post_write"
    ]
    one.items = [entry for entry in one.items if entry[0].point != "L{layer}_kv_slice_post_write"]
    with pytest.raises(IncomparableError, match="nothing to compare"):
        judged(one, other)


def test_rows_of_another_shape(judged):
    one, other = run(CHUNKED), run(WHOLE)
    other.items = [
        item(points.EMBEDDING_OUTPUT, np.zeros((67, 9)))
        if entry[0].name == "embedding_output"
        else entry
        for entry in other.items
    ]
    found = judged(one, other)
    assert found.first.reason == "rows of shape [6] against [9]"


@pytest.mark.parametrize(
    ("tokens", "differ"),
    [
        ((), False),  # no head: nothing is known
        ((7,), False),
        ((7, 8, 9, 10), False),
        ((8,), True),
    ],
)
def test_tokens_of_other_steps(judged, tokens, differ):
    one, other = run(CHUNKED), run(WHOLE)
    one.tokens, other.tokens = ((7, 8, 9),), (tokens,)
    assert judged(one, other).tokens_differ is differ


def test_tokens_of_another_prompt_say_nothing(judged):
    one, other = run(CHUNKED), run(WHOLE)
    other.prompts = (tuple(range(1, 68)),)
    one.tokens, other.tokens = ((7,),), ((8,),)
    assert not judged(one, other).tokens_differ


def test_tokens_are_compared_as_far_as_both_go(judged, tmp_path):
    one, other = run(CHUNKED), run(WHOLE)
    one.tokens, other.tokens = ((7, 8, 9),), ((7, 8),)
    assert not judged(one, other).tokens_differ
    other.tokens = ((7, 9),)
    bundles = run(CHUNKED), other
    bundles[0].tokens = one.tokens
    opened = [r.open(tmp_path / f"x{i}") for i, r in enumerate(bundles)]
    assert compare_bundles(*opened, tolerance=TOLERANCE).tokens_differ


def test_the_first_write_is_what_is_compared(judged):
    """Each side shows it once more, as it was."""
    found = judged(run(CHUNKED), run(((0, 40), (40, 67))))
    assert (found.verdict, found.rereads, found.unsteady) == (Verdict.IDENTICAL, 4, ())
    whole = judged(run(WHOLE), run(WHOLE), align="position")
    assert (whole.verdict, whole.rereads) == (Verdict.IDENTICAL, 0)  # nothing is shown twice


@pytest.mark.parametrize("tolerance", [TOLERANCE, Tolerance(atol=1e6)])
def test_a_row_that_the_target_changed_after_its_write_diverges_at_any_tolerance(judged, tolerance):
    found = judged(run(WHOLE), run(CHUNKED, later=(40, 41)), tolerance=tolerance)
    assert found.verdict is Verdict.DIVERGED
    (only,) = found.boundaries
    assert found.first == found.first_state == only
    assert (only.name, only.step, only.reread_at) == ("L0_kv_slice_post_write", 0, 1)
    assert only.reason == (
        "the target shows the rows of positions 40 to 41 otherwise than it wrote them"
    )
    assert found.unsteady == ()
    assert found.compared == 6  # no boundary twice
    report = diff_report(found)
    assert report.headline.startswith(
        "DIVERGED. Rows of a pool changed after they were written: the runs part"
    )
    assert "at its step 1. It harms no captured value." in report.headline


def test_without_a_tolerance_too(judged):
    found = judged(run(CHUNKED), run(CHUNKED, later=(50,)), align="position", tolerance=None)
    assert found.verdict is Verdict.DIVERGED
    assert (found.first.step, found.first.reread_at) == (1, 1)
    assert "the row of position 50" in found.first.reason


def test_a_baseline_that_changed_rows_is_no_measure(judged):
    found = judged(run(CHUNKED, later=(40, 63)), run(WHOLE))
    assert found.verdict is Verdict.INCOMPARABLE
    assert found.unsteady == ("L0_kv_slice_post_write",)
    (only,) = found.boundaries
    assert only.reason == (
        "the baseline shows 2 rows of positions 40 to 63 otherwise than it wrote them: it is no"
        " measure"
    )
    assert found.compared == 5
    assert "it is no measure" in diff_report(found).headline


def test_an_unsteady_baseline_hides_no_divergence(judged):
    def off(point, array):
        if point is points.AFTER_LAYER:
            array[66] += 1

    found = judged(run(CHUNKED, later=(40,)), run(WHOLE, change=off))
    assert (found.verdict, found.first.name) == (Verdict.DIVERGED, "after_layer_0")
    assert not found.exact  # the slice before it could not be judged
    both = judged(run(CHUNKED, later=(40,)), run(CHUNKED, later=(40,)), align="position")
    assert (both.verdict, both.first.reread_at) == (Verdict.DIVERGED, 1)
    assert both.unsteady == ("L0_kv_slice_post_write",)


def test_an_unsteady_baseline_hides_no_row_that_was_written_wrong(judged):
    def off(point, array):
        if point is points.KV_SLICE_POST_WRITE:
            array[3] += 1

    found = judged(run(CHUNKED, later=(40,)), run(WHOLE, change=off))
    assert (found.verdict, found.first.name) == (Verdict.DIVERGED, "L0_kv_slice_post_write")
    assert found.first.reread_at is None
    assert found.unsteady == ("L0_kv_slice_post_write",)


def test_a_row_that_was_written_wrong_diverges_there_and_not_where_it_changed(judged):
    def off(point, array):
        if point is points.KV_SLICE_POST_WRITE:
            array[3] += 1

    found = judged(run(CHUNKED), run(CHUNKED, change=off, later=(40,)), align="position")
    assert (found.first.step, found.first.reread_at) == (0, None)
    assert found.first.numbers.positions == (3,)

    def late(point, array):
        if point is points.KV_SLICE_POST_WRITE:
            array[66] += 1

    chunks = ((0, 48), (48, 60), (60, 67))
    found = judged(run(chunks), run(chunks, change=late, later=(40,)), align="position")
    assert (found.first.step, found.first.reread_at) == (1, 1)


def test_by_step_every_reading_is_compared_anyway(judged):
    found = judged(run(CHUNKED), run(CHUNKED, later=(40,)), tolerance=None)
    assert (found.align, found.first.step, found.rereads) == ("step", 1, 0)
    assert found.first.reread_at is None
