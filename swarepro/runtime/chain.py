"""Runs the steps of a plan through a chain of stages, and decodes greedily."""

from collections.abc import Callable
from typing import Protocol

import torch

from swarepro import points
from swarepro.errors import CaseError
from swarepro.kvcache import OwnershipReport
from swarepro.plan import Phase, RunPlan, Step
from swarepro.runtime.parts import Tap
from swarepro.runtime.stage import Stage


class HiddenSource(Protocol):
    """Where a chain that does not begin at layer 0 gets its hidden states."""

    def hidden(self, step: Step) -> torch.Tensor:
        """Return ``[T, E]`` in the run's dtype on its device for ``step``."""
        ...


class StageChain:
    """Consecutive stages in one process, each with its own weights, pools and mapping.

    Args:
        stages: in layer order.
        last_tap: the tap of the last stage, which captures the token.
        device: of token ids and hidden states.
        source: of hidden states, when the first stage has no embedding.
    """

    def __init__(
        self,
        stages: tuple[Stage, ...],
        *,
        last_tap: Tap,
        device: torch.device,
        source: HiddenSource | None = None,
    ) -> None:
        self._stages = stages
        self._last_tap = last_tap
        self._device = device
        self._source = source

    def run(
        self,
        plan: RunPlan,
        *,
        before_step: Callable[[Step], None],
        after_step: Callable[[Step], None],
    ) -> tuple[tuple[int, ...], ...]:
        """Run every step.

        Args:
            plan: the steps; its prompts feed the prefill.
            before_step: called with each step before it runs.
            after_step: called with each step when all stages have computed it.

        Returns:
            Generated token ids per session, one by the last prefill chunk and one by each decode
            step; empty per session when the chain has no head.
        """
        tokens: list[list[int]] = [[] for _ in plan.prompts]
        for step in plan.steps:
            before_step(step)
            if step.reset:
                self.reset(step.index)
            (span,) = step.spans
            hidden = self._input(plan, step, tokens[span.session])
            for stage in self._stages:
                hidden = stage.run(step, hidden)
            if self._stages[-1].spec.has_head:
                token = hidden.argmax(dim=-1)
                self._last_tap(points.TOKEN, token, row_start=span.end - 1)
                if span.end >= len(plan.prompts[span.session]):
                    tokens[span.session].append(int(token))
            after_step(step)
        return tuple(tuple(session) for session in tokens)

    def reset(self, step: int) -> None:
        """Begin a new session before ``step`` in every stage."""
        for stage in self._stages:
            stage.reset(step)

    def ownership(self) -> tuple[OwnershipReport | None, ...]:
        """Return each stage's ownership report, in stage order."""
        return tuple(stage.ownership() for stage in self._stages)

    def _input(self, plan: RunPlan, step: Step, generated: list[int]) -> torch.Tensor:
        (span,) = step.spans
        if not self._stages[0].spec.has_embedding:
            if self._source is None:
                first = self._stages[0].spec.layer_start
                raise CaseError(
                    f"a stage that starts at layer {first} needs the hidden states it receives",
                    hint="give a bundle that holds them with --recv BUNDLE",
                )
            return self._source.hidden(step)
        if step.phase is Phase.DECODE:
            if not generated:
                raise CaseError(
                    "decode steps need the tokens of a stage with the head; this chain has none",
                    hint="run without decode steps, or run all layers",
                )
            ids = [generated[-1]]
        else:
            ids = list(plan.prompts[span.session][span.start : span.end])
        return torch.tensor(ids, dtype=torch.int64, device=self._device)
