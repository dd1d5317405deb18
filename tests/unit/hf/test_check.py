"""A model that is not as its table says is refused by name: every table, every kind of change."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from swarepro import points
from swarepro.errors import EngineError
from swarepro.hf.check import check_model
from swarepro.hf.engine import ABSENT
from swarepro.hf.table import TABLES
from tests.unit.hf.models import TYPES, random_model

pytest.importorskip("transformers", reason="the hf extra is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")
each_type = pytest.mark.parametrize("model_type", TYPES)


def test_there_is_a_model_here_for_every_table() -> None:
    assert set(TYPES) == set(TABLES)


@each_type
def test_a_model_of_transformers_is_as_its_table_says(model_type: str) -> None:
    check_model(*random_model(model_type))


@each_type
def test_every_point_has_one_source(model_type: str) -> None:
    names = [source.point.name for source in TABLES[model_type].sources]
    optional = {point.name for point in points.ALL if point.optional}
    edges = {points.BOUNDARY_SEND_HIDDEN.name, points.BOUNDARY_RECV_HIDDEN.name}
    wanted = {point.name for point in points.ALL} - ABSENT - edges
    assert len(names) == len(set(names))
    assert set(names) == (wanted - optional if model_type == "gemma2" else wanted)


def swapped(model: Any) -> None:
    model.model.layers[2].mlp.up_proj = torch.nn.Identity()


def other_norm(model: Any) -> None:
    model.model.layers[1].pre_feedforward_layernorm = torch.nn.RMSNorm(48)


def missing(model: Any) -> None:
    del model.model.layers[0].post_attention_layernorm


def one_more(model: Any) -> None:
    model.model.layers[3].self_attn.adapter = torch.nn.Linear(2, 2)


def biased(model: Any) -> None:
    model.model.layers[4].self_attn.o_proj.bias = torch.nn.Parameter(torch.zeros(48))


def other_shape(model: Any) -> None:
    model.model.layers[0].mlp.down_proj = torch.nn.Linear(79, 48, bias=False)


def one_layer_more(model: Any) -> None:
    model.model.layers.append(model.model.layers[0])


def wrapped(model: Any) -> None:
    model.lm_head = torch.nn.Sequential(model.lm_head)


CHANGES: list[tuple[Callable[[Any], None], str]] = [
    (swapped, "module 'model.layers.2.mlp.up_proj' is Identity; wanted Linear"),
    (other_norm, "'model.layers.1.pre_feedforward_layernorm' is RMSNorm; wanted Gemma.*RMSNorm"),
    (missing, "'model.layers.0.post_attention_layernorm' is missing; wanted Gemma.*RMSNorm"),
    (one_more, "'model.layers.3.self_attn.adapter', Linear, is in the model and not in its table"),
    (biased, r"tensor 'model.layers.4.self_attn.o_proj.bias', \[48\], is in the model and not in"),
    (other_shape, r"mlp.down_proj.weight' has shape \[48, 79\]; wanted shape \[48, 80\]"),
    (one_layer_more, "module 'model.layers.6', Gemma.*, is in the model and not in its table"),
    (wrapped, "module 'lm_head' is Sequential; wanted Linear"),
]


@each_type
@pytest.mark.parametrize(("change", "said"), CHANGES, ids=lambda x: getattr(x, "__name__", ""))
def test_what_was_changed_is_named(
    model_type: str, change: Callable[[Any], None], said: str
) -> None:
    model, table, config = random_model(model_type)
    change(model)
    with pytest.raises(EngineError, match=said):
        check_model(model, table, config)


def test_the_table_of_another_model_type_is_refused() -> None:
    model, _, config = random_model("gemma3_text")
    with pytest.raises(EngineError, match="the model is Gemma3ForCausalLM; wanted Gemma2For"):
        check_model(model, TABLES["gemma2"], config)
