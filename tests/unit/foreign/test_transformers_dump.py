"""What a user dumps of a transformers run in SGLang's files, two ranks, qkv fused."""

import inspect
import re
from pathlib import Path

import pytest
import torch

from swarepro import api
from swarepro.case import CaseSpec, PromptSpec, SessionSpec
from swarepro.compare.types import Tolerance
from swarepro.errors import ForeignError, IncomparableError
from swarepro.options import RunOptions
from tests.unit.foreign.user_dump import dump_forward
from tests.unit.runtime.test_transformers_parity import TOKENS, make_model

transformers = pytest.importorskip("transformers")

SIZES = {"H": 4, "K": 2, "D": 16, "I": 192}
CHUNKS = (40, 27)


def passes(model):
    """Yield the step, its token ids and what the model takes beside them, chunk by chunk."""
    takes = inspect.signature(model.forward).parameters
    word = "cache" if "cache" in takes else "past_key_values"  # it was renamed
    cache = transformers.DynamicCache(config=model.config)
    start = 0
    for step, rows in enumerate(CHUNKS):
        yield step, list(TOKENS[start : start + rows]), {word: cache, "use_cache": True}
        start += rows


def dump(model, folder: Path, *, world: int, edit=None) -> Path:
    folder.mkdir()
    for step, ids, more in passes(model):
        dump_forward(model, ids, folder, step=step, world=world, edit=edit, **more)
    return folder


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """The model, its folder, and imports of one rank and of two."""
    folder = tmp_path_factory.mktemp("dumps")
    model = make_model("gemma3")
    model.save_pretrained(folder / "model")
    for world in (1, 2):
        bring(dump(model, folder / f"tp{world}", world=world), folder / f"of{world}")
    return model, folder


def bring(source: Path, out: Path):
    return api.import_foreign("torch", source, map_name="sglang", out=out, sizes=SIZES)


def test_two_ranks_have_the_bytes_of_one(work):
    _, folder = work
    found = api.diff_runs(folder / "of1", folder / "of2")
    assert found.verdict == "IDENTICAL"
    assert found.compared == 2 * (12 * 8 + 4)
    assert (found.only_baseline, found.only_target) == ((), ())


@pytest.fixture(scope="module")
def own(work) -> Path:
    """Our own run of the model over the same chunks."""
    _, folder = work
    case = CaseSpec(
        name="own",
        model=str(folder / "model"),
        dtype="fp32",
        capacity=128,
        sessions=(SessionSpec(prompt=PromptSpec(tokens=TOKENS), chunks=CHUNKS),),
    )
    return api.run_case(case, out=folder, run_id="own").bundle


NEAR = Tolerance(atol=2e-4, rtol=2e-4)
"""Float32 on both sides, other orders of summation; one swapped head differs by more than 0.1."""


def test_the_import_compares_clean_with_our_own_run_of_the_model(work, own):
    _, folder = work
    found = api.diff_runs(own, folder / "of2", tolerance=NEAR)
    assert found.verdict == "WITHIN_TOLERANCE"
    assert found.compared == 2 * (12 * 8 + 4)
    assert found.only_target == ()
    with pytest.raises(IncomparableError, match="engine paged against sglang"):
        api.diff_runs(own, folder / "of2")


def test_the_example_of_the_documentation_does_what_it_says(work, own, tmp_path):
    model, _ = work
    page = (Path(__file__).parents[3] / "docs" / "import.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], names)
    (tmp_path / "dump").mkdir()
    for step, ids, more in passes(model):
        names["save_hooks"](model, ids, tmp_path / "dump" / f"step-{step}.safetensors", **more)
    api.import_foreign(
        "safetensors",
        tmp_path / "dump",
        map_name="transformers",
        out=tmp_path / "bundle",
        sizes={"D": 16},
    )
    found = api.diff_runs(own, tmp_path / "bundle", tolerance=NEAR)
    assert found.verdict == "WITHIN_TOLERANCE"
    assert f"all {found.compared} boundaries have equal values" in page
    assert found.only_target == ()


def test_a_stage_of_ours_goes_on_from_an_imported_hidden_state(work, own, tmp_path):
    """The upper layers receive what the other engine's lower layers computed."""
    _, folder = work
    model = str(folder / "model")
    api.import_foreign(
        "torch", folder / "tp2", map_name="sglang", out=tmp_path / "low", sizes=SIZES, model=model
    )
    case = CaseSpec(
        name="upper",
        model=model,
        dtype="fp32",
        capacity=128,
        layers="7:12",
        sessions=(SessionSpec(prompt=PromptSpec(tokens=TOKENS), chunks=CHUNKS),),
    )
    options = RunOptions(recv=tmp_path / "low")
    upper = api.run_case(case, out=tmp_path, run_id="upper", options=options).bundle
    found = api.diff_runs(own, upper, tolerance=NEAR)
    assert found.verdict == "WITHIN_TOLERANCE"
    assert found.compared > 100


def swapped(name: str, rank: int, tensor: torch.Tensor) -> torch.Tensor:
    """Swap the two query heads of rank 1 in layer 3."""
    if rank != 1 or "layers.3.self_attn.qkv_proj" not in name:
        return tensor
    return torch.cat([tensor[:, 16:32], tensor[:, :16], tensor[:, 32:]], dim=1)


def test_swapped_heads_of_one_rank_are_named(work, tmp_path):
    model, folder = work
    bring(dump(model, tmp_path / "dump", world=2, edit=swapped), tmp_path / "bundle")
    found = api.diff_runs(folder / "of2", tmp_path / "bundle")
    assert found.verdict == "DIVERGED"
    assert (found.first.step, found.first.name) == (0, "L3_qkv_projected")
    assert (found.first.numbers.heads, found.first.numbers.num_heads) == ((2, 3), 8)
    assert found.exact
    names = {boundary.name for boundary in found.boundaries}
    assert names == {"L3_qkv_projected"}


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda name, rank, x: x + rank if "layers.2.mlp.output" in name else x, "rank 1 does not"),
        (lambda name, rank, x: x[:, :-1] if "layers.2.self_attn.qkv" in name else x, "of 63 in"),
    ],
    ids=["not-reduced", "short"],
)
def test_ranks_that_do_not_go_together_are_refused(edit, why, work, tmp_path):
    model, _ = work
    source = dump(model, tmp_path / "dump", world=2, edit=edit)
    with pytest.raises(ForeignError, match=why):
        bring(source, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()
