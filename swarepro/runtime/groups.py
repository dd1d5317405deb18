"""From a model's layers to the KV groups of a stage."""

from swarepro.checkpoint.config import LayerKind, ModelConfig
from swarepro.errors import CheckpointError
from swarepro.kvcache import KVGroup, KVGroupSpec
from swarepro.plan import StageSpec


def group_of(kind: LayerKind) -> KVGroup:
    """Return the KV group of a layer kind."""
    return KVGroup.SLIDING if kind is LayerKind.SLIDING else KVGroup.FULL


def stage_groups(config: ModelConfig, stage: StageSpec) -> tuple[KVGroupSpec, ...]:
    """Return the groups that have layers in ``stage``.

    Raises:
        CheckpointError: layers of one kind differ in heads, head_dim or window, so that they cannot
            share a pool.
    """
    specs = []
    for kind in LayerKind:
        layers = [
            layer
            for layer in config.layers[stage.layer_start : stage.layer_end]
            if layer.kind is kind
        ]
        if not layers:
            continue
        shapes = {(x.num_kv_heads, x.head_dim, x.sliding_window) for x in layers}
        if len(shapes) > 1:
            raise CheckpointError(
                f"{kind} layers {[x.layer for x in layers]} differ in (kv heads, head_dim, window):"
                f" {sorted(shapes, key=str)}; layers of one kind have to share a pool"
            )
        first = layers[0]
        specs.append(
            KVGroupSpec(
                group=group_of(kind),
                layer_ids=tuple(x.layer for x in layers),
                num_kv_heads=first.num_kv_heads,
                head_dim=first.head_dim,
                sliding_window=first.sliding_window,
            )
        )
    return tuple(specs)
