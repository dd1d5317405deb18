"""Dumps that cannot be right are refused with the reason; those beside them are not."""

import numpy as np
import pytest

from swarepro.errors import ForeignError
from swarepro.foreign.delta import FITS, FITS_NOT, _centred_misfit, _scaled_misfit
from tests.unit.foreign.dumps import (
    HEADER,
    LAYERS,
    RULES,
    bring,
    check,
    map_text,
    save_npy,
    tiny_run,
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "dump").mkdir()
    return tmp_path / "dump"


def refusals(folder, tensors, text=None) -> tuple[str, ...]:
    return check(save_npy(tensors, folder), text).refusals


def without(*points: str) -> dict[str, str]:
    return {point: body for point, body in RULES.items() if point not in points}


def test_a_dump_that_could_be_right_is_not_refused(folder):
    result = check(save_npy(tiny_run(5, 3, 1, 1), folder))
    assert result.refusals == ()
    assert result.notes == (
        "The residual plane was checked in 2 layers: the next layer's norm is of it.",
        "The residual plane could not be checked in 1 layer (first after_layer_2: it is not"
        " L2_mlp_output alone, and the next layer's norm was not dumped).",
    )


# Every layer has the same digest.


def test_one_buffer_in_every_layer_is_a_replayed_graph(folder):
    tensors = tiny_run(5)
    for layer in range(LAYERS):
        tensors[f"s0.l{layer}.attn"] = tensors["s0.l2.attn"]
    (why,) = refusals(folder, tensors)
    assert why.startswith("L{layer}_attention_output has the same bytes in all 3 layers of step 0")


def test_two_buffers_in_turn_are_a_replayed_graph_as_well(folder):
    tensors = tiny_run(5)
    tensors["s0.l2.attn"] = tensors["s0.l0.attn"]
    (why,) = refusals(folder, tensors)
    assert "the same bytes in layers 0 and 2, and others between them, of step 0" in why


def test_a_last_bit_tells_two_buffers_apart(folder):
    tensors = tiny_run(5)
    tensors["s0.l2.attn"] = tensors["s0.l0.attn"].copy()
    tensors["s0.l2.attn"].view(np.uint32)[4, 15] ^= 1
    assert refusals(folder, tensors) == ()


def test_a_layer_that_adds_nothing_is_no_replay(folder):
    tensors = tiny_run(5)
    tensors["s0.l1.out"] = tensors["s0.l0.out"]
    text = map_text(without("L{layer}_mlp_output", "L{layer}_input_normed"))
    assert refusals(folder, tensors, text) == ()


def test_keys_that_layers_share_are_no_replay(folder):
    tensors = tiny_run(5)
    tensors["s0.l2.qkv"] = tensors["s0.l0.qkv"]
    assert len(refusals(folder, tensors)) == 1
    rules = without("L{layer}_qkv_projected") | {
        "L{layer}_k_normed": 'name = "s{step}.l{layer}.qkv"\nlayout = "T (K D)"\nsizes = { D = 16 }'
    }
    assert refusals(folder, tensors, map_text(rules)) == ()


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_a_run_that_went_nan_or_zero_is_imported(value, folder):
    """A broken run is what the tool is for: from layer 1 on everything is NaN, in every step."""
    tensors = tiny_run(5, 1, 1)
    for name, array in tensors.items():
        if array.dtype == np.float32 and ".l0." not in name:
            tensors[name] = np.full_like(array, value)
    assert refusals(folder, tensors) == ()


def test_a_pool_that_nobody_has_written_is_the_same_in_every_layer(folder):
    """State is not a value: before the first store all layers hold zeros."""
    rules = {**RULES, "L{layer}_kv_slice_pre_write": 'name = "s{step}.l{layer}.pool"'}
    tensors = tiny_run(5)
    for layer in range(LAYERS):
        tensors[f"s0.l{layer}.pool"] = np.zeros((5, 2, 2, 4), np.float32)
    assert refusals(folder, tensors, map_text(rules)) == ()


# A tensor of another step.


@pytest.mark.parametrize("name", ["l0.attn", "l1.qkv", "l2.out", "logits"])
def test_a_tensor_of_another_step_is_named_with_both(name, folder):
    tensors = tiny_run(5, 1, 1)
    tensors[f"s2.{name}"] = tensors[f"s1.{name}"]
    (why, *_) = [x for x in refusals(folder, tensors) if "another step" in x]
    assert "of step 2 (positions 6 to 6) has the bytes of step 1 (positions 5 to 5)" in why


def test_a_repeated_token_gives_layer_0_the_same_projection(folder):
    """Before positions enter, the same token gives the same bytes: that is no other step's."""
    tensors = tiny_run(5, 1, 1)
    for name in ("norm", "qkv"):
        tensors[f"s2.l0.{name}"] = tensors[f"s1.l0.{name}"]
    tensors["s2.ids"] = tensors["s1.ids"]
    assert refusals(folder, tensors) == ()


def test_one_token_again_and_again_may_give_the_same_rows(folder):
    tensors = tiny_run(5, 1, 1)
    tensors["s2.l1.attn"] = tensors["s1.l1.attn"]
    for step in range(3):
        tensors[f"s{step}.ids"] = np.full_like(tensors[f"s{step}.ids"], 7)
    assert refusals(folder, tensors) == ()
    tensors["s0.ids"][2] = 8
    assert len(refusals(folder, tensors)) == 1


def test_the_same_positions_after_a_reset_give_the_same_bytes(folder):
    tensors = tiny_run(3)
    tensors |= {name.replace("s0", "s1"): array for name, array in tensors.items()}
    span = "spans = [{ start = 0, end = 3 }]"
    tail = f"[[steps]]\n{span}\n[[steps]]\n{span}\nreset = true\n"
    assert refusals(folder, tensors, map_text(tail=tail)) == ()


def test_the_other_steps_rows_are_named(folder):
    tensors = tiny_run(5, 3)
    tensors["s1.l1.mlp"] = tensors["s0.l1.mlp"]
    with pytest.raises(ForeignError, match="has 5 rows, and the step has 3; step 0 has 5"):
        check(save_npy(tensors, folder))


def test_positions_of_another_step(folder):
    tensors = tiny_run(5, 3, 3)
    tensors["s2.pos"] = tensors["s1.pos"]
    spans = [(0, 5), (5, 8), (8, 11)]
    tail = "".join(f"[[steps]]\nspans = [{{ start = {a}, end = {b} }}]\n" for a, b in spans)
    with pytest.raises(ForeignError, match="positions of step 2, session 0, are 5 to 7"):
        check(save_npy(tensors, folder), map_text(tail=tail))


# A delta and not a residual.


def as_delta(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a hook saves that takes the first of (what the layer adds, the residual)."""
    return {
        name: tensors[name.replace(".out", ".mlp")] if name.endswith(".out") else array
        for name, array in tensors.items()
    }


def test_an_mlp_output_under_the_name_of_a_layer_is_a_delta(folder):
    found = refusals(folder, as_delta(tiny_run(5)))
    assert found[0] == (
        "after_layer_0 of step 0 is a delta and not the residual stream: it has the bytes of"
        " L0_mlp_output"
    )
    assert len(found) == LAYERS


def test_a_scaled_mlp_output_is_a_delta(folder):
    """Gemma norms what its MLP gives before it adds it: a factor of each row, a column's weight."""
    tensors = tiny_run(5)
    weights = np.linspace(0.5, 2, 8, dtype=np.float32)
    for layer in range(LAYERS):
        mlp = tensors[f"s0.l{layer}.mlp"]
        scale = np.sqrt((mlp**2).mean(-1, keepdims=True))
        tensors[f"s0.l{layer}.out"] = mlp / scale * weights
    found = refusals(folder, tensors)
    assert len(found) == LAYERS
    assert "a factor of each row and a weight of each column" in found[-1]


def test_the_next_norm_tells_a_delta_without_the_mlp_output(folder):
    tensors = as_delta(tiny_run(5))
    text = map_text(without("L{layer}_mlp_output"))
    found = refusals(folder, tensors, text)
    assert [why.split()[0] for why in found] == ["after_layer_0", "after_layer_1"]
    assert "L1_input_normed is not its norm" in found[0]
    assert refusals(folder, tiny_run(5), text) == ()


def test_a_layer_norm_is_a_norm_as_well(folder):
    tensors = tiny_run(6)
    for layer in range(1, LAYERS):
        hidden = tensors[f"s0.l{layer - 1}.out"].astype(np.float64)
        normed = (hidden - hidden.mean(-1, keepdims=True)) / hidden.std(-1, keepdims=True)
        tensors[f"s0.l{layer}.norm"] = (normed * 1.5 + 0.3).astype(np.float32)
    assert refusals(folder, tensors) == ()
    assert len(refusals(folder, as_delta(tensors))) == LAYERS


def test_bfloat16_rounding_is_no_delta(folder):
    """Every value is rounded to 8 bits: the misfit stays far below what is refused."""
    tensors = {
        name: (array.view(np.uint32) + 0x7FFF >> 16).astype(np.uint16)
        if array.dtype == np.float32 else array
        for name, array in tiny_run(6).items()
    }  # fmt: skip
    rules = {
        point: body if point in ("input_ids", "positions", "token") else body + '\ndtype = "BF16"'
        for point, body in RULES.items()
    }
    result = check(save_npy(tensors, folder), map_text(rules))
    assert result.refusals == ()
    assert "checked in 2 layers" in result.notes[0]
    assert len(refusals(folder, as_delta(tensors), map_text(rules))) == LAYERS


def test_the_sum_of_both_planes_is_a_residual(folder):
    """The same dump, read as it should be."""
    tensors = tiny_run(5)
    for layer in range(LAYERS):
        whole, mlp = tensors.pop(f"s0.l{layer}.out"), tensors[f"s0.l{layer}.mlp"]
        tensors[f"s0.l{layer}.out.0"], tensors[f"s0.l{layer}.out.1"] = mlp, whole - mlp
    rules = dict(RULES)
    rules["after_layer_{layer}"] = 'name = "s{step}.l{layer}.out.0"\nplane = "residual"'
    assert len(refusals(folder, tensors, map_text(rules))) == LAYERS
    rules["after_layer_{layer}"] = (
        'name = ["s{step}.l{layer}.out.0", "s{step}.l{layer}.out.1"]\nplane = "sum"\njoin = "add"'
    )
    result = check(save_npy(tensors, folder), map_text(rules))
    assert result.refusals == ()
    assert "checked in 2 layers" in result.notes[0]


def test_what_cannot_be_told_is_said(folder):
    text = map_text(without("L{layer}_mlp_output", "L{layer}_input_normed"))
    result = check(save_npy(as_delta(tiny_run(5)), folder), text)
    assert result.refusals == ()
    assert "could not be checked in 3 layers (first after_layer_0: neither" in result.notes[0]


def test_only_the_next_layers_norm_is_of_a_residual(folder):
    """Of every second layer nothing was dumped: the norm after next is of another stream."""
    tensors = {name: array for name, array in tiny_run(5).items() if ".l1." not in name}
    result = check(save_npy(tensors, folder), map_text(without("L{layer}_mlp_output")))
    assert result.refusals == ()
    assert "could not be checked in 2 layers (first after_layer_0: neither" in result.notes[0]


@pytest.mark.parametrize("dumped", ["s0.l0.mlp", "s0.l1.mlp"])
def test_only_a_layers_own_mlp_output_tells_a_delta(dumped, folder):
    """One buffer holds what the first layer's MLP gave, too: of layer 1 that says nothing."""
    tensors = tiny_run(5)
    tensors["s0.l1.out"] = tensors[dumped]
    tensors = {
        name: array
        for name, array in tensors.items()
        if not name.endswith((".mlp", ".norm")) or name == dumped
    }
    found = refusals(folder, tensors)
    assert len(found) == (dumped == "s0.l1.mlp")


@pytest.mark.parametrize(("misfit", "said"), [(0.01, "was checked"), (0.06, "may be its norm")])
def test_a_norm_that_nearly_fits_is_neither_sure_nor_refused(misfit, said, folder):
    tensors = tiny_run(40)
    normed = tensors["s0.l1.norm"]
    noise = np.random.default_rng(1).normal(size=normed.shape)
    noise *= misfit * np.linalg.norm(normed) / np.linalg.norm(noise)
    tensors["s0.l1.norm"] = (normed + noise).astype(np.float32)
    text = map_text(without("L{layer}_mlp_output"))
    result = check(save_npy(tensors, folder), text)
    assert result.refusals == ()
    first = [note for note in result.notes if "first after_layer_0" in note]
    assert [said in note for note in first] == ([True] if misfit > FITS else [])


def test_one_row_tells_nothing(folder):
    text = map_text(without("L{layer}_mlp_output"))
    result = check(save_npy(as_delta(tiny_run(1)), folder), text)
    assert result.refusals == ()
    assert "too few different rows" in result.notes[0]


@pytest.mark.parametrize("seed", range(20))
def test_unrelated_tensors_are_far_from_every_norm(seed):
    """The thresholds: of unrelated rows the misfit is at least 0.3, of a norm under 1e-6."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(2, 40))
    source, other = rng.normal(size=(2, rows, 64))
    assert _scaled_misfit(source, other) > 3 * FITS_NOT
    normed = source / np.sqrt((source**2).mean(1, keepdims=True)) * rng.normal(1, 0.3, 64)
    assert _scaled_misfit(source, normed) < FITS * 1e-4
    if rows >= 4:
        assert _centred_misfit(source, other) > 3 * FITS_NOT


# A person who knows why may allow it, and the bundle says so.


@pytest.mark.parametrize("check_name", ["same-layers", "same-steps", "delta"])
def test_a_finding_can_be_allowed(check_name, folder, tmp_path):
    tensors = tiny_run(5, 1, 1)
    if check_name == "same-layers":
        for layer in range(LAYERS):
            tensors[f"s0.l{layer}.attn"] = tensors["s0.l2.attn"]
    elif check_name == "same-steps":
        tensors["s2.logits"] = tensors["s1.logits"]
    else:
        tensors["s0.l1.out"] = tensors["s0.l1.mlp"]
    with pytest.raises(ForeignError, match="is not imported"):
        bring(save_npy(tensors, folder), tmp_path / "out")
    text = map_text(header=f'allow = ["{check_name}"]\n' + HEADER)
    result = bring(folder, tmp_path / "out", text)
    assert len(result.allowed) == 1
    others = {"same-layers", "same-steps", "delta"} - {check_name}
    with pytest.raises(ForeignError, match="is not imported"):
        bring(folder, tmp_path / "no", map_text(header=f"allow = {sorted(others)}\n" + HEADER))
