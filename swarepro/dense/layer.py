"""One layer of the reference, for one span of one session."""

from dataclasses import dataclass

import torch

from swarepro import points
from swarepro.capture import StageTap
from swarepro.checkpoint.config import ModelConfig
from swarepro.checkpoint.weights import LayerWeights
from swarepro.dense import formulas
from swarepro.dense.history import History
from swarepro.plan import Span
from swarepro.points import CapturePoint


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseLayer:
    """A layer of a model, by its global id, with its weights."""

    config: ModelConfig
    layer: int
    weights: LayerWeights
    tap: StageTap

    def run(self, hidden: torch.Tensor, span: Span, history: History) -> torch.Tensor:
        """Map the residual stream ``[T, E]`` of ``span`` through the layer, to a new tensor."""
        w = self.weights
        normed = self._kept(points.INPUT_NORMED, self._norm(hidden, w.input_norm), span)
        attended = self._attention(normed, span, history)
        residual = hidden + self._norm(attended, w.post_attention_norm)
        self._kept(points.ATTN_RESIDUAL, residual, span)
        gate_up = formulas.linear(self._norm(residual, w.pre_feedforward_norm), w.gate_up)
        self._kept(points.MLP_GATE_UP, gate_up, span)
        gate, up = gate_up.chunk(2, dim=-1)
        mlp = formulas.linear(formulas.gelu_tanh(gate) * up, w.down)
        self._kept(points.MLP_OUTPUT, mlp, span)
        out = residual + self._norm(mlp, w.post_feedforward_norm)
        if w.layer_scalar is not None:
            out = out * w.layer_scalar.to(out.dtype)
        return self._kept(points.AFTER_LAYER, out, span)

    def _attention(self, normed: torch.Tensor, span: Span, history: History) -> torch.Tensor:
        own, w = self.config.layers[self.layer], self.weights
        heads, kv_heads = self.config.num_heads, own.num_kv_heads
        qkv = self._kept(points.QKV_PROJECTED, formulas.linear(normed, w.qkv), span)
        by_head = qkv.view(span.rows, -1, own.head_dim)
        q, k = by_head[:, :heads], by_head[:, heads : heads + kv_heads]
        v = k if own.k_eq_v else by_head[:, heads + kv_heads :]
        if w.q_norm is not None and w.k_norm is not None:
            q = self._kept(points.Q_NORMED, self._norm(q, w.q_norm), span)
            k = self._kept(points.K_NORMED, self._norm(k, w.k_norm), span)
        if self.config.has_v_norm:
            v = formulas.rms_norm(v, None, eps=self.config.rms_norm_eps, adds_one=False)
        self._kept(points.V_NORMED, v, span)
        positions = torch.arange(span.start, span.end, device=normed.device)
        q, k = (formulas.rope(x, positions, own.rope) for x in (q, k))
        self._kept(points.ROTARY_APPLIED, torch.cat([q, k], dim=1), span)
        keys, values = history.extend(span.session, self.layer, span.start, k, v)
        self._keep_slice(keys, values, span)
        out = formulas.attention(
            q,
            keys,
            values,
            formulas.visible(
                span.start,
                span.end,
                own.sliding_window,
                span.images if own.kind in self.config.images_in else (),
            ),
            scale=self.config.attention_scale,
            cap=self.config.attention_softcap,
        )
        self._kept(points.ATTENTION_OUTPUT, out, span)
        return self._kept(points.O_PROJ, formulas.linear(out.flatten(1), w.o_proj), span)

    def _keep_slice(self, keys: torch.Tensor, values: torch.Tensor, span: Span) -> None:
        """Capture the rows that a query of the span can see."""
        if not self.tap.wants(points.KV_SLICE_POST_WRITE, self.layer):
            return
        window = self.config.layers[self.layer].sliding_window
        first = 0 if window is None else max(0, span.start - window + 1)
        rows = torch.stack([keys[first:], values[first:]], dim=1)
        self.tap(
            points.KV_SLICE_POST_WRITE, rows, self.layer, session=span.session, row_start=first
        )

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return formulas.rms_norm(
            x, weight, eps=self.config.rms_norm_eps, adds_one=self.config.norm_adds_one
        )

    def _kept(self, point: CapturePoint, x: torch.Tensor, span: Span) -> torch.Tensor:
        self.tap(point, x, self.layer, session=span.session, row_start=span.start)
        return x
