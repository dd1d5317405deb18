"""Two hand-made runs against a hand-made floor: each class, and what speaks for it."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from swarepro import points
from swarepro.compare.assess import assess_bundles, floor_kind
from swarepro.compare.assessment import VerdictClass
from swarepro.compare.floor import FloorEntry
from swarepro.errors import BundleError, IncomparableError, UsageError
from swarepro.report.assessment import assessment_report
from tests.unit.bundle.factory import Run, item, stages
from tests.unit.compare.assessing import ROWS, chain, entries, large, run, small
from tests.unit.compare.test_floor import floor


def test_equal_runs_are_identical(assessed) -> None:
    found = assessed(run(), run())
    assert found.verdict is VerdictClass.IDENTICAL
    assert (found.compared, found.identical, found.above, found.within) == (10, 10, (), ())


def test_what_lies_within_the_floor_is_noise(assessed) -> None:
    found = assessed(run(), run(small))
    assert found.verdict is VerdictClass.NOISE
    assert (len(found.within), found.above, found.first) == (9, (), None)
    assert found.floor_kind == "order"


def test_what_lies_above_it_is_wrong_from_there_on(assessed) -> None:
    found = assessed(run(), run(large))
    assert found.verdict is VerdictClass.WRONG
    assert found.first == found.above[0]
    assert (found.first.name, found.first.step, found.first.layer) == ("L2_attention_output", 0, 2)
    assert found.first.positions == (3, 4, 5)
    assert (found.first.heads, found.first.num_heads) == ((1,), 2)
    assert not found.first.is_source  # noise before it
    assert [each.name for each in found.above] == [
        "L2_attention_output",
        "after_layer_2",
        "after_layer_3",
        "logits",
    ]
    added = {layer.layer: layer.added for layer in found.growth}
    assert added[2] > 20 * added[1]


def test_rows_are_joined_whatever_the_chunks(assessed) -> None:
    found = assessed(run(), run(large, steps=((0, 4), (4, ROWS))))
    assert found.verdict is VerdictClass.WRONG
    assert (found.first.name, found.first.positions) == ("L2_attention_output", (3, 4, 5))
    assert found.only_target == ("logits",)  # of the chunk's last row


def test_the_first_to_differ_is_held_to_one_operation(assessed) -> None:
    """The same error is wrong where nothing before it differs, and noise behind other noise."""

    def at(name: str):
        def change(point: str, rows: np.ndarray) -> None:
            if point == name:
                rows *= 1 + 5e-3

        return change

    alone = assessed(run(), run(at("L1_attention_output")))
    assert alone.verdict is VerdictClass.WRONG
    assert alone.first.is_source


def test_behind_noise_precision_counts(assessed) -> None:
    def change(point: str, rows: np.ndarray) -> None:
        if point == "embedding_output":
            rows *= 1 + 8e-4
        if point == "L1_attention_output":
            rows *= 1 + 4e-3

    assert assessed(run(), run(change)).verdict is VerdictClass.NOISE


def test_a_few_values_of_many_rows_are_seen_together(assessed) -> None:
    """Each row is below the limit of a vector; all of them are above that of the whole."""
    found = assessed(
        run(),
        run(lambda name, rows: rows.__imul__(1.0012) if name == "L0_attention_output" else None),
    )
    assert found.verdict is VerdictClass.WRONG
    assert found.first.worst < found.first.limit
    assert len(found.first.positions) == ROWS


@pytest.mark.parametrize("large", [1.0, 1000.0])
def test_a_wrong_row_is_no_noise_beside_a_large_one(assessed, large: float) -> None:
    """As the first row of a prompt may be; with 1.0 it is as the others are."""

    def healthy(name: str, rows: np.ndarray) -> None:
        if name.startswith("after_layer"):
            rows[0] *= large

    def wrong(name: str, rows: np.ndarray) -> None:
        healthy(name, rows)
        small(name, rows)
        if name == "after_layer_2":
            rows[4] *= -1

    found = assessed(run(healthy), run(wrong))
    assert found.verdict is VerdictClass.WRONG
    assert (found.first.name, found.first.positions) == ("after_layer_2", (4,))
    assert not found.first.is_source  # noise before it


def test_another_engine_is_held_to_precision(assessed) -> None:
    def change(point: str, rows: np.ndarray) -> None:
        rows *= 1 + 5e-3

    found = assessed(run(), run(change, engine="other 1.0"))
    assert (found.verdict, found.floor_kind) == (VerdictClass.NOISE, "precision")


def test_other_tokens_from_equal_logits_are_a_tie(assessed) -> None:
    found = assessed(run(), run(tokens=((7, 3),)))
    assert found.verdict is VerdictClass.TIE
    (flip,) = found.flips
    assert (flip.position, flip.baseline, flip.target, flip.equal) == (5, 8, 3, True)


def test_rows_behind_another_token_are_left_out(assessed) -> None:
    """Position 5 holds the first token that was generated; the runs chose another one there."""

    def change(point: str, rows: np.ndarray) -> None:
        small(point, rows)
        rows[5] *= -1

    found = assessed(
        run(steps=((0, 5), (5, 6)), tokens=((7, 8),)),
        run(change, steps=((0, 5), (5, 6)), tokens=((3, 8),)),
    )
    assert found.verdict is VerdictClass.NOISE
    (flip,) = found.flips
    assert (flip.session, flip.position, flip.equal) == (0, 4, False)
    assert flip.baseline_gap is not None
    assert flip.apart > 0
    assert found.only_baseline == found.only_target == ()


def test_a_prompt_that_nobody_wrote_down_is_as_long_as_its_steps(assessed) -> None:
    """Two imports without ids of what went in: the rows before the other token still count."""
    sides = [run(tokens=tokens) for tokens in (((7, 8),), ((3, 8),))]
    for side in sides:
        side.prompts = ((),)
    found = assessed(*sides)
    assert found.verdict is VerdictClass.TIE
    assert [flip.position for flip in found.flips] == [ROWS - 1]


def test_the_row_that_chose_another_token_still_counts(assessed) -> None:
    def change(point: str, rows: np.ndarray) -> None:
        if point == "L1_attention_output":
            rows[4] *= -1

    sides = [run(steps=((0, 5), (5, 6)))] * 2
    sides[1] = run(change, steps=((0, 5), (5, 6)), tokens=((3, 8),))
    found = assessed(*sides)
    assert found.verdict is VerdictClass.WRONG
    assert found.first.positions == (4,)


def test_the_first_is_the_first_that_was_computed(assessed) -> None:
    """Of the boundary that comes first in a step, a row of a later step is off."""

    def change(point: str, rows: np.ndarray) -> None:
        if point == "L0_attention_output":
            rows[4] *= -1
        if point == "L1_attention_output":
            rows[1] *= -1

    found = assessed(run(steps=((0, 3), (3, 6))), run(change, steps=((0, 3), (3, 6))))
    assert [(each.step, each.name) for each in found.above] == [
        (0, "L1_attention_output"),
        (1, "L0_attention_output"),
    ]


@pytest.mark.parametrize(("steps", "positions"), [(((0, 6),), (1, 3)), (((0, 4), (4, 6)), (1,))])
def test_of_equal_steps_all_rows_that_differ_at_a_source_are_off(
    assessed, steps: tuple[tuple[int, int], ...], positions: tuple[int, ...]
) -> None:
    """They had to agree to the byte there; with other steps a small difference is rounding."""

    def change(point: str, rows: np.ndarray) -> None:
        if point == "L1_attention_output":
            rows[1] *= -1
            rows[3] *= 1 + 1e-5

    found = assessed(run(), run(change, steps=steps))
    assert (found.first.name, found.first.positions) == ("L1_attention_output", positions)


def test_of_another_engine_rows_within_the_floor_are_not_off(assessed) -> None:
    """Its bytes are its own, whatever the steps: there only what is above the floor counts."""

    def change(point: str, rows: np.ndarray) -> None:
        if point == "L1_attention_output":
            rows[1] *= -1
            rows[3] *= 1 + 1e-5

    found = assessed(run(), run(change, engine="other 1.0"))
    assert (found.first.name, found.first.positions) == ("L1_attention_output", (1,))


def test_rows_that_are_off_together_are_all_named(assessed) -> None:
    """Each is just below the limit of the whole: an error counts a typical norm, not its own."""

    def uneven(point: str, rows: np.ndarray) -> None:
        if point == "embedding_output":
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            rows[:2] *= 0.01

    def change(point: str, rows: np.ndarray) -> None:
        uneven(point, rows)
        if point == "embedding_output":
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            typical = np.sqrt((norms**2).mean())
            rows += 0.9e-3 * np.maximum(norms, typical) * rows / norms

    found = assessed(run(uneven), run(change))
    assert found.verdict is VerdictClass.WRONG
    assert found.first.limit_l2 == pytest.approx(1e-3)
    assert found.first.worst < found.first.limit_l2 < found.first.relative_l2
    assert found.first.positions == tuple(range(ROWS))


def test_the_bytes_of_other_positions_are_no_equal_rows(assessed) -> None:
    """The target shows at 1 to 3 what the baseline has at 0 to 2: one digest, other rows."""
    rows = np.random.default_rng(8).normal(size=(3, 8)).astype(np.float32)
    sides = []
    for start, steps in ((0, ((0, 3), (3, ROWS))), (1, ((0, 1), (1, 4), (4, ROWS)))):
        made = run(steps=steps)
        made.items = [item(points.AFTER_LAYER, rows, layer=0, step=start, row_start=start)]
        sides.append(made)
    assert sides[0].items[0][0].digest == sides[1].items[0][0].digest
    found = assessed(*sides)
    assert found.verdict is VerdictClass.WRONG
    assert found.first.positions == (1, 2)


def test_rows_of_another_shape_have_no_verdict(assessed) -> None:
    target = run()
    place = next(i for i, made in enumerate(target.items) if made[0].name == "after_layer_1")
    target.items[place] = item(points.AFTER_LAYER, np.ones((ROWS, 4), "f4"), layer=1)
    found = assessed(run(), target)
    assert found.verdict is VerdictClass.INCOMPARABLE
    assert found.reason == "after_layer_1 of step 0 differs, and rows of shape [4] and [8]"


def test_steps_of_two_dtypes_have_no_verdict(assessed) -> None:
    steps = ((0, 4), (4, ROWS))
    target = run(small, steps=steps)
    for place, (record, array, _) in enumerate(target.items):
        if (record.name, record.step) == ("after_layer_1", 1):
            target.items[place] = item(
                points.AFTER_LAYER, array, dtype="F64", layer=1, step=1, row_start=4
            )
    found = assessed(run(steps=steps), target)
    assert found.verdict is VerdictClass.INCOMPARABLE
    assert found.reason.endswith("the target's steps disagree about the dtype")


@pytest.mark.parametrize(
    ("has_floor", "reason"),
    [
        (False, "L0_attention_output of step 0 differs, and the floor says nothing of it"),
        (True, "L1_attention_output of step 0 differs, and the target has digests only"),
    ],
)
def test_the_reason_is_that_of_the_first_that_has_no_verdict(
    assessed, has_floor: bool, reason: str
) -> None:
    target = run(small)
    for place, (record, array, _) in enumerate(target.items):
        if record.name == "L1_attention_output":
            target.items[place] = (record, array, False)
        if record.name == "after_layer_3":
            target.items[place] = item(points.AFTER_LAYER, np.ones((ROWS, 4), "f4"), layer=3)
    made = [each for each in entries() if has_floor or each.layer != 0]
    found = assessed(run(), target, made=made)
    assert [each.name for each in found.unjudged][-2:] == ["L1_attention_output", "after_layer_3"]
    assert found.reason.startswith(reason)


def test_what_has_no_verdict_behind_the_first_is_not_before_it(assessed) -> None:
    def change(point: str, rows: np.ndarray) -> None:
        if point == "after_layer_1":
            rows[2] *= 2
        if point == "L3_attention_output":
            small(point, rows)

    found = assessed(run(), run(change), made=[each for each in entries() if each.layer != 3])
    assert [each.name for each in found.unjudged] == ["L3_attention_output"]
    assert (found.first.name, found.unjudged_before) == ("after_layer_1", 0)


@pytest.mark.parametrize("other", [7, 3])
def test_rows_of_one_side_behind_another_token_are_no_lack(assessed, other: int) -> None:
    """A run that went on for a step more; its rows there have other inputs, or they are missing."""
    found = assessed(run(steps=((0, 5), (5, 6))), run(steps=((0, 5),), tokens=((other, 8),)))
    assert ("after_layer_3" in found.only_baseline) is (other == 7)
    assert found.only_target == ()


def test_growth_tells_what_a_layer_added(assessed) -> None:
    """One layer's stream is off; what the layer behind it adds makes up for it."""
    streams: dict[int, np.ndarray] = {}

    def change(point: str, rows: np.ndarray) -> None:
        if point.startswith("after_layer"):
            streams[int(point[-1])] = rows.astype(np.float64)
        if point == "after_layer_2":
            rows += 1

    found = {each.layer: each for each in assessed(run(), run(change)).growth}
    off = np.sqrt(streams[2].size)
    for layer, apart in ((1, 0.0), (2, off), (3, 0.0)):
        whole = np.linalg.norm(streams[layer])
        assert found[layer].relative_l2 == pytest.approx(apart / whole, rel=1e-5)
    for layer, apart in ((1, 0.0), (2, off), (3, off)):
        added = np.linalg.norm(streams[layer] - streams[layer - 1])
        assert found[layer].added == pytest.approx(apart / added, rel=1e-5)


@pytest.mark.parametrize("name", ["engine", "dtype", "device", "triton"])
def test_what_rounds_every_operation_otherwise(tmp_path: Path, name: str) -> None:
    manifest = run().open(tmp_path / "r").manifest
    backend = msgspec.structs.replace(manifest.backend, **{name: "another"})
    other = msgspec.structs.replace(manifest, backend=backend)
    made = floor(*entries())
    assert floor_kind(made, manifest, manifest) == "order"
    assert floor_kind(made, manifest, other) == floor_kind(made, other, manifest) == "precision"


def test_a_floor_of_another_device_holds_for_precision_alone(tmp_path: Path) -> None:
    manifest = run().open(tmp_path / "r").manifest
    made = floor(*entries())
    elsewhere = msgspec.structs.replace(made, device="cuda")
    assert floor_kind(elsewhere, manifest, manifest) == "precision"
    on_gpu = msgspec.structs.replace(manifest.environment, gpu="another card")
    other = msgspec.structs.replace(manifest, environment=on_gpu)
    assert floor_kind(made, manifest, other) == floor_kind(made, other, other) == "precision"


def test_the_same_change_without_the_flip_is_wrong(assessed) -> None:
    def change(point: str, rows: np.ndarray) -> None:
        rows[5] *= -1

    found = assessed(run(steps=((0, 5), (5, 6))), run(change, steps=((0, 5), (5, 6))))
    assert found.verdict is VerdictClass.WRONG
    assert found.first.positions == (5,)


def test_integers_are_exact(assessed) -> None:
    def with_positions(*values: int) -> Run:
        made = run()
        made.items.insert(0, item(points.POSITIONS, np.array(values), dtype="I64"))
        return made

    found = assessed(with_positions(0, 1, 2, 3, 4, 5), with_positions(0, 1, 2, 0, 1, 2))
    assert found.verdict is VerdictClass.WRONG
    assert (found.first.name, found.first.positions) == ("positions", (3, 4, 5))


def test_not_finite_on_one_side_is_wrong(assessed) -> None:
    def change(point: str, rows: np.ndarray) -> None:
        if point == "L1_attention_output":
            rows[2] = np.nan

    found = assessed(run(), run(change))
    assert found.verdict is VerdictClass.WRONG
    assert found.first.positions == (2,)
    assert found.first.worst == np.inf


def test_what_has_no_floor_is_no_noise(assessed) -> None:
    made = [each for each in entries() if each.layer != 3]
    found = assessed(run(), run(small), made=made)
    assert found.verdict is VerdictClass.INCOMPARABLE
    assert "L3_attention_output" in found.reason
    assert [each.name for each in found.unjudged] == ["L3_attention_output", "after_layer_3"]


def test_what_could_not_be_judged_before_the_first_is_told(assessed) -> None:
    """The floor has layers 2 and 3; layer 1 differs, and nobody knows by how much too much."""

    def change(point: str, rows: np.ndarray) -> None:
        if point == "L1_attention_output":
            small(point, rows)
        if point == "after_layer_3":
            rows[2] *= 2

    made = [each for each in entries() if each.layer in (2, 3)]
    found = assessed(run(), run(change), made=made)
    assert found.verdict is VerdictClass.WRONG
    assert (found.first.name, found.unjudged_before) == ("after_layer_3", 1)
    report = assessment_report(found)
    assert "; 1 boundary before it could not be judged." in report.headline
    assert any("1 boundary (L1_attention_output)" in line for line in report.lines)


def test_what_is_judged_before_the_first_is_within(assessed) -> None:
    def change(point: str, rows: np.ndarray) -> None:
        if point == "L1_attention_output":
            small(point, rows)
        if point == "after_layer_3":
            rows[2] *= 2

    found = assessed(run(), run(change))
    assert (found.first.name, found.unjudged_before) == ("after_layer_3", 0)
    report = assessment_report(found)
    assert "all before it is within the floor." in report.headline
    assert not any("Not judged" in line for line in report.lines)


def test_digests_alone_are_said_to_be_the_reason(tmp_path: Path) -> None:
    sides = [run(), run(small)]
    for side in sides:
        side.items = [
            (msgspec.structs.replace(record, file=None), array, False)
            for record, array, _ in side.items
        ]
    opened = sides[0].open(tmp_path / "b"), sides[1].open(tmp_path / "t")
    found = assess_bundles(*opened, floor(*entries()), path=Path("f"))
    assert found.verdict is VerdictClass.INCOMPARABLE
    assert found.reason.endswith("the baseline has digests only: run it with --store tensor")


def test_what_is_equal_needs_no_floor(assessed) -> None:
    def change(point: str, rows: np.ndarray) -> None:
        if not point.startswith(("L3", "after_layer_3")):
            small(point, rows)

    made = [each for each in entries() if each.layer != 3]
    assert assessed(run(), run(change), made=made).verdict is VerdictClass.NOISE


@pytest.mark.parametrize("margin", [0.5, float("nan"), float("inf"), -1.0])
def test_a_margin_that_is_none(assessed, margin: float) -> None:
    with pytest.raises(UsageError, match="margin"):
        assessed(run(), run(), margin=margin)


def test_runs_that_have_nothing_in_common(tmp_path: Path) -> None:
    target = run()
    target.prompts = ((9, 9, 9, 9, 9),)
    sides = run().open(tmp_path / "b"), target.open(tmp_path / "t")
    with pytest.raises(IncomparableError, match="session 0 has other prompts"):
        assess_bundles(*sides, floor(*entries()), path=Path("f"))


def test_a_floor_of_another_model_or_dtype(tmp_path: Path) -> None:
    sides = run().open(tmp_path / "b"), run().open(tmp_path / "t")
    for change, said in (
        ({"model": "x"}, "is a floor of x"),
        ({"dtype": "bf16"}, "a floor of bf16"),
    ):
        made = msgspec.structs.replace(floor(*entries()), **change)
        with pytest.raises(IncomparableError, match=said):
            assess_bundles(*sides, made, path=Path("f"))


@pytest.mark.parametrize(("dtype", "is_floor"), [("bf16", True), ("fp32", False)])
def test_between_dtypes_the_floor_is_that_of_the_coarser(
    assessed, dtype: str, is_floor: bool
) -> None:
    """What float32 rounds says nothing of how far bfloat16 is from it."""
    sides = run(dtype="bf16"), run(dtype="fp32")
    made = msgspec.structs.replace(floor(*entries()), dtype=dtype)
    if is_floor:
        assert assessed(*sides, whole=made).verdict is VerdictClass.IDENTICAL
    else:
        with pytest.raises(IncomparableError, match="weights in bf16 and fp32") as raised:
            assessed(*sides, whole=made)
        assert "calibrate --dtype bf16" in (raised.value.hint or "")


def test_a_changed_tensor_is_refused(tmp_path: Path) -> None:
    sides = run().open(tmp_path / "b"), run(small).open(tmp_path / "t")
    path = tmp_path / "t" / "tensors" / "step-0000.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(BundleError, match="digest"):
        assess_bundles(*sides, floor(*entries()), path=Path("f"))


def test_equal_digests_need_no_tensors(assessed) -> None:
    """Nothing of the residual stream can be opened, and nothing has to be."""
    target = run()
    target.items = [(record, array, False) for record, array, _ in target.items]
    found = assessed(run(), target)
    assert (found.verdict, found.growth) == (VerdictClass.IDENTICAL, ())


@pytest.mark.parametrize("other", [0, 1])
def test_a_row_that_a_slice_shows_again_is_no_difference(assessed, other: int) -> None:
    """Of the later slice one row is new: its digest is that of three, and tells of it all the same.

    Where it is another digest, nobody knows without the tensors which row it is.
    """
    sides = []
    for last in (9, 9 + other):
        made = run(steps=((0, 2), (2, 3)))
        made.items = []
        for step, values in ((0, (1, 2)), (1, (1, 2, last))):
            array = np.array(values, dtype=np.float32)[:, None, None, None] * np.ones((1, 2, 1, 2))
            point = points.KV_SLICE_POST_WRITE
            made.items.append(item(point, array, layer=3, step=step, store=False))
        sides.append(made)
    verdict = assessed(*sides).verdict
    assert verdict is (VerdictClass.INCOMPARABLE if other else VerdictClass.IDENTICAL)


def pool(*, changed: bool) -> Run:
    """A run whose second step shows the first row of the pool once more, as it was or not."""
    made = run(steps=((0, 2), (2, 3)))
    made.items = []
    for step, values in ((0, (1, 2)), (1, (1 + changed, 2, 3))):
        array = np.array(values, dtype=np.float32)[:, None, None, None] * np.ones((1, 2, 1, 2))
        made.items.append(item(points.KV_SLICE_POST_WRITE, array, layer=3, step=step))
    return made


def test_a_baseline_that_changed_its_own_rows_is_no_measure(assessed) -> None:
    """As a comparison without a floor says, too: what looks equal is not measured by it."""
    found = assessed(pool(changed=True), pool(changed=False))
    assert (found.verdict, found.above) == (VerdictClass.INCOMPARABLE, ())
    assert found.unsteady == ("L3_kv_slice_post_write",)
    report = assessment_report(found)
    assert report.headline == (
        "INCOMPARABLE. L3_kv_slice_post_write of step 1: the baseline reads rows otherwise than it"
        " wrote them: it is no measure."
    )
    assert not any("Not judged" in line for line in report.lines)


def test_control_a_baseline_that_shows_its_rows_as_they_were_is_one(assessed) -> None:
    found = assessed(pool(changed=False), pool(changed=False))
    assert (found.verdict, found.unsteady) == (VerdictClass.IDENTICAL, ())


def test_an_unsteady_baseline_hides_nothing_that_is_wrong(assessed) -> None:
    both = assessed(pool(changed=True), pool(changed=True))
    assert (both.verdict, both.first.reread) == (VerdictClass.WRONG, True)
    assert both.unsteady == ("L3_kv_slice_post_write",)


def test_what_crosses_a_stage_edge_is_named_by_its_stage(assessed) -> None:
    sent = FloorEntry(
        point=points.BOUNDARY_SEND_HIDDEN.name,
        layer=None,
        order=1e-3,
        order_l2=1e-3,
        precision=1e-2,
        precision_l2=1e-2,
    )
    found = assessed(chain(second=1.0), chain(second=2.0), made=[sent])
    assert (found.verdict, found.first.name) == ("WRONG", "boundary_send_hidden#1")


def test_an_edge_that_the_floor_does_not_name_is_named_so_too(assessed) -> None:
    """The layer before the edge judges it."""
    found = assessed(chain(second=1.0), chain(second=2.0))
    assert (found.verdict, found.first.name) == ("WRONG", "boundary_send_hidden#1")


@pytest.mark.parametrize(
    ("scale", "lacks", "verdict"),
    [
        (1.0005, False, VerdictClass.NOISE),
        (1.1, False, VerdictClass.WRONG),
        (1.0005, True, VerdictClass.INCOMPARABLE),
    ],
)
def test_a_floor_of_one_stage_knows_what_crosses_a_stage_edge(
    assessed, scale: float, lacks: bool, verdict: VerdictClass
) -> None:
    """A chain sends what the layer before the edge put out."""

    def chained(scale: float) -> Run:
        made = run()
        (rows,) = (array for record, array, _ in made.items if record.name == "after_layer_1")
        made.items[5:5] = [
            item(points.BOUNDARY_SEND_HIDDEN, rows * scale, stage=0),
            item(points.BOUNDARY_RECV_HIDDEN, rows * scale, stage=1),
        ]
        made.items = [
            (msgspec.structs.replace(record, stage=int(index > 5)), array, store)
            for index, (record, array, store) in enumerate(made.items)
        ]
        made.stages = stages((0, 2), (2, 4))
        return made

    known = [e for e in entries() if not lacks or (e.point, e.layer) != ("after_layer_{layer}", 1)]
    found = assessed(chained(1.0), chained(scale), made=known)
    assert found.verdict is verdict
    names = [each.name for each in (*found.above, *found.within, *found.unjudged)]
    assert names == ["boundary_send_hidden", "boundary_recv_hidden"]


def test_slots_are_named_as_not_compared(assessed) -> None:
    def slotted(first: int) -> Run:
        made = run()
        slots = np.arange(first, first + ROWS)
        made.items.insert(0, item(points.FULL_SLOTS, slots, dtype="I32", row_start=None))
        return made

    found = assessed(slotted(1), slotted(9))
    assert (found.verdict, found.skipped) == (VerdictClass.IDENTICAL, ("full_slots",))
