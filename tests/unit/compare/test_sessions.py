"""Several sessions in one run: mixed batches, interleavings, reuse."""

import numpy as np
import pytest

from swarepro import points
from swarepro.compare.align import choose_align
from swarepro.compare.determinism import classify
from swarepro.compare.divergence import compare_bundles
from swarepro.compare.inputs import InputGraph, Place
from swarepro.compare.settings import differences
from swarepro.compare.types import Tolerance, Verdict
from swarepro.errors import IncomparableError
from tests.unit.bundle.factory import batch, finish, item, keep, reuse
from tests.unit.compare.batches import CHAIN, run

MIXED = (
    batch(0, (0, 0, 4)),
    batch(1, (0, 4, 5, "decode"), (1, 0, 3)),
    batch(2, (0, 5, 6, "decode"), (1, 3, 4, "decode")),
)
SWAPPED = (
    batch(0, (0, 0, 4)),
    batch(1, (1, 0, 3), (0, 4, 5, "decode")),
    batch(2, (1, 3, 4, "decode"), (0, 5, 6, "decode")),
)
APART = (
    batch(0, (0, 0, 4)),
    batch(1, (0, 4, 5, "decode")),
    batch(2, (0, 5, 6, "decode")),
    batch(3, (1, 0, 3), actions=(finish(0),)),
    batch(4, (1, 3, 4, "decode")),
)
ALONE = APART[:3]
KEPT = (
    batch(0, (0, 0, 4)),
    batch(1, (0, 4, 6), (1, 0, 2)),
    batch(2, (1, 2, 3, "decode"), (2, 4, 8), actions=(keep(0), reuse(2, of=0, rows=4))),
)


def at(name, step, session, *, row=0):
    """A change of one row of one boundary."""

    def change(made, of_step, of_session, array):
        if (made, of_step, of_session) == (name, step, session):
            array[row] += 1

    return change


def every(*changes):
    def change(*made):
        for each in changes:
            each(*made)

    return change


@pytest.fixture
def judged(tmp_path):
    def compare(one, other, **more):
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        return compare_bundles(one.open(place / "a"), other.open(place / "b"), **more)

    return compare


def found_in(found):
    return [(b.step, b.session, b.name, b.origin) for b in found.boundaries]


@pytest.mark.parametrize("layers", [((0, 2),), CHAIN])
def test_the_order_of_spans_does_not_matter(judged, layers):
    one, other = run(MIXED, layers=layers), run(SWAPPED, layers=layers)
    found = judged(one, other)
    assert (found.verdict, found.align, found.exact) == (Verdict.IDENTICAL, "step", True)
    assert found.compared == len(one.items)
    assert found.only_baseline == found.only_target == ()
    assert found.differences == ("batches (0, 0+1 (2 steps) against 0, 1+0 (2 steps))",)


@pytest.mark.parametrize("session", [0, 1])
@pytest.mark.parametrize("target", [MIXED, SWAPPED])
def test_the_session_that_differs_is_named(judged, session, target):
    """Two sessions with the same names in one step; one of them is bad."""
    change = at("L1_attention_output", 2, session)
    found = judged(run(MIXED), run(target, change=change))
    # The name has no #1, whatever place the span has in the batch.
    assert found_in(found) == [(2, session, "L1_attention_output", "unknown")]
    assert found.first == found.first_value == found.boundaries[0]
    assert found.first.numbers.positions == ((5,) if session == 0 else (3,))
    assert found.several_sessions
    assert found.last_identical.name == (
        "L1_kv_slice_post_write" if session == 0 else "L1_attention_output"
    )


def test_sessions_with_equal_names_are_two_boundaries(judged):
    change = every(*(at("logits", 2, session) for session in (0, 1)))
    found = judged(run(MIXED), run(SWAPPED, change=change))
    assert [b[:3] for b in found_in(found)] == [(2, 0, "logits"), (2, 1, "logits")]
    assert found.boundaries[0] != found.boundaries[1]


def test_two_stages_and_two_spans_have_ranks_and_not_occurrences(judged):
    """``positions`` of session 1 in stage 1 has occurrence 3 and is its second: #1."""
    changed = run(MIXED, layers=CHAIN)
    places = [
        (index, made[0])
        for index, made in enumerate(changed.items)
        if (made[0].name, made[0].step, made[0].session) == ("positions", 2, 1)
    ]
    assert [(record.stage, record.occurrence) for _, record in places] == [(0, 1), (1, 3)]
    index, record = places[1]
    changed.items[index] = item(
        points.POSITIONS,
        np.array([9]),
        dtype="I64",
        step=2,
        stage=1,
        session=1,
        row_start=3,
        occurrence=record.occurrence,
    )
    found = judged(run(MIXED, layers=CHAIN), changed)
    assert [(b.step, b.session, b.stage, b.name) for b in found.boundaries] == [
        (2, 1, 1, "positions#1")
    ]


@pytest.mark.parametrize("align", ["step", "position"])
def test_a_chain_matches_a_single_stage_session_by_session(judged, align):
    found = judged(run(SWAPPED), run(MIXED, layers=CHAIN), align=align)
    assert found.verdict is Verdict.IDENTICAL
    assert found.only_baseline == ()
    names = {(one.session, one.name) for one in found.only_target}
    wanted = {"boundary_send_hidden", "boundary_recv_hidden", "input_ids#1", "positions#1"}
    if align == "step":
        wanted |= {"full_slots#1"}
    assert names == {(session, name) for session in (0, 1) for name in wanted}


def test_a_stage_edge_is_matched_for_each_session(judged):
    change = at("boundary_send_hidden", 1, 1)
    found = judged(run(MIXED, layers=CHAIN), run(SWAPPED, layers=CHAIN, change=change))
    assert found_in(found) == [(1, 1, "boundary_send_hidden", "source")]


@pytest.mark.parametrize(("one", "other"), [(MIXED, APART), (APART, SWAPPED)])
def test_another_interleaving_is_compared_by_position_without_a_tolerance(judged, one, other):
    found = judged(run(one), run(other))
    assert (found.verdict, found.align, found.tolerance) == (Verdict.IDENTICAL, "position", None)
    assert found.only_baseline == found.only_target == ()
    assert found.compared == 2 * 16  # of each session, what has positions
    assert any(said.startswith("batches (") for said in found.differences)


@pytest.mark.parametrize("session", [0, 1])
def test_another_interleaving_that_differs_names_session_position_and_step(judged, session):
    step, position = (2, 5) if session == 0 else (4, 3)
    change = at("L0_attention_output", step, session)
    found = judged(run(MIXED), run(APART, change=change))
    assert [(b.step, b.session, b.name) for b in found.boundaries] == [
        (2, session, "L0_attention_output")
    ]
    assert found.first.numbers.positions == (position,)


@pytest.mark.parametrize("beside", [MIXED, SWAPPED])
def test_a_session_alone_against_the_same_in_a_mixed_batch(judged, beside):
    alone = run(ALONE, prompts=run(()).prompts[:1], tokens=((1,),))
    found = judged(alone, run(beside))
    assert (found.verdict, found.align) == (Verdict.IDENTICAL, "position")
    assert found.only_baseline == ()
    assert {one.session for one in found.only_target} == {1}
    found = judged(alone, run(beside, change=at("after_layer_0", 1, 0)))
    assert found_in(found) == [(1, 0, "after_layer_0", "unknown")]


def test_control_the_other_sessions_rows_do_not_count(judged):
    """The same change in session 1, which the lone run does not have."""
    alone = run(ALONE, prompts=run(()).prompts[:1], tokens=((1,),))
    found = judged(alone, run(MIXED, change=at("after_layer_0", 1, 1)))
    assert found.verdict is Verdict.IDENTICAL


def test_other_chunks_of_any_session_need_a_tolerance(judged):
    other = (*APART[:3], batch(3, (1, 0, 2)), batch(4, (1, 2, 3)), batch(5, (1, 3, 4, "decode")))
    with pytest.raises(IncomparableError, match="need a tolerance: the chunking differs"):
        judged(run(MIXED), run(other))
    assert judged(run(MIXED), run(other), tolerance=Tolerance()).verdict is Verdict.IDENTICAL


def test_a_phase_that_differs_is_another_chunking(judged):
    other = (*APART[:4], batch(4, (1, 3, 4)))
    with pytest.raises(IncomparableError, match="the chunking differs"):
        judged(run(MIXED), run(other))


def test_only_the_eager_route_promises_other_batches_the_same_bytes(judged):
    with pytest.raises(
        IncomparableError, match="the batches differ, and only the eager routes give"
    ):
        judged(run(MIXED, route="triton"), run(APART, route="triton"))
    assert judged(run(MIXED, route="triton"), run(SWAPPED, route="triton")).align == "step"


def test_phases_said_by_the_step_or_by_its_spans_are_the_same(tmp_path):
    from msgspec.structs import replace

    step = batch(0, (0, 0, 4), (1, 0, 3))
    said = replace(step, spans=tuple(replace(span, phase="prefill") for span in step.spans))
    left, right = (
        run((each,)).open(tmp_path / str(i)).manifest for i, each in enumerate((step, said))
    )
    assert choose_align(left, right, None) == "step"
    assert differences(left, right) == ()


def test_steps_that_differ_are_shown_with_the_phase_of_each_span(judged):
    with pytest.raises(
        IncomparableError,
        match=r"step 1: decode of session 0 rows 4:5, prefill of session 1 rows 0:3 against"
        r" decode of session 0 rows 4:5",
    ) as refused:
        judged(run(MIXED), run(APART), align="step")
    assert refused.value.hint == "align by position: --align position"
    with pytest.raises(IncomparableError) as refused:
        judged(run(MIXED, route="triton"), run(APART), align="step")
    assert "--align position with --atol/--rtol or --max-ulp" in refused.value.hint


class TestOrigins:
    """Along one session; what another session does to its rows is a source."""

    def origins(self, judged, steps, *changes, without=()):
        found = judged(
            run(steps, without=without), run(steps, change=every(*changes), without=without)
        )
        return {(b.step, b.session, b.name): b.origin for b in found.boundaries}

    def test_a_session_inherits_from_its_own_last_step_in_a_batch(self, judged):
        post, pre = "L0_kv_slice_post_write", "L0_kv_slice_pre_write"
        found = self.origins(judged, MIXED, at(post, 0, 0), at(pre, 1, 0), at(post, 1, 0))
        # swa_slots and such were not captured, yet nothing that was makes it a source
        assert found == {
            (0, 0, post): "source",
            (1, 0, pre): "inherited",
            (1, 0, post): "inherited",
        }

    def test_rows_that_another_session_overwrote_are_a_source(self, judged):
        """Session 1 stores in step 1; session 0 finds its old rows changed in step 2."""
        change = at("L0_kv_slice_pre_write", 2, 0), at("L0_kv_slice_post_write", 2, 0)
        found = self.origins(judged, MIXED, *change)
        assert list(found.values()) == ["source", "inherited"]

    def test_rows_that_another_span_of_the_batch_overwrote_are_a_source(self, judged):
        post = "L0_kv_slice_post_write"
        found = self.origins(judged, MIXED, at(post, 1, 0))
        assert found == {(1, 0, post): "source"}

    def test_what_differs_in_one_session_is_no_input_of_another(self, judged):
        changes = at("embedding_output", 1, 0), at("L0_kv_slice_post_write", 1, 1)
        found = self.origins(judged, MIXED, *changes)
        assert list(found.values()) == ["source", "source"]

    def test_a_reuse_goes_on_from_the_session_that_it_takes_over(self, judged):
        post, pre = "L0_kv_slice_post_write", "L0_kv_slice_pre_write"
        changes = at(post, 1, 0), at(pre, 2, 2), at("full_slots", 1, 0), at("full_slots", 2, 2)
        found = self.origins(judged, KEPT, *changes)
        assert found == {
            (1, 0, "full_slots"): "source",
            (1, 0, post): "inherited",  # from the slots
            (2, 2, "full_slots"): "inherited",
            (2, 2, pre): "inherited",
        }

    def test_a_reuse_inherits_from_the_step_that_wrote_the_rows(self, judged):
        """A sliding layer of the last step may no longer show them."""
        post, pre = "L0_kv_slice_post_write", "L0_kv_slice_pre_write"
        found = self.origins(judged, KEPT, at(post, 0, 0), at(pre, 2, 2))
        assert list(found.values()) == ["source", "inherited"]

    def test_control_without_the_reuse_nothing_is_inherited(self, judged):
        post, pre = "L0_kv_slice_post_write", "L0_kv_slice_pre_write"
        apart = (*KEPT[:2], batch(2, (1, 2, 3, "decode"), (2, 4, 8), actions=(keep(0),)))
        for step in (0, 1):
            found = self.origins(judged, apart, at(post, step, 0), at(pre, 2, 2))
            assert list(found.values()) == ["source", "source"]

    def test_kept_rows_that_somebody_changed_are_a_source(self, judged):
        found = self.origins(judged, KEPT, at("L0_kv_slice_pre_write", 2, 2))
        assert list(found.values()) == ["source"]

    def test_a_token_is_an_input_of_its_own_session(self, tmp_path):
        steps = (batch(0, (0, 0, 4), (1, 0, 3)), batch(1, (1, 3, 4, "decode"), (0, 4, 5, "decode")))

        def bundle(name, bad):
            made = run(steps, without={"logits"})
            items = []
            for record, array, store in made.items:
                if bad and (record.name, record.step) == ("input_ids", 1):
                    array = array + 1 if record.session == 1 else array
                    keys = {"step": 1, "session": record.session, "row_start": record.row_start}
                    made_ids = item(
                        points.INPUT_IDS, array, dtype="I64", occurrence=record.occurrence, **keys
                    )
                    items.append(made_ids)
                    continue
                items.append((record, array, store))
            last = max(index for index, made in enumerate(items) if made[0].step == 0)
            tokens = [
                item(
                    points.TOKEN,
                    np.array([5 + (bad and session == 1)]),
                    dtype="I64",
                    session=session,
                    occurrence=session,
                    row_start=3,
                )
                for session in (0, 1)
            ]
            made.items = [*items[: last + 1], *tokens, *items[last + 1 :]]
            return made.open(tmp_path / name)

        found = compare_bundles(bundle("a", False), bundle("b", True))
        assert found_in(found) == [(0, 1, "token", "unknown"), (1, 1, "input_ids", "inherited")]


@pytest.mark.parametrize(("reused", "parents"), [(True, []), (False, ["token"])])
def test_the_first_token_after_a_reuse_was_given(tmp_path, reused, parents):
    """It is in the prompt, whatever the other session generated; a session's own token is input."""
    steps = (
        batch(0, (0, 0, 4)),
        batch(1, (2, 4, 5, "decode"), actions=(keep(0), reuse(2, of=0, rows=4)))
        if reused
        else batch(1, (0, 4, 5, "decode")),
    )
    graph = InputGraph(run(steps).open(tmp_path / "a").manifest, lambda place: None)
    session = 2 if reused else 0
    ids = Place(step=1, stage=0, session=session, point="input_ids", layer=None)
    assert [parent.point for parent in graph.parents(ids)] == parents


def test_rows_of_another_session_that_are_all_compared_make_no_input_equal(judged):
    """By position, session 1 has two rows more on one side, in the step of session 0."""
    name = "after_layer_0"

    def origins(end, session):
        without = {f"L0_{each}" for each in ("attention_output", "kv_slice_post_write")}
        one, other = (
            run((batch(0, (0, 0, 6), (1, 0, rows)),), without=without, change=change)
            for rows, change in ((6, None), (end, at(name, 0, session, row=2)))
        )
        for each in (one, other):
            inputs = [
                item(point, made, layer=0, session=record.session, occurrence=record.session)
                for point in (points.ATTN_RESIDUAL, points.MLP_OUTPUT)
                for record, made, _ in each.items
                if record.name == "embedding_output"
            ]
            each.items = [*inputs, *(made for made in each.items if made[0].name == name)]
        found = judged(one, other, align="position", tolerance=Tolerance())
        return [(b.session, b.name, b.origin) for b in found.boundaries]

    assert origins(8, 1) == [(1, name, "unknown")]
    assert origins(8, 0) == [(0, name, "source")]
    assert origins(6, 1) == [(1, name, "source")]


def test_reuse_against_a_prefill_of_its_own(judged):
    """The new session has its rows from another one: they are compared where it shows them."""
    own = (KEPT[0], KEPT[1], batch(2, (1, 2, 3, "decode"), (2, 0, 8)))
    found = judged(run(KEPT), run(own), tolerance=Tolerance())
    assert (found.verdict, found.align) == (Verdict.IDENTICAL, "position")
    assert found.only_baseline == ()
    lacking = {(one.session, one.name, one.positions) for one in found.only_target}
    assert (2, "L0_attention_output", (0, 4)) in lacking
    assert not any("kv_slice_post_write" in name for _, name, _ in lacking)
    bad = run(KEPT, change=at("L0_kv_slice_post_write", 2, 2, row=1))
    found = judged(bad, run(own), tolerance=Tolerance())
    assert [(b.step, b.session, b.name) for b in found.boundaries] == [
        (2, 2, "L0_kv_slice_post_write")
    ]
    assert found.first.numbers.positions == (1,)


def test_actions_that_differ_are_said(judged):
    other = (KEPT[0], KEPT[1], batch(2, (1, 2, 3, "decode"), (2, 4, 8), actions=(finish(0),)))
    found = judged(run(KEPT), run(other, final_actions=(finish(1),), fill="nan", shadow=False))
    assert found.align == "step"
    assert found.differences == (
        "lifecycle (keep 0 before step 2, reuse 4 rows of 0 for 2 before step 2"
        " against finish 0 before step 2, finish 1 at the end)",
        "fill of memory that nobody wrote (zero against nan)",
        "ownership shadow (on against off)",
    )


class TestDeterminism:
    def repeats(self, *changes, steps=MIXED, layers=CHAIN):
        repeats = [
            [record for record, _, _ in run(steps, layers=layers, change=change).items]
            for change in changes
        ]
        return classify(repeats, [(1,)] * len(repeats))

    @pytest.mark.parametrize("session", [0, 1])
    def test_the_session_that_varies_is_named(self, session):
        found = self.repeats(None, at("L0_attention_output", 2, session), None)
        (bad,) = [each for each in found.points if each.distinct > 1]
        assert (bad.step, bad.session, bad.name) == (2, session, "L0_attention_output")
        assert (bad.classes, bad.deviating) == ((2, 1), (1,))
        assert found.first_value_varying == bad
        assert found.several_sessions

    def test_the_output_of_any_session_counts(self):
        for session in (0, 1):
            found = self.repeats(None, at("logits", 2, session))
            assert found.outputs_vary == (2,)
        assert self.repeats(None, at("boundary_send_hidden", 2, 1)).outputs_vary == ()

    def test_every_boundary_is_one(self):
        found = self.repeats(None, None)
        assert found.verdict == "DETERMINISTIC"
        places = {(each.step, each.stage, each.session, each.name) for each in found.points}
        assert len(places) == len(found.points) == len(run(MIXED, layers=CHAIN).items)

    def test_repeats_whose_spans_change_places_are_not_equal(self):
        one, other = ([record for record, _, _ in run(steps).items] for steps in (MIXED, SWAPPED))
        found = classify([one, other], [(1,)] * 2)
        assert found.only_some
        assert {each.session for each in found.only_some} == {0, 1}

    def test_control_one_session_is_not_several(self):
        assert not self.repeats(None, steps=ALONE).several_sessions
