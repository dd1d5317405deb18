"""One pipeline stage: weights of some layers, their KV cache, and the parts that do the work."""

from collections.abc import Sequence

import torch

from swarepro import points
from swarepro.checkpoint.config import LayerConfig, ModelConfig
from swarepro.checkpoint.weights import StageWeights
from swarepro.errors import LayerTableError, StageEdgeError
from swarepro.kvcache import HybridKVCache, KVGroup, KVPool
from swarepro.plan import Action, Finish, Reuse, StageSpec, Step
from swarepro.runtime.attention import LayerRun
from swarepro.runtime.batch import RowBlock, SpanBatch, StepBatch, build_batch, joined
from swarepro.runtime.layers import decoder_layer
from swarepro.runtime.parts import LayerPlace, StageParts
from swarepro.runtime.rotary import RotaryTables
from swarepro.runtime.taps import tap_rows


class Stage:
    """Runs the layers of one stage, step by step, for any number of sessions.

    Attributes:
        spec: which layers, and which ends of the model.
        config: of the model.
        parts: that do the work; with what they know, they are the stage's state beside its pools.
    """

    def __init__(
        self,
        *,
        spec: StageSpec,
        config: ModelConfig,
        weights: StageWeights,
        cache: HybridKVCache,
        parts: StageParts,
        together: bool,
        evict: bool,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.spec = spec
        self.config = config
        self.parts = parts
        self._weights = weights
        self._cache = cache
        self._places = parts.layers.places()
        self._windows = frozenset((place.group, place.window_left) for place in self._places)
        self._together = together
        self._evict = evict
        self._rotary = RotaryTables(
            dtype, device, lambda rope, dim: self.parts.ops.rotary_frequencies(rope, dim)
        )
        self._dtype = dtype

    @property
    def pools(self) -> dict[KVGroup, KVPool]:
        """Keys and values, by KV group."""
        return self._cache.pools

    @torch.inference_mode()
    def reset(self) -> None:
        """Forget every session: clear the pools, then rebuild who owns what."""
        self._cache.clear()
        self.parts.allocator.reset()

    @torch.inference_mode()
    def act(self, action: Action) -> None:
        """Finish a session, or let one reuse a prefix. Raises ReuseError."""
        allocator = self.parts.allocator
        if isinstance(action, Finish):
            allocator.finish(action.session, keep=action.keep)
        else:
            allocator.reuse(action.session, action.of, action.rows)

    @torch.inference_mode()
    def check_act(self, action: Action) -> None:
        """Raise what `act` would raise; change nothing."""
        if isinstance(action, Reuse):
            self.parts.allocator.check_reuse(action.session, action.of, action.rows)

    @torch.inference_mode()
    def check(self, step: Step) -> None:
        """Raise what `run` would raise for want of slots, or for a gap; change nothing.

        Raises:
            LayerTableError: a layer would run with the shapes of another.
        """
        self._check_shapes()
        self.parts.allocator.check(step.spans)

    def _check_shapes(self) -> None:
        for place in self._places:
            own, taken = (self.config.layers[x] for x in (place.layer, place.config_layer))
            if _shapes(own) != _shapes(taken):
                raise LayerTableError(
                    f"layer {place.layer} takes its shapes from layer {place.config_layer}:"
                    f" (kv heads, head_dim, V is K) are {_shapes(taken)}, its weights'"
                    f" {_shapes(own)}",
                    hint="the stage's layer table is wrong; nothing has run",
                )

    @torch.inference_mode()
    def run(self, step: Step, received: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Compute one step.

        Args:
            step: one span of each session that takes part.
            received: by span: token ids ``[T]`` int64 in a stage with the embedding, else hidden
                ``[T, E]``.

        Returns:
            By span: logits ``[1, V]`` of the last row in a stage with the head, else hidden
            ``[T, E]``.

        Raises:
            PositionGapError, CapacityError: before anything ran or was allocated.
            SlotRangeError: before anything ran; slots were allocated.
            StageEdgeError: likewise; the stages before have run.
        """
        allocator = self.parts.allocator
        allocator.ensure(step.spans)
        batch = build_batch(
            step,
            self._cache,
            allocator,
            self.parts.metadata,
            windows=self._windows,
            together=self._together,
        )
        self._rotary.begin_step()
        ahead = list(received)
        hidden = []
        for block in batch.blocks:
            rows, ahead = joined(ahead[: len(block.spans)]), ahead[len(block.spans) :]
            hidden.append(self._enter(rows, block))
        entered = hidden
        for place in self._places:
            entered, hidden = hidden, decoder_layer(self._layer_run(place, batch), hidden)
        if self._evict:
            self._evict_after(step)
        return self._leave(batch, hidden, entered)

    def _layer_run(self, place: LayerPlace, batch: StepBatch) -> LayerRun:
        return LayerRun(
            config=self.config,
            place=place,
            layer=self.config.layers[place.config_layer],
            weights=self._weights.layers[place.layer],
            cache=self._cache,
            batch=batch,
            rotary=self._rotary,
            parts=self.parts,
        )

    def _evict_after(self, step: Step) -> None:
        """Free the SWA slots that the next query of each session cannot see."""
        window_left = self.parts.allocator.window_left
        if window_left is not None:
            for span in step.spans:
                self.parts.allocator.evict(span.session, max(0, span.end - window_left))

    def _enter(self, received: torch.Tensor, block: RowBlock) -> torch.Tensor:
        tap = self.parts.tap
        for batch, rows in zip(block.spans, block.rows, strict=True):
            self._tap_metadata(batch, received[rows])
        if not self.spec.has_embedding:
            hidden = self._receive(received)
            tap_rows(tap, points.BOUNDARY_RECV_HIDDEN, hidden, block)
            return hidden
        if self._weights.embedding is None:
            raise RuntimeError(f"stage {self.spec} has no embedding")
        hidden = self.parts.ops.embed(
            received, self._weights.embedding, scale=self.config.embed_scale
        )
        tap_rows(tap, points.EMBEDDING_OUTPUT, hidden, block)
        return hidden

    def _receive(self, sent: torch.Tensor) -> torch.Tensor:
        hidden = self.parts.edge.receive(sent)
        wanted = (sent.shape[0], self.config.hidden_size)
        if tuple(hidden.shape) != wanted or hidden.dtype != self._dtype:
            raise StageEdgeError(
                f"the stage that begins at layer {self.spec.layer_start} received"
                f" {tuple(hidden.shape)} {hidden.dtype}, wanted {wanted} {self._dtype}",
                hint="one plane crosses the edge of a stage, the residual stream, in the run's"
                " dtype; no layer of the stage has run",
            )
        return hidden

    def _tap_metadata(self, batch: SpanBatch, received: torch.Tensor) -> None:
        tap, span = self.parts.tap, batch.span
        if self.spec.has_embedding:
            tap(points.INPUT_IDS, received, session=span.session, row_start=span.start)
        tap(points.POSITIONS, batch.positions, session=span.session, row_start=span.start)
        if tap.wants(points.PREFIX_LEN):
            tap(points.PREFIX_LEN, torch.tensor(span.start), session=span.session)
        tap(points.FULL_SLOTS, batch.full_slots, session=span.session, row_start=0)
        if batch.swa_slots is not None:
            tap(points.SWA_SLOTS, batch.swa_slots, session=span.session, row_start=0)
        if tap.wants(points.ROUTE):
            routes = [self.parts.attention.route(span, place.layer) for place in self._places]
            tap(points.ROUTE, torch.tensor(routes), session=span.session)

    def _leave(
        self,
        batch: StepBatch,
        hidden: Sequence[torch.Tensor],
        entered: Sequence[torch.Tensor],
    ) -> list[torch.Tensor]:
        out = []
        for block, rows_of_block, before in zip(batch.blocks, hidden, entered, strict=True):
            if not self.spec.has_head:
                rows_of_block = self.parts.edge.send(rows_of_block, before)
                tap_rows(self.parts.tap, points.BOUNDARY_SEND_HIDDEN, rows_of_block, block)
            for span, rows in zip(block.spans, block.rows, strict=True):
                own = rows_of_block[rows]
                out.append(self._logits(own[-1:], span) if self.spec.has_head else own)
        return out

    def _logits(self, hidden: torch.Tensor, batch: SpanBatch) -> torch.Tensor:
        ops, tap = self.parts.ops, self.parts.tap
        session, row = batch.span.session, batch.span.end - 1
        if self._weights.final_norm is None or self._weights.head is None:
            raise RuntimeError(f"stage {self.spec} has no head")
        normed = ops.rms_norm(
            hidden,
            self._weights.final_norm,
            eps=self.config.rms_norm_eps,
            adds_one=self.config.norm_adds_one,
        )
        tap(points.FINAL_NORM, normed, session=session, row_start=row)
        logits = ops.unembed(normed, self._weights.head)
        if self.config.final_softcap is not None:
            logits = ops.softcap(logits, self.config.final_softcap)
        tap(points.LOGITS, logits, session=session, row_start=row)
        return logits


def _shapes(layer: LayerConfig) -> tuple[int, int, bool]:
    return layer.num_kv_heads, layer.head_dim, layer.k_eq_v
