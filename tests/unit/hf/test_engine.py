"""What a run of transformers leaves behind, in its bundle and in the process."""

import dataclasses
from pathlib import Path

import msgspec
import pytest
import torch

from swarepro import api
from swarepro.bundle.read import open_bundle
from swarepro.case import CaseSpec, PromptSpec, ReuseSpec, RowsSpec, ScriptEntry, SessionSpec
from swarepro.checkpoint import open_checkpoint
from swarepro.compare.types import Tolerance, Verdict
from swarepro.errors import CaseError, EngineError, UsageError
from swarepro.hf import HfModel, load_transformers
from swarepro.hf.hooks import Current, watch
from swarepro.options import CaptureOptions, RunOptions
from tests.unit.hf.models import TOKENS, case, pair

transformers = pytest.importorskip("transformers", reason="the hf extra is not installed")

IMAGE = SessionSpec(prompt=PromptSpec(tokens=TOKENS[:7]), images=((1, 4),))
FP32 = Tolerance(atol=2e-4, rtol=1e-4)
SMALL = "gemma3-tiny?layers=2"


def loaded(model: str = SMALL) -> HfModel:
    checkpoint = open_checkpoint(f"synthetic:{model}")
    return load_transformers(checkpoint, dtype=torch.float32, attention="eager")


def test_the_bundle_says_what_ran(tmp_path: Path) -> None:
    spec = case(SMALL, chunks=(5, 2), decode=2)
    result = api.capture_hf(spec, out=tmp_path, run_id="hf")
    manifest = open_bundle(result.bundle).manifest
    assert manifest.backend.engine == f"transformers {transformers.__version__}"
    assert (manifest.backend.route, manifest.backend.dtype) == ("eager", "fp32")
    assert (manifest.ownership, manifest.shadow, manifest.faults) == ((), False, ())
    assert manifest.prompts == (TOKENS[:7],)
    assert len(manifest.tokens[0]) == 3
    assert [step.spans[0].end for step in manifest.steps] == [5, 7, 8, 9]
    assert open_bundle(result.bundle).verify() == manifest.num_records


def test_two_sessions_have_a_cache_each(tmp_path: Path) -> None:
    spec = msgspec.structs.replace(
        case(SMALL, chunks=(5, 2), decode=1),
        sessions=(
            SessionSpec(prompt=PromptSpec(tokens=TOKENS[:7]), chunks=(5, 2), decode=1),
            SessionSpec(prompt=PromptSpec(tokens=TOKENS[9:14]), decode=2),
        ),
    )
    found = api.diff_runs(*pair(spec, tmp_path), tolerance=FP32)
    assert found.verdict in (Verdict.IDENTICAL, Verdict.WITHIN_TOLERANCE)
    assert found.only_baseline == found.only_target == ()
    mixed = msgspec.structs.replace(
        spec,
        sessions=(
            SessionSpec(prompt=PromptSpec(tokens=TOKENS[:7])),
            SessionSpec(prompt=PromptSpec(tokens=TOKENS[9:14])),
        ),
        script=(
            ScriptEntry(rows=(RowsSpec(session=1, prefill=5), RowsSpec(session=0, prefill=3))),
            ScriptEntry(rows=(RowsSpec(session=0, prefill=4), RowsSpec(session=1, decode=True))),
            ScriptEntry(finish=(0,)),
            ScriptEntry(rows=(RowsSpec(session=1, decode=True),)),
        ),
    )
    found = api.diff_runs(*pair(mixed, tmp_path / "mixed"), tolerance=FP32)
    assert found.verdict in (Verdict.IDENTICAL, Verdict.WITHIN_TOLERANCE)
    assert found.only_baseline == found.only_target == ()


def test_only_what_was_asked_for_is_kept(tmp_path: Path) -> None:
    capture = CaptureOptions(points=("L1_*", "logits"), steps=(1,), store="digest")
    options = RunOptions(capture=capture)
    spec = case(SMALL, chunks=(5, 2), decode=1)
    bundle = open_bundle(api.capture_hf(spec, out=tmp_path, options=options).bundle)
    names = {record.name for record in bundle.records}
    assert "L1_kv_slice_post_write" in names and "logits" in names
    assert {name[:2] for name in names} == {"L1", "lo"}
    assert {record.step for record in bundle.records} == {1}
    assert bundle.num_stored == 0


def test_nothing_stays_in_the_process(tmp_path: Path) -> None:
    """Not in transformers' table of attention functions, and not in the model."""
    from transformers.models.gemma3 import modeling_gemma3

    functions = modeling_gemma3.ALL_ATTENTION_FUNCTIONS
    before = dict(functions)
    model = loaded()
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.model.modules()]
    with pytest.raises(KeyError, match="inside"), watch(model, 2, Current()):
        assert dict(functions) != before
        inside = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.model.modules()]
        assert sum(inside) > sum(hooks)
        raise KeyError("inside")
    after = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.model.modules()]
    assert dict(functions) == before
    assert after == hooks


@pytest.mark.parametrize("name", ["eager", "sdpa"])
def test_an_attention_function_that_somebody_else_had_put_there_comes_back(name: str) -> None:
    from transformers.models.gemma3 import modeling_gemma3

    functions = modeling_gemma3.ALL_ATTENTION_FUNCTIONS
    other = modeling_gemma3.eager_attention_forward
    functions[name] = other
    try:
        with watch(dataclasses.replace(loaded(), attention=name), 2, Current()):
            assert functions[name] is not other
        assert functions[name] is other
    finally:
        del functions[name]


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({"stages": "0:1,1:2"}, {}, "has not stages: 0:1,1:2"),
        ({"layers": "0:1"}, {}, "has not a stage alone: 0:1"),
        ({"background": ("late-store-row",)}, {}, "has not faults: late-store-row"),
        ({}, {"faults": ("late-store-row",)}, "has not faults: late-store-row"),
        ({}, {"route": "eager-paged"}, "has not a route: eager-paged"),
        ({}, {"schedule": "seeded:1"}, "has not a schedule: seeded:1"),
        ({}, {"fill": "nan"}, "has not a fill: nan"),
        ({}, {"ownership": True}, "has not slots to watch: ownership on"),
        ({"sessions": (IMAGE,)}, {}, r"has not images: \[1, 4\] was asked for"),
        ({}, {"engine": "dense"}, "has not another engine: dense"),
        ({}, {"capture": CaptureOptions(points=("route",))}, "no boundary that transformers has"),
        ({}, {"max_bundle_bytes": 100}, "the budget is 100 bytes"),
    ],
    ids=str,
)
def test_what_transformers_has_not_is_refused(
    tmp_path: Path, changes: dict[str, object], options: dict[str, object], said: str
) -> None:
    spec = msgspec.structs.replace(case(SMALL, chunks=(5, 2), decode=1), **changes)
    with pytest.raises(UsageError, match=said):
        api.capture_hf(spec, out=tmp_path, run_id="x", options=RunOptions(**options))
    assert not (tmp_path / "x").exists()


def test_rows_of_another_session_are_refused(tmp_path: Path) -> None:
    spec = CaseSpec(
        name="reuse",
        model=f"synthetic:{SMALL}",
        sessions=(
            SessionSpec(prompt=PromptSpec(tokens=TOKENS[:8])),
            SessionSpec(prompt=PromptSpec(tokens=TOKENS[:9])),
        ),
        script=(
            ScriptEntry(rows=(RowsSpec(session=0, prefill=8),)),
            ScriptEntry(finish=(0,), keep=True),
            ScriptEntry(reuse=ReuseSpec(session=1, of=0, rows=4)),
            ScriptEntry(rows=(RowsSpec(session=1, prefill=5),)),
        ),
    )
    with pytest.raises(UsageError, match="session 1 takes over rows of session 0"):
        api.capture_hf(spec, out=tmp_path, run_id="x")


def test_a_session_longer_than_the_model_is_refused_before_anything_is_loaded(
    tmp_path: Path,
) -> None:
    spec = CaseSpec(
        name="long",
        model=f"synthetic:{SMALL}",
        sessions=(SessionSpec(prompt=PromptSpec(random=32_769)),),
    )
    with pytest.raises(CaseError, match="32769 prompt rows"):
        api.capture_hf(spec, out=tmp_path, run_id="x")


def test_a_module_that_is_called_otherwise_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The classes are as the table says, and one does something else: the boundary is named."""
    from transformers.models.gemma3.modeling_gemma3 import Gemma3MLP

    spec = case(SMALL, chunks=(5, 2), decode=0)
    with monkeypatch.context() as patch:
        patch.setattr(
            Gemma3MLP,
            "forward",
            lambda self, x: self.down_proj(self.act_fn(self.gate_proj(x)) * 2),
        )
        with pytest.raises(EngineError, match="nothing gave L0_mlp_gate_up in this step"):
            api.capture_hf(spec, out=tmp_path, run_id="x")
        patch.setattr(
            Gemma3MLP, "forward", lambda self, x: self.up_proj(self.gate_proj(x)[..., :96])
        )
        with pytest.raises(
            EngineError, match=r"L0_mlp_output of shape \[5, 192\]; wanted \[5, 96\]"
        ):
            api.capture_hf(spec, out=tmp_path, run_id="x")
    assert not (tmp_path / "x").exists()
    api.capture_hf(spec, out=tmp_path, run_id="x")  # the control
