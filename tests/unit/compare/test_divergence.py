"""Comparison by step."""

import msgspec
import numpy as np
import pytest
from safetensors import safe_open

from swarepro import points
from swarepro.bundle.read import Bundle
from swarepro.compare.divergence import MAX_SOURCES, compare_bundles
from swarepro.compare.types import Tolerance, Verdict
from swarepro.errors import BundleError, IncomparableError, UsageError
from tests.unit.bundle.factory import Run, item, small_run, spans, stages


def values(seed=0, rows=4, columns=3):
    return np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)


def layer_run(changed=(), **more):
    """A run of 12 layers, boundary level; ``changed`` layers differ in row 2."""
    items = [item(points.EMBEDDING_OUTPUT, values(99))]
    for layer in range(12):
        array = values(layer)
        if layer in changed:
            array[2] += 0.01
        items.append(item(points.AFTER_LAYER, array, layer=layer))
    return Run(items=items, num_layers=12, stages=stages((0, 12)), **more)


@pytest.fixture
def opened(tmp_path):
    def open_all(*runs: Run) -> list[Bundle]:
        return [run.open(tmp_path / str(index)) for index, run in enumerate(runs)]

    open_all.folder = tmp_path
    return open_all


def test_equal_bundles_open_no_tensor(opened):
    found = compare_bundles(*opened(layer_run(), layer_run()))
    assert found.verdict is Verdict.IDENTICAL
    assert (found.compared, found.tensors_opened, found.boundaries) == (13, 0, ())
    assert found.first is found.first_state is found.first_value is found.last_identical is None
    assert found.exact
    assert not found.tokens_differ
    assert (found.align, found.tolerance, found.skipped) == ("step", None, ())


def test_the_first_divergence_its_numbers_and_what_came_before(opened):
    found = compare_bundles(*opened(layer_run(), layer_run(changed=(7, 8, 9))))
    assert found.verdict is Verdict.DIVERGED
    assert [item.name for item in found.boundaries] == [f"after_layer_{g}" for g in (7, 8, 9)]
    assert found.first == found.first_value == found.boundaries[0]
    assert found.first.numbers.rows == found.first.numbers.positions == (2,)
    assert found.first_state is None
    assert found.last_identical.name == "after_layer_6"
    assert found.last_identical.verdict is Verdict.IDENTICAL
    assert not found.exact  # what after_layer_7 is computed from was not captured
    assert [item.origin for item in found.boundaries] == ["unknown", "inherited", "inherited"]
    assert found.tensors_opened == 2


def test_a_second_origin_after_an_identical_boundary(opened):
    found = compare_bundles(*opened(layer_run(), layer_run(changed=(3, 7, 8))))
    assert [(item.layer, item.origin) for item in found.boundaries] == [
        (3, "unknown"),
        (7, "unknown"),
        (8, "inherited"),
    ]
    assert [item.numbers is not None for item in found.boundaries] == [True, True, False]


def test_only_so_many_sources_are_opened(opened):
    def of_steps(added):
        steps = range(20)
        ids = [item(points.INPUT_IDS, np.arange(4), dtype="I64", step=s) for s in steps]
        hidden = [item(points.EMBEDDING_OUTPUT, values(s) + added, step=s) for s in steps]
        return Run(
            items=[pair for both in zip(ids, hidden, strict=True) for pair in both],
            steps=spans(*((4 * s, 4 * s + 4) for s in steps)),
        )

    bundles = opened(of_steps(0), of_steps(1))
    found = compare_bundles(*bundles)
    assert [item.origin for item in found.boundaries] == ["source"] * 20
    assert found.tensors_opened == 2 * MAX_SOURCES
    tolerated = compare_bundles(*bundles, tolerance=Tolerance(atol=2.0))
    assert tolerated.tensors_opened == 40
    assert tolerated.verdict is Verdict.WITHIN_TOLERANCE


def test_noise_in_123_of_200_tensors_is_found_in_execution_order(tmp_path):
    """The peers say "200 passed", or name the tensor that comes first in the file."""
    rng = np.random.default_rng(0)

    def run(noisy):
        items = []
        for layer in range(200):
            array = values(layer, rows=8, columns=8)
            if noisy and layer >= 77:
                array = array * (1 + 0.01 * rng.normal(size=array.shape).astype(np.float32))
            # Every third tensor is wider, which puts it in front of the others in the file.
            wide = layer % 3 == 1
            items.append(
                item(points.AFTER_LAYER, array, layer=layer, dtype="F64" if wide else "F32")
            )
        return Run(items=items, num_layers=200, stages=stages((0, 200)), steps=spans((0, 8)))

    pair = run(False).open(tmp_path / "a"), run(True).open(tmp_path / "b")
    with safe_open(tmp_path / "b/tensors/step-0000.safetensors", framework="np") as file:
        in_file = [key for key in file.offset_keys() if int(key.split("_")[-1]) >= 77]
    assert in_file[0] != "after_layer_77"  # else the test shows nothing
    found = compare_bundles(*pair)
    assert found.verdict is Verdict.DIVERGED
    assert len(found.boundaries) == 123
    assert found.first.name == "after_layer_77"
    assert found.last_identical.name == "after_layer_76"
    assert [item.layer for item in found.boundaries] == list(range(77, 200))
    assert compare_bundles(pair[0], pair[0]).verdict is Verdict.IDENTICAL


def test_state_and_value_are_two_answers(opened):
    def run(changed):
        slots = np.arange(4)
        kv = np.ones((4, 2, 1, 2), np.float32)
        kv[1, 0] += changed
        out = np.ones((4, 1, 2), np.float32) + changed
        return Run(
            items=[
                item(points.FULL_SLOTS, np.arange(4), dtype="I64"),
                item(points.SWA_SLOTS, slots + int(changed), dtype="I64"),
                item(points.KV_SLICE_POST_WRITE, kv, layer=0),
                item(points.ATTENTION_OUTPUT, out, layer=0),
            ]
        )

    found = compare_bundles(*opened(run(0), run(1)))
    assert found.first.name == "swa_slots"
    assert found.first_state.name == "L0_kv_slice_post_write"
    assert found.first_state.numbers.heads == (0,)
    assert found.first_value.name == "L0_attention_output"
    assert [item.origin for item in found.boundaries] == ["source", "inherited", "inherited"]
    # Of what the store and the value are computed from, a store and values were not captured.
    assert (found.exact, found.exact_state, found.exact_value) == (True, False, False)


class TestNothingToCompare:
    def test_an_empty_bundle(self, opened):
        with pytest.raises(IncomparableError, match="is empty"):
            compare_bundles(*opened(layer_run(), Run(items=[])))

    def test_no_common_boundary(self, opened):
        one = Run(items=[item(points.AFTER_LAYER, values(), layer=0)])
        other = Run(items=[item(points.AFTER_LAYER, values(), layer=1)])
        with pytest.raises(IncomparableError, match="no boundary is in both") as caught:
            compare_bundles(*opened(one, other))
        assert caught.value.exit_code == 2
        assert caught.value.hint

    def test_digests_alone_under_a_tolerance(self, opened):
        one = Run(items=[item(points.AFTER_LAYER, values(0), layer=0, store=False)])
        other = Run(items=[item(points.AFTER_LAYER, values(1), layer=0, store=False)])
        bundles = opened(one, other)
        with pytest.raises(IncomparableError, match="--store tensor"):
            compare_bundles(*bundles, tolerance=Tolerance(atol=1))
        found = compare_bundles(*bundles)  # bitwise, digests are enough
        assert found.verdict is Verdict.DIVERGED
        assert found.first.numbers is None
        assert found.tensors_opened == 0


def test_what_could_not_be_judged_is_no_pass(opened):
    one, other = layer_run(), layer_run(changed=(5,))
    other.items[6] = (*other.items[6][:2], False)
    bundles = opened(one, other)
    found = compare_bundles(*bundles, tolerance=Tolerance(atol=1))
    assert found.verdict is Verdict.INCOMPARABLE
    assert found.compared == 12
    assert "--store tensor" in found.boundaries[0].reason
    assert compare_bundles(*bundles).verdict is Verdict.DIVERGED


class TestOneSided:
    def test_they_are_listed_and_weaken_the_answer(self, opened):
        one, other = layer_run(), layer_run(changed=(7,))
        del one.items[3]  # after_layer_2
        found = compare_bundles(*opened(one, other))
        assert [item.name for item in found.only_target] == ["after_layer_2"]
        assert found.only_baseline == ()
        assert not found.exact

    @pytest.mark.parametrize(
        ("missing", "exact", "exact_value"),
        [
            (points.INPUT_IDS, False, False),  # before the first
            (points.FULL_SLOTS, False, False),
            (points.EMBEDDING_OUTPUT, True, False),  # before the first value, and a value
            (points.MLP_GATE_UP, True, False),
            (points.KV_SLICE_PRE_WRITE, True, True),  # before the first value, and none
            (points.LOGITS, True, True),  # after both
        ],
        ids=lambda value: getattr(value, "name", None),
    )
    @pytest.mark.parametrize("side", ["baseline", "target"])
    def test_they_weaken_what_they_may_hide(self, opened, missing, exact, exact_value, side):
        """The first boundary is swa_slots, the first value after_layer_0."""

        def run(added, without):
            ids, hidden, logits = np.arange(4), values(1), values(2, rows=1)
            kv = np.ones((4, 2, 1, 2), np.float32)
            items = [
                item(points.INPUT_IDS, ids, dtype="I64"),
                item(points.FULL_SLOTS, ids, dtype="I64"),
                item(points.SWA_SLOTS, ids + added, dtype="I64"),
                item(points.EMBEDDING_OUTPUT, hidden),
                item(points.KV_SLICE_PRE_WRITE, kv, layer=0),
                item(points.ATTN_RESIDUAL, hidden, layer=0),
                item(points.MLP_GATE_UP, hidden, layer=0),
                item(points.MLP_OUTPUT, hidden, layer=0),
                item(points.AFTER_LAYER, hidden + added, layer=0),
                item(points.LOGITS, logits, row_start=3),
            ]
            return Run(items=[entry for entry in items if entry[0].point != without])

        pair = {"baseline": run(0, None), "target": run(1, None)}
        found = compare_bundles(*opened(*pair.values()))
        assert (found.first.name, found.first_value.name) == ("swa_slots", "after_layer_0")
        assert (found.exact, found.exact_value) == (True, True)
        lacking = run(int(side == "target"), missing.name)
        # A filter on both sides is another matter: see test_origin.
        bundles = [
            (lacking if side == name else whole).open(opened.folder / f"{name}-")
            for name, whole in pair.items()
        ]
        found = compare_bundles(*bundles)
        assert (found.exact, found.exact_value) == (exact, exact_value)

    def test_what_was_refused_before_the_first_weakens_it_too(self, opened):
        def run(added, store):
            return Run(
                items=[
                    item(points.EMBEDDING_OUTPUT, values() + added, store=store),
                    item(points.ATTN_RESIDUAL, values(2), layer=0),
                    item(points.MLP_OUTPUT, values(1), layer=0),
                    item(points.AFTER_LAYER, values(3) + 5 * added, layer=0),
                ]
            )

        bundles = opened(run(0, True), run(1, True), run(1, False))
        near = Tolerance(atol=1.5)
        found = compare_bundles(*bundles[:2], tolerance=near)
        assert (found.first.name, found.first.origin, found.exact) == (
            "after_layer_0",
            "source",
            True,
        )
        found = compare_bundles(bundles[0], bundles[2], tolerance=near)
        assert (found.first.origin, found.exact) == ("source", False)

    def test_without_a_divergence_they_are_what_is_not_known(self, opened):
        one, other = layer_run(), layer_run()
        del other.items[11]
        found = compare_bundles(*opened(one, other))
        assert (found.verdict, found.exact) == (Verdict.IDENTICAL, False)
        assert [(one.name, one.positions) for one in found.only_baseline] == [
            ("after_layer_10", None)
        ]


def staged(*ranges):
    """The same run split into stages, with what only a chain captures."""
    items = []
    for rank, (start, end) in enumerate(ranges):
        at = {"stage": rank}
        items.append(item(points.INPUT_IDS, np.arange(4), dtype="I64", occurrence=rank, **at))
        items.append(
            item(
                points.ROUTE,
                np.zeros(end - start),
                dtype="I64",
                occurrence=rank,
                row_start=None,
                **at,
            )
        )
        if start == 0:
            items.append(item(points.EMBEDDING_OUTPUT, values(99), **at))
        else:
            recv = values(start - 1)
            items.append(item(points.BOUNDARY_RECV_HIDDEN, recv, occurrence=rank - 1, **at))
        items += [
            item(points.AFTER_LAYER, values(layer), layer=layer, **at)
            for layer in range(start, end)
        ]
        if end < 12:
            send = values(end - 1)
            items.append(item(points.BOUNDARY_SEND_HIDDEN, send, occurrence=rank, **at))
        else:
            items.append(item(points.LOGITS, values(7, rows=1), row_start=3, **at))
    return Run(items=items, stages=stages(*ranges), num_layers=12)


class TestStages:
    def test_three_stages_match_one_at_every_shared_boundary(self, opened):
        found = compare_bundles(*opened(staged((0, 4), (4, 8), (8, 12)), staged((0, 12))))
        assert found.verdict is Verdict.IDENTICAL
        assert found.align == "step"
        assert found.compared == 15  # ids, embedding, 12 layers, logits
        assert found.only_target == ()
        assert {item.name for item in found.only_baseline} == {
            "input_ids#1",
            "input_ids#2",
            "boundary_recv_hidden",
            "boundary_recv_hidden#1",
            "boundary_send_hidden",
            "boundary_send_hidden#1",
        }
        assert found.skipped == ("route",)

    def test_edges_match_by_layer_and_not_by_number(self, opened):
        found = compare_bundles(*opened(staged((0, 4), (4, 8), (8, 12)), staged((0, 8), (8, 12))))
        assert found.verdict is Verdict.IDENTICAL
        names = [item.name for item in found.only_baseline]
        assert names.count("boundary_send_hidden") == 1  # at layer 4; the one at 8 matches

    def test_a_send_that_differs_from_its_receive(self, opened):
        one, other = staged((0, 4), (4, 12)), staged((0, 4), (4, 12))
        where = next(
            place
            for place, (record, _, _) in enumerate(other.items)
            if record.name == "boundary_recv_hidden"
        )
        other.items[where] = item(points.BOUNDARY_RECV_HIDDEN, values(1000), stage=1)
        other.items[where + 1] = item(points.AFTER_LAYER, values(1001), stage=1, layer=4)
        found = compare_bundles(*opened(one, other))
        assert [(item.name, item.origin) for item in found.boundaries] == [
            ("boundary_recv_hidden", "source"),
            ("after_layer_4", "inherited"),
        ]
        assert found.skipped == ()


class TestTolerance:
    def test_within(self, opened):
        bundles = opened(layer_run(), layer_run(changed=(7, 8)))
        found = compare_bundles(*bundles, tolerance=Tolerance(atol=0.02))
        assert found.verdict is Verdict.WITHIN_TOLERANCE
        assert [item.verdict for item in found.boundaries] == [Verdict.WITHIN_TOLERANCE] * 2
        assert found.first is None
        assert found.boundaries[0].origin is None
        assert found.boundaries[0].numbers.max_abs == pytest.approx(0.01, rel=1e-3)
        assert found.tensors_opened == 4

    def test_beyond(self, opened):
        bundles = opened(layer_run(), layer_run(changed=(7, 8)))
        found = compare_bundles(*bundles, tolerance=Tolerance(atol=0.001))
        assert found.verdict is Verdict.DIVERGED
        assert found.first.name == "after_layer_7"

    def test_an_input_within_tolerance_does_not_hide_a_source(self, opened):
        other = layer_run(changed=(6,))
        array = values(7)
        array[0] += 1
        other.items[8] = item(points.AFTER_LAYER, array, layer=7)
        found = compare_bundles(*opened(layer_run(), other), tolerance=Tolerance(atol=0.02))
        assert [(item.layer, item.origin) for item in found.boundaries] == [
            (6, None),
            (7, "unknown"),
        ]

    @pytest.mark.parametrize(
        "change", [{"route": "triton"}, {"device": "cuda"}, {"dtype": "bfloat16"}]
    )
    def test_it_is_required_across(self, opened, change):
        bundles = opened(layer_run(), layer_run(**change))
        with pytest.raises(IncomparableError, match=next(iter(change))) as caught:
            compare_bundles(*bundles)
        assert "--atol" in caught.value.hint
        assert compare_bundles(*bundles, tolerance=Tolerance()).verdict is Verdict.IDENTICAL

    @pytest.mark.parametrize(
        "tolerance",
        [Tolerance(atol=-1), Tolerance(rtol=float("nan")), Tolerance(atol=float("inf"))],
    )
    def test_nonsense_is_refused(self, opened, tolerance):
        with pytest.raises(UsageError):
            compare_bundles(*opened(layer_run(), layer_run()), tolerance=tolerance)

    def test_a_wrong_token_is_never_tolerated(self, opened):
        pair = [
            Run(items=[item(points.TOKEN, np.array([token]), dtype="I64")])
            for token in (1000, 1001)
        ]
        found = compare_bundles(*opened(*pair), tolerance=Tolerance(atol=5, rtol=5))
        assert found.verdict is Verdict.DIVERGED
        assert found.first.numbers.num_mismatched == 1

    def test_ulps_between_dtypes_have_no_meaning(self, opened):
        pair = [
            Run(items=[item(points.AFTER_LAYER, values(), layer=0, dtype=dtype)])
            for dtype in ("F32", "F64")
        ]
        bundles = opened(*pair)
        with pytest.raises(IncomparableError, match="are not ULPs of"):
            compare_bundles(*bundles, tolerance=Tolerance(max_ulp=3))
        found = compare_bundles(*bundles, tolerance=Tolerance(atol=1e-9))
        assert found.verdict is Verdict.WITHIN_TOLERANCE
        found = compare_bundles(*bundles)
        assert found.first.reason == "dtype F32 against F64"

    def test_another_route_is_no_divergence_where_routes_differ_by_intent(self, opened):
        pair = [
            Run(
                items=[
                    item(points.ROUTE, np.array([code, code]), dtype="I64", row_start=None),
                    item(points.AFTER_LAYER, values(), layer=0),
                ],
                route=route,
            )
            for code, route in ((0, "eager"), (1, "triton"))
        ]
        found = compare_bundles(*opened(*pair), tolerance=Tolerance(atol=1))
        assert (found.verdict, found.skipped) == (Verdict.IDENTICAL, ("route",))


def test_another_shape_is_a_divergence_with_a_reason(opened):
    pair = [Run(items=[item(points.AFTER_LAYER, values(columns=n), layer=0)]) for n in (3, 4)]
    bundles = opened(*pair)
    for tolerance in (None, Tolerance(atol=1)):
        found = compare_bundles(*bundles, tolerance=tolerance)
        assert found.verdict is Verdict.DIVERGED
        assert found.first.reason == "shape [4, 3] against [4, 4]"


def test_tokens_that_differ_are_a_finding_even_where_no_boundary_shows_it(opened):
    found = compare_bundles(*opened(layer_run(), layer_run(tokens=((8,),))))
    assert found.tokens_differ
    assert found.verdict is Verdict.DIVERGED
    assert found.first is None


def test_other_prompts_diverge_at_the_ids(opened):
    one, other = small_run(), small_run()
    other.items[0] = item(points.INPUT_IDS, np.array([5, 1, 2]), dtype="I64")
    other.prompts = ((5, 1, 2),)
    found = compare_bundles(*opened(one, other))
    assert found.first.name == "input_ids"
    assert found.first.origin == "source"


def test_step_alignment_of_other_steps_names_the_first(opened):
    one, other = layer_run(), layer_run(steps=spans((0, 3), (3, 4)))
    other.items = [other.items[0]]
    with pytest.raises(IncomparableError, match=r"step 0: prefill of session 0 rows 0:4 against"):
        compare_bundles(*opened(one, other), align="step")


def test_verify_finds_what_digests_cannot(opened, tmp_path):
    bundles = opened(layer_run(), layer_run())
    file = tmp_path / "1/tensors/step-0000.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert compare_bundles(*bundles).verdict is Verdict.IDENTICAL  # records say so
    with pytest.raises(BundleError, match="has digest"):
        compare_bundles(*bundles, verify=True)


def test_a_damaged_tensor_is_no_divergence(opened, tmp_path):
    bundles = opened(layer_run(), layer_run(changed=(7,)))
    file = tmp_path / "1/tensors/step-0000.safetensors"
    data = bytearray(file.read_bytes())
    start = data.index(values(7)[0].tobytes())
    data[start] ^= 1
    file.write_bytes(data)
    with pytest.raises(BundleError, match="after_layer_7"):
        compare_bundles(*bundles)


def test_progress_is_reported(opened):
    seen = []
    compare_bundles(
        *opened(layer_run(), layer_run(changed=(7, 8))),
        verify=True,
        progress=lambda what, done, total: seen.append((what.split()[0], done, total)),
    )
    assert ("verifying", 0, 2) in seen
    assert all(0 <= done < total for _, done, total in seen)
    assert {what for what, _, _ in seen} == {"verifying", "comparing"}


def test_occurrences_show_in_names(opened):
    record = item(points.INPUT_IDS, np.arange(4), dtype="I64")[0]
    assert msgspec.structs.replace(record, occurrence=2).key == "input_ids#2"


def test_digests_judge_integers_under_a_tolerance(opened):
    pair = [
        Run(items=[item(points.INPUT_IDS, np.arange(4) + added, dtype="I64", store=False)])
        for added in (0, 1)
    ]
    found = compare_bundles(*opened(*pair), tolerance=Tolerance(atol=9))
    assert found.verdict is Verdict.DIVERGED
    assert found.tensors_opened == 0


@pytest.mark.parametrize("row", [0, 262, 263, 599])
def test_a_tensor_of_several_windows(opened, row):
    def run(changed):
        array = values(rows=600, columns=1000)  # 2.3 MiB: 262 rows fill a window
        if changed:
            array[row, 999] += 1
        return Run(items=[item(points.EMBEDDING_OUTPUT, array)], steps=spans((0, 600)))

    bundles = opened(run(False), run(True))
    for tolerance in (None, Tolerance(atol=0.5)):
        numbers = compare_bundles(*bundles, tolerance=tolerance).first.numbers
        assert numbers.rows == numbers.positions == (row,)
        assert numbers.first_mismatch == (row, 999)
        assert (numbers.num_elements, numbers.num_mismatched) == (600_000, 1)
        wanted = 1 / np.linalg.norm(values(rows=600, columns=1000).astype(np.float64))
        assert numbers.relative_l2 == pytest.approx(wanted, rel=1e-5)
