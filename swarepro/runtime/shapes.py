"""The shapes of all boundary tensors, known before anything runs: for size estimates and checks."""

from collections.abc import Iterator
from dataclasses import dataclass

from swarepro import points
from swarepro.checkpoint.config import LayerConfig, LayerKind, ModelConfig
from swarepro.plan import RunPlan, Span, StageSpec
from swarepro.points import CapturePoint, Scope

_INT64_POINTS = (
    points.INPUT_IDS,
    points.POSITIONS,
    points.PREFIX_LEN,
    points.FULL_SLOTS,
    points.SWA_SLOTS,
    points.ROUTE,
    points.TOKEN,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTensor:
    """One boundary tensor that a run will emit."""

    step: int
    stage: int
    session: int
    point: CapturePoint
    layer: int | None
    shape: tuple[int, ...]
    itemsize: int

    @property
    def num_bytes(self) -> int:
        """Size of its raw bytes."""
        size = self.itemsize
        for length in self.shape:
            size *= length
        return size


def expected_tensors(
    plan: RunPlan, config: ModelConfig, *, itemsize: int
) -> Iterator[ExpectedTensor]:
    """Yield what a run of ``plan`` emits at full capture, in execution order.

    Args:
        plan: steps and stages.
        config: of the model.
        itemsize: bytes of one value of the run's dtype; index points are int64.
    """
    for step in plan.steps:
        for rank, stage in enumerate(plan.stages):
            is_last = rank == len(plan.stages) - 1
            for point, layer in _emitted(config, stage, is_last=is_last):
                for span in step.spans:
                    yield ExpectedTensor(
                        step=step.index,
                        stage=rank,
                        session=span.session,
                        point=point,
                        layer=layer,
                        shape=_shape(point, span, config, stage, layer),
                        itemsize=8 if point in _INT64_POINTS else itemsize,
                    )


def _emitted(
    config: ModelConfig, stage: StageSpec, *, is_last: bool
) -> Iterator[tuple[CapturePoint, int | None]]:
    layers = config.layers[stage.layer_start : stage.layer_end]
    absent = {
        points.INPUT_IDS: not stage.has_embedding,
        points.EMBEDDING_OUTPUT: not stage.has_embedding,
        points.BOUNDARY_RECV_HIDDEN: stage.has_embedding,
        points.Q_NORMED: not config.has_qk_norms,
        points.K_NORMED: not config.has_qk_norms,
        points.SWA_SLOTS: all(layer.kind is LayerKind.FULL for layer in layers),
        points.BOUNDARY_SEND_HIDDEN: stage.has_head,
        points.FINAL_NORM: not stage.has_head,
        points.LOGITS: not stage.has_head,
        points.TOKEN: not (stage.has_head and is_last),
    }
    by_scope = {
        scope: [x for x in points.ALL if x.scope is scope and not absent.get(x, False)]
        for scope in Scope
    }
    yield from ((point, None) for point in by_scope[Scope.STEP])
    for layer in layers:
        yield from ((point, layer.layer) for point in by_scope[Scope.LAYER])
    yield from ((point, None) for point in by_scope[Scope.TAIL])


def _shape(
    point: CapturePoint,
    span: Span,
    config: ModelConfig,
    stage: StageSpec,
    layer: int | None,
) -> tuple[int, ...]:
    sizes = {
        "T": span.end - span.start,
        "C": span.end,
        "1": 1,
        "2": 2,
        "L": stage.layer_end - stage.layer_start,
        "E": config.hidden_size,
        "F": 2 * config.intermediate_size,
        "V": config.vocab_size,
        "H": config.num_heads,
    }
    if layer is not None:
        sizes |= _layer_sizes(config, config.layers[layer], span.start, span.end)
    return tuple(sizes[letter] for letter in point.dims)


def _layer_sizes(config: ModelConfig, layer: LayerConfig, start: int, end: int) -> dict[str, int]:
    hidden_before = 0 if layer.sliding_window is None else max(0, start - layer.sliding_window + 1)
    projections = 1 if layer.k_eq_v else 2
    return {
        "C": end - hidden_before,
        "K": layer.num_kv_heads,
        "J": config.num_heads + layer.num_kv_heads,
        "D": layer.head_dim,
        "Q": (config.num_heads + projections * layer.num_kv_heads) * layer.head_dim,
    }
