"""Runs a plan through the dense reference: span by span, layer by layer, greedy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from swarepro import points
from swarepro.capture import Recorder, StageTap
from swarepro.checkpoint.config import ModelConfig
from swarepro.checkpoint.weights import StageWeights
from swarepro.dense import formulas
from swarepro.dense.history import History
from swarepro.dense.layer import DenseLayer
from swarepro.plan import Phase, RunPlan, Span, StageSpec, Step

Tokens = tuple[tuple[int, ...], ...]
Received = Callable[[Step, Span], torch.Tensor]


@torch.inference_mode()
def run_dense(
    plan: RunPlan,
    config: ModelConfig,
    weights: Sequence[StageWeights],
    *,
    dtype: torch.dtype,
    recorder: Recorder,
    received: Received | None,
    on_step: Callable[[Step], None],
) -> Tokens:
    """Run every step of ``plan`` and return the generated token ids, by session.

    Weights keep the dtype that they were loaded in, and the embedding's scale is rounded to it, as
    the checkpoint's own convention is; everything is computed in ``dtype``. A session's keys and
    values are never evicted, and no layer knows what a slot is.

    Args:
        plan: what runs.
        config: of the model.
        weights: of each stage.
        dtype: float32 or float64.
        recorder: takes what is captured: every boundary but slots, routes and what lies in a slot
            before it is written.
        received: hidden states ``[T, E]`` for a plan that does not begin at layer 0.
        on_step: called with each finished step.

    Raises:
        SessionError: the plan leaves out positions.
    """
    last = len(plan.stages) - 1
    stages = [
        _Stage(
            config=config,
            spec=spec,
            weights=own,
            dtype=dtype,
            tap=recorder.tap(rank, is_last=rank == last),
        )
        for rank, (spec, own) in enumerate(zip(plan.stages, weights, strict=True))
    ]
    history = History()
    generated: list[list[int]] = [[] for _ in plan.prompts]
    for step in plan.steps:
        recorder.begin_step(step.index)
        if step.reset:
            history.reset()
        history.act(step.actions)
        for span in step.spans:
            own = generated[span.session]
            if plan.stages[0].has_embedding:
                x = _ids(plan, span, own)
            elif received is not None:
                x = received(step, span).to(dtype)
            else:
                raise RuntimeError("a plan that does not begin at layer 0 receives hidden states")
            for stage in stages:
                x = stage.run(x, span, history)
            if plan.stages[-1].has_head:
                token = x.argmax(dim=-1)
                stages[-1].tap(points.TOKEN, token, session=span.session, row_start=span.end - 1)
                if span.end >= len(plan.prompts[span.session]):
                    own.append(int(token))
        recorder.end_step()
        on_step(step)
    return tuple(map(tuple, generated))


def _ids(plan: RunPlan, span: Span, generated: Sequence[int]) -> torch.Tensor:
    if span.phase is Phase.DECODE:
        return torch.tensor(generated[-1:])
    return torch.tensor(plan.prompts[span.session][span.start : span.end])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """Consecutive layers, with the ends of the model that they own."""

    config: ModelConfig
    spec: StageSpec
    weights: StageWeights
    dtype: torch.dtype
    tap: StageTap

    def run(self, x: torch.Tensor, span: Span, history: History) -> torch.Tensor:
        """Map token ids ``[T]`` or hidden ``[T, E]`` to hidden, or to the last row's logits."""
        at = {"session": span.session, "row_start": span.start}
        if self.spec.has_embedding:
            self.tap(points.INPUT_IDS, x, **at)
        self.tap(points.POSITIONS, torch.arange(span.start, span.end), **at)
        self.tap(points.PREFIX_LEN, torch.tensor(span.start), session=span.session)
        if self.weights.embedding is not None and self.spec.has_embedding:
            scale = torch.tensor(self.config.embed_scale, dtype=self.weights.embedding.dtype)
            rows = self.weights.embedding[x.to(self.weights.embedding.device)]
            x = rows.to(self.dtype) * scale.to(self.dtype)
            self.tap(points.EMBEDDING_OUTPUT, x, **at)
        else:
            self.tap(points.BOUNDARY_RECV_HIDDEN, x, **at)
        for layer, own in self.weights.layers.items():
            dense = DenseLayer(config=self.config, layer=layer, weights=own, tap=self.tap)
            x = dense.run(x, span, history)
        if self.weights.final_norm is None or self.weights.head is None:
            self.tap(points.BOUNDARY_SEND_HIDDEN, x, **at)
            return x
        return self._logits(x[-1:], self.weights.final_norm, self.weights.head, span)

    def _logits(
        self, x: torch.Tensor, norm: torch.Tensor, head: torch.Tensor, span: Span
    ) -> torch.Tensor:
        at = {"session": span.session, "row_start": span.end - 1}
        normed = formulas.rms_norm(
            x, norm, eps=self.config.rms_norm_eps, adds_one=self.config.norm_adds_one
        )
        self.tap(points.FINAL_NORM, normed, **at)
        logits = formulas.softcap(formulas.linear(normed, head), self.config.final_softcap)
        self.tap(points.LOGITS, logits, **at)
        return logits
