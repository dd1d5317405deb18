"""Runs a plan through transformers, span by span, greedy, and records our points."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from swarepro import points
from swarepro.capture import Recorder
from swarepro.errors import EngineError, PositionGapError
from swarepro.hf.cache import watched_cache
from swarepro.hf.hooks import Current, source_of, watch
from swarepro.hf.load import HfModel
from swarepro.hf.parts import Place, SpanReading
from swarepro.hf.table import Read
from swarepro.plan import Finish, Phase, RunPlan, Span, Step

ABSENT = points.OF_AN_ENGINE
"""What transformers has not: slots, a choice of routes, and memory before it is written."""

Tokens = tuple[tuple[int, ...], ...]
Shapes = Mapping[tuple[int, int], Mapping[Place, tuple[int, ...]]]
"""By step and session: the shape of every place."""


@torch.inference_mode()
def run_transformers(
    plan: RunPlan,
    hf: HfModel,
    *,
    num_layers: int,
    dtype: torch.dtype,
    recorder: Recorder,
    shapes: Shapes,
    on_step: Callable[[Step], None],
) -> Tokens:
    """Run every step of ``plan`` and return the generated token ids, by session.

    Every session has a cache of transformers' own; positions and masks are made by transformers.

    Args:
        plan: what runs, in one stage.
        hf: the model.
        num_layers: of the model.
        dtype: of its activations.
        recorder: takes what is captured.
        shapes: every place that has to be read, in every step, and its shape.
        on_step: called with each finished step.

    Raises:
        EngineError: a point is not given, not in its shape, or given twice.
        PositionGapError: the plan leaves out positions.
    """
    tap, current = recorder.tap(0, is_last=True), Current()
    caches: dict[int, Any] = {}
    generated: list[list[int]] = [[] for _ in plan.prompts]
    with watch(hf, num_layers, current):
        for step in plan.steps:
            recorder.begin_step(step.index)
            if step.reset:
                caches.clear()
            for action in step.actions:
                if not isinstance(action, Finish):
                    raise EngineError("transformers takes over no rows of another session")
                caches.pop(action.session, None)
            for span in step.spans:
                if span.session not in caches:
                    caches[span.session] = watched_cache(hf, current)
                reading = SpanReading(span, tap, shapes[step.index, span.session], dtype)
                current.reading = reading
                try:
                    token = _forward(
                        hf, caches[span.session], _ids(plan, span, generated), span, reading
                    )
                finally:
                    current.reading = None
                reading.finish()
                if span.end >= len(plan.prompts[span.session]):
                    generated[span.session].append(token)
            recorder.end_step()
            on_step(step)
    return tuple(map(tuple, generated))


def _ids(plan: RunPlan, span: Span, generated: list[list[int]]) -> torch.Tensor:
    if span.phase is Phase.DECODE:
        return torch.tensor([generated[span.session][-1:]])
    return torch.tensor([plan.prompts[span.session][span.start : span.end]])


def _forward(hf: HfModel, cache: Any, ids: torch.Tensor, span: Span, reading: SpanReading) -> int:
    """Compute one span and return the token with the largest logit of its last row."""
    rows = int(cache.get_seq_length())
    if rows != span.start:
        raise PositionGapError(
            f"session {span.session}: rows from position {span.start} on were given, and the cache"
            f" of transformers has {rows}"
        )
    reading.take(source_of(hf, Read.PREFIX), None, torch.tensor(rows), where="the cache")
    named = "cache" if "cache" in inspect.signature(hf.model.forward).parameters else None
    result = hf.model(
        input_ids=ids,
        use_cache=True,
        logits_to_keep=1,
        **{named or "past_key_values": cache},
    )
    logits = result.logits
    reading.take(source_of(hf, Read.RESULT), None, logits, where="the model")
    token = logits[0, -1:].argmax(dim=-1)
    reading.take(source_of(hf, Read.CHOICE), None, token[None], where="the model")
    return int(token)
