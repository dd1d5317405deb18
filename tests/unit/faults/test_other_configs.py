"""A fault of windows, rope or scale gives, to the byte, what a healthy run of another config gives.

The same weights, tokens and order of operations; only the config that the model has is another.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from swarepro.backend import Backend
from swarepro.build import Execution, Model, Setting, load_model
from swarepro.capture import MemorySink
from swarepro.checkpoint import open_checkpoint
from swarepro.checkpoint.config import LayerConfig, LayerKind, ModelConfig, RopeKind, RopeSpec
from swarepro.plan import plan_stages
from tests.unit.runtime.scripted import ALL, Pools, batch, decode, prefill, prompt, script_plan

Change = Callable[[LayerConfig, ModelConfig], LayerConfig]
PLAN = replace(
    script_plan(
        (batch(prefill(0, 33)), batch(prefill(0, 5), prefill(1, 7)), batch(decode(0), decode(1))),
        (prompt(38, 1), prompt(7, 2)),
        Pools(),
    ),
    stages=plan_stages(stages=None, layers=None, num_layers=6),
)


def windows(by: int) -> Change:
    def change(layer, config):
        window = layer.sliding_window
        return replace(layer, sliding_window=None if window is None else window + by)

    return change


def as_sliding(layer: LayerConfig, config: ModelConfig) -> LayerConfig:
    first = config.layers[0]
    return replace(first, layer=layer.layer)


def windowed(layer: LayerConfig, config: ModelConfig) -> LayerConfig:
    window = config.layers[0].sliding_window
    return replace(layer, kind=LayerKind.SLIDING, sliding_window=window)


def as_full(layer: LayerConfig, config: ModelConfig) -> LayerConfig:
    return replace(config.layers[-1], layer=layer.layer)


def unwindowed(layer: LayerConfig, config: ModelConfig) -> LayerConfig:
    return replace(layer, kind=LayerKind.FULL, sliding_window=None)


def rope(kind: LayerKind, of: Callable[[RopeSpec], RopeSpec]) -> Change:
    def change(layer, config):
        return replace(layer, rope=of(layer.rope)) if layer.kind is kind else layer

    return change


def linear(spec: RopeSpec) -> RopeSpec:
    return replace(spec, kind=RopeKind.LINEAR, factor=8.0)


LAYERS: dict[str, Change] = {
    "every-layer-sliding": as_sliding,
    "every-layer-windowed": windowed,
    "no-layer-sliding": as_full,
    "no-layer-windowed": unwindowed,
    "window-of-group-on-all": windowed,
    "window-one-too-large": windows(1),
    "window-one-too-small": windows(-1),
    "rope-factor-missing": rope(LayerKind.FULL, lambda spec: replace(spec, factor=1.0)),
    "rope-factor-on-local": rope(LayerKind.SLIDING, linear),
    "local-theta-on-all": rope(LayerKind.FULL, lambda spec: replace(spec, theta=1e4)),
    "global-theta-on-all": rope(LayerKind.SLIDING, lambda spec: replace(spec, theta=1e6)),
}
FIELDS = {
    "attention-softcap-dropped": ("gemma2-tiny", {"attention_softcap": None}),
    "final-softcap-dropped": ("gemma2-tiny", {"final_softcap": None}),
    "scale-from-head-dim": ("gemma3-tiny", {"attention_scale": 0.25}),
    "embed-scale-missing": ("gemma3-tiny", {"embed_scale": 1.0}),
}


@cache
def model(name: str) -> Model:
    checkpoint = open_checkpoint(f"synthetic:{name}?layers=6")
    backend = Backend(device="cpu", triton="off")
    return load_model(checkpoint, PLAN, dtype="bf16", backend=backend)


def logits(model: Model, *faults: str) -> list[str]:
    """Return the digests of the logits of every span."""
    setting = Setting(capture=ALL, faults=faults, schedule="program", route="eager")
    sink = MemorySink([])
    Execution(PLAN, model, setting, sink=sink).run()
    return [record.digest for record in sink.records if record.name == "logits"]


@pytest.mark.parametrize("fault", LAYERS)
def test_a_fault_of_layers_gives_what_the_wrong_layers_give(fault: str) -> None:
    right = model("gemma3-tiny")
    layers = tuple(LAYERS[fault](layer, right.config) for layer in right.config.layers)
    other = replace(right, config=replace(right.config, layers=layers))
    assert logits(right, fault) == logits(other)
    assert logits(right)[0] != logits(other)[0]


@pytest.mark.parametrize("fault", FIELDS)
def test_a_fault_of_a_number_gives_what_the_wrong_number_gives(fault: str) -> None:
    name, fields = FIELDS[fault]
    right = model(name)
    other = replace(right, config=replace(right.config, **fields))
    assert logits(right, fault) == logits(other)
    assert not set(logits(right)) & set(logits(other))
