"""The maps of vLLM and llama.cpp on dumps as those engines lay them out, from one tiny network."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from swarepro import api
from swarepro.bundle.read import open_bundle
from swarepro.errors import ForeignError
from tests.unit.foreign.dumps import LAYERS, tiny_run

SIZES = {"H": 4, "K": 2, "D": 4, "I": 6}


def halves(array: np.ndarray, *parts: int) -> list[np.ndarray]:
    """Return what each of two ranks has of fused parts of these widths."""
    pieces = np.split(array, np.cumsum(parts)[:-1], axis=1)
    return [np.concatenate([np.split(x, 2, axis=1)[rank] for x in pieces], 1) for rank in (0, 1)]


def vllm(folder: Path, *, plane: bool = True) -> dict[str, np.ndarray]:
    """Two ranks; a layer returns (what the MLP adds, the residual before it)."""
    run = tiny_run(4, 1)
    for step in range(2):
        ranks: list[dict[str, np.ndarray]] = [{}, {}]

        def put(name: str, shards: list[np.ndarray], ranks=ranks) -> None:
            for rank, shard in enumerate(shards):
                ranks[rank][name] = np.ascontiguousarray(shard)

        put("input_ids", [run[f"s{step}.ids"]] * 2)
        put("positions", [run[f"s{step}.pos"]] * 2)
        put("logits", [run[f"s{step}.logits"]] * 2)
        for layer in range(LAYERS):
            at, name = f"s{step}.l{layer}", f"model.layers.{layer}"
            norm = "input_layernorm.output" + ("" if layer == 0 else ".0")
            put(f"{name}.{norm}", [run[f"{at}.norm"]] * 2)
            put(f"{name}.self_attn.qkv_proj.output", halves(run[f"{at}.qkv"], 16, 8, 8))
            put(f"{name}.self_attn.attn.output", np.split(run[f"{at}.attn"], 2, axis=1))
            gate_up = np.arange(12 * len(run[f"{at}.mlp"]), dtype=np.float32).reshape(-1, 12)
            run[f"{at}.gate_up"] = gate_up + layer + step
            put(f"{name}.mlp.gate_up_proj.output", halves(run[f"{at}.gate_up"], 6, 6))
            put(f"{name}.mlp.output", [run[f"{at}.mlp"]] * 2)
            residual = run[f"{at}.out"] - run[f"{at}.mlp"]
            run[f"{at}.out"] = run[f"{at}.mlp"] + residual  # as the import rounds it
            added = [run[f"{at}.mlp"], residual] if plane else [run[f"{at}.out"] * 2, residual]
            for number, array in enumerate(added):
                put(f"{name}.output.{number}", [array] * 2)
        for rank, tensors in enumerate(ranks):
            save_file(tensors, folder / f"step-{step}_rank-{rank}.safetensors")
    return run


def test_vllm(tmp_path):
    (tmp_path / "dump").mkdir()
    run = vllm(tmp_path / "dump")
    result = api.import_foreign(
        "safetensors", tmp_path / "dump", map_name="vllm", out=tmp_path / "out", sizes=SIZES
    )
    assert (result.unmatched, result.problems) == ((), ())
    assert "checked in 2 layers" in result.notes[0]
    bundle = open_bundle(tmp_path / "out")
    found = {(record.step, record.name): bundle.tensor(record) for record in bundle.records}
    for step in range(2):
        for layer in range(LAYERS):
            for name, own in (
                (f"L{layer}_input_normed", "norm"),
                (f"L{layer}_qkv_projected", "qkv"),
                (f"L{layer}_attention_output", "attn"),
                (f"L{layer}_mlp_gate_up", "gate_up"),
                (f"L{layer}_mlp_output", "mlp"),
                (f"after_layer_{layer}", "out"),
            ):
                wanted = run[f"s{step}.l{layer}.{own}"]
                assert found[step, name].tobytes() == wanted.tobytes(), name
    assert len(bundle.records) == 2 * (3 + 6 * LAYERS)


def test_vllm_with_a_sum_that_is_no_residual_is_refused(tmp_path):
    (tmp_path / "dump").mkdir()
    vllm(tmp_path / "dump", plane=False)
    with pytest.raises(ForeignError, match="is a delta and not the residual stream"):
        api.import_foreign(
            "safetensors", tmp_path / "dump", map_name="vllm", out=tmp_path / "out", sizes=SIZES
        )


def test_llama_cpp(tmp_path):
    """Rows first, heads apart, q and k after rope in two tensors, all rows of the logits."""
    run = tiny_run(4, 1)
    for step, rows in enumerate((4, 1)):
        folder = tmp_path / "dump" / f"step-{step}"
        folder.mkdir(parents=True)
        for layer in range(LAYERS):
            at = f"s{step}.l{layer}"
            q, k, v = np.split(run[f"{at}.qkv"].reshape(rows, 8, 4), [4, 6], axis=1)
            for name, array in {
                "attn_norm": run[f"{at}.norm"],
                "Qcur_pos": q,
                "Kcur_pos": k,
                "Vcur_normed": v,
                "kqv_out": run[f"{at}.attn"],
                "ffn_out": run[f"{at}.mlp"],
                "l_out": run[f"{at}.out"],
            }.items():
                np.save(folder / f"{name}-{layer}.npy", array)
        np.save(folder / "result_output.npy", np.repeat(run[f"s{step}.logits"], rows, axis=0))
    result = api.import_foreign(
        "npy", tmp_path / "dump", map_name="llama-cpp", out=tmp_path / "out", sizes={"D": 4}
    )
    assert (result.unmatched, result.problems) == ((), ())
    bundle = open_bundle(tmp_path / "out")
    found = {(record.step, record.name): bundle.tensor(record) for record in bundle.records}
    turned = found[0, "L1_rotary_applied"]
    assert turned.shape == (4, 6, 4)
    assert turned.tobytes() == run["s0.l1.qkv"].reshape(4, 8, 4)[:, :6].tobytes()
    assert found[1, "L2_attention_output"].tobytes() == run["s1.l2.attn"].tobytes()
    assert found[0, "logits"].tobytes() == run["s0.logits"].tobytes()
    assert bundle.manifest.backend.engine == "llama.cpp"
    assert [step.phase for step in bundle.manifest.steps] == ["prefill", "decode"]
