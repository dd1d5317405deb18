"""One pipeline stage: weights of some layers, their KV cache, and the parts that do the work."""

import torch

from swarepro import points
from swarepro.checkpoint.config import ModelConfig
from swarepro.checkpoint.weights import StageWeights
from swarepro.kvcache import HybridKVCache, KVGroup, OwnershipCheck, OwnershipReport
from swarepro.plan import StageSpec, Step
from swarepro.runtime.batch import StepBatch, build_batch
from swarepro.runtime.layers import decoder_layer
from swarepro.runtime.parts import StageParts
from swarepro.runtime.rotary import RotaryTables


class Stage:
    """Runs the layers of one stage, step by step, for one session at a time.

    Attributes:
        spec: which layers, and which ends of the model.
        config: of the model.
    """

    def __init__(
        self,
        *,
        spec: StageSpec,
        config: ModelConfig,
        weights: StageWeights,
        cache: HybridKVCache,
        parts: StageParts,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.spec = spec
        self.config = config
        self._weights = weights
        self._cache = cache
        self._parts = parts
        self._rotary = RotaryTables(dtype, device)
        self._dtype = dtype
        self._device = device
        self._ownership = OwnershipCheck()

    def reset(self, step: int) -> None:
        """Begin a new session before ``step``: zero the pools, then rebuild who owns what."""
        self._cache.zero()
        if self._parts.allocator is not None:
            self._parts.allocator.reset()
            self._ownership.after_reset(step, self._parts.allocator)

    def ownership(self) -> OwnershipReport | None:
        """Return who owns which SWA slot; None in a stage without sliding layers."""
        if self._parts.allocator is None:
            return None
        return self._ownership.report(self._parts.allocator)

    @torch.inference_mode()
    def run(self, step: Step, received: torch.Tensor) -> torch.Tensor:
        """Compute one step.

        Args:
            step: with one span.
            received: token ids ``[T]`` int64 in a stage with the embedding, else hidden ``[T, E]``.

        Returns:
            Logits ``[1, V]`` of the last row in a stage with the head, else hidden ``[T, E]``.

        Raises:
            PositionGapError, CapacityError: before anything ran or was allocated.
        """
        (span,) = step.spans
        allocator, tap = self._parts.allocator, self._parts.tap
        if allocator is not None:
            allocator.ensure(span.start, span.end - span.start)
        batch = build_batch(step, self._cache, allocator)
        self._tap_metadata(batch, received)
        hidden = self._enter(received, batch)
        for layer in self.config.layers[self.spec.layer_start : self.spec.layer_end]:
            hidden = decoder_layer(
                hidden,
                config=self.config,
                layer=layer,
                weights=self._weights.layers[layer.layer],
                cache=self._cache,
                batch=batch,
                rotary=self._rotary,
                parts=self._parts,
            )
        if allocator is not None:
            stored = batch.groups[KVGroup.SLIDING].slots[span.start - span.end :].cpu()
            self._ownership.after_store(step.index, span.start, stored, allocator)
        if self.spec.has_head:
            return self._logits(hidden[-1:], row=span.end - 1)
        tap(points.BOUNDARY_SEND_HIDDEN, hidden, row_start=batch.start)
        return hidden

    def _tap_metadata(self, batch: StepBatch, received: torch.Tensor) -> None:
        tap = self._parts.tap
        if self.spec.has_embedding:
            tap(points.INPUT_IDS, received, row_start=batch.start)
        tap(points.POSITIONS, batch.positions, row_start=batch.start)
        if tap.wants(points.PREFIX_LEN):
            tap(points.PREFIX_LEN, torch.tensor(batch.start))
        tap(points.FULL_SLOTS, batch.full_slots, row_start=0)
        if batch.swa_slots is not None:
            tap(points.SWA_SLOTS, batch.swa_slots, row_start=0)
        if tap.wants(points.ROUTE):
            routes = [
                self._parts.attention.route(batch.phase, layer)
                for layer in range(self.spec.layer_start, self.spec.layer_end)
            ]
            tap(points.ROUTE, torch.tensor(routes))

    def _enter(self, received: torch.Tensor, batch: StepBatch) -> torch.Tensor:
        tap = self._parts.tap
        if not self.spec.has_embedding:
            tap(points.BOUNDARY_RECV_HIDDEN, received, row_start=batch.start)
            return received
        if self._weights.embedding is None:
            raise RuntimeError(f"stage {self.spec} has no embedding")
        scale = torch.tensor(self.config.embed_scale, dtype=self._dtype, device=self._device)
        hidden = torch.nn.functional.embedding(received, self._weights.embedding) * scale
        tap(points.EMBEDDING_OUTPUT, hidden, row_start=batch.start)
        return hidden

    def _logits(self, hidden: torch.Tensor, *, row: int) -> torch.Tensor:
        ops, tap = self._parts.ops, self._parts.tap
        if self._weights.final_norm is None or self._weights.head is None:
            raise RuntimeError(f"stage {self.spec} has no head")
        normed = ops.rms_norm(
            hidden,
            self._weights.final_norm,
            eps=self.config.rms_norm_eps,
            adds_one=self.config.norm_adds_one,
        )
        tap(points.FINAL_NORM, normed, row_start=row)
        logits = ops.linear(normed, self._weights.head)
        if self.config.final_softcap is not None:
            logits = ops.softcap(logits, self.config.final_softcap)
        tap(points.LOGITS, logits, row_start=row)
        return logits
