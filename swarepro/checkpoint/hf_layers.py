"""Per-layer geometry from config.json: layer types, and head counts and sizes by layer."""

from dataclasses import dataclass

from swarepro.checkpoint.config import LayerConfig, LayerKind
from swarepro.checkpoint.fields import ConfigFields
from swarepro.checkpoint.hf_rope import LAYER_TYPES, Ropes
from swarepro.errors import CheckpointError

_LARGEST_MODEL = 4096
_HEAD_FIELDS = ("head_dim", "num_key_value_heads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What a model family's config leaves out when it means the default.

    Attributes:
        pattern: every layer of which number is full, where nothing else is said.
        reads_pattern: ``sliding_window_pattern`` says otherwise; transformers ignores it elsewhere.
        attention_softcap: None = none.
        final_softcap: None = none.
    """

    is_gemma4: bool = False
    pattern: int = 6
    reads_pattern: bool = False
    vocab_size: int = 262_144
    sliding_window: int
    attention_softcap: float | None = None
    final_softcap: float | None = None
    max_position_embeddings: int = 131_072
    per_layer_input: int = 0
    has_qk_norms: bool = True


def parse_layers(
    fields: ConfigFields, family: Family, ropes: Ropes, num_heads: int
) -> tuple[LayerConfig, ...]:
    """Return one `LayerConfig` per layer.

    Raises:
        CheckpointError: naming the field, its value and what was wanted.
    """
    kinds = _layer_kinds(fields, family)
    heads = _heads(fields, family, kinds)
    k_eq_v = family.is_gemma4 and fields.flag("attention_k_eq_v", False)
    window = _sliding_window(fields, family, kinds)
    layers = tuple(
        LayerConfig(
            layer=index,
            kind=kind,
            num_kv_heads=heads[index]["num_key_value_heads"],
            head_dim=heads[index]["head_dim"],
            sliding_window=window if kind is LayerKind.SLIDING else None,
            rope=ropes[kind],
            k_eq_v=k_eq_v and kind is LayerKind.FULL,
        )
        for index, kind in enumerate(kinds)
    )
    for layer in layers:
        _check(fields, layer, layers[kinds.index(layer.kind)], num_heads)
    return layers


def _layer_kinds(fields: ConfigFields, family: Family) -> list[LayerKind]:
    num_layers = fields.integer("num_hidden_layers")
    if num_layers > _LARGEST_MODEL:
        raise fields.error("num_hidden_layers", f"at most {_LARGEST_MODEL}")
    if fields.is_set("layer_types"):
        names = fields.data["layer_types"]
        if not isinstance(names, list) or len(names) != num_layers:
            raise fields.error("layer_types", f"a list of {num_layers} (num_hidden_layers) names")
        for name in names:
            if not isinstance(name, str) or name not in LAYER_TYPES:
                raise fields.error("layer_types", f"only {' and '.join(LAYER_TYPES)}, not {name!r}")
        kinds = [LAYER_TYPES[name] for name in names]
    else:
        pattern = family.pattern
        if family.reads_pattern:
            pattern = fields.integer("sliding_window_pattern", pattern)
        kinds = [
            LayerKind.SLIDING if (index + 1) % pattern else LayerKind.FULL
            for index in range(num_layers)
        ]
    if family.is_gemma4:
        kinds[-1] = LayerKind.FULL  # as transformers forces it
    return kinds


def _sliding_window(fields: ConfigFields, family: Family, kinds: list[LayerKind]) -> int:
    if LayerKind.SLIDING not in kinds and not fields.is_set("sliding_window"):
        return family.sliding_window
    return fields.integer("sliding_window", family.sliding_window)


def _heads(fields: ConfigFields, family: Family, kinds: list[LayerKind]) -> list[dict[str, int]]:
    """Return ``head_dim`` and ``num_key_value_heads`` of every layer.

    ``per_layer_config``, where the key is there at all, replaces ``global_head_dim`` and
    ``num_global_key_value_heads``.
    """
    shared = {
        "head_dim": fields.integer("head_dim", 256),
        "num_key_value_heads": fields.integer("num_key_value_heads", 4),
    }
    heads = [dict(shared) for _ in kinds]
    if "per_layer_config" in fields.data:
        _override(fields, kinds, heads)
        if not family.is_gemma4 and any(entry != shared for entry in heads):
            raise fields.error("per_layer_config", "no differing layers in this model")
    elif family.is_gemma4:
        full = {**shared, "head_dim": fields.integer("global_head_dim", 512)}
        if fields.is_set("num_global_key_value_heads") and fields.flag("attention_k_eq_v", False):
            full["num_key_value_heads"] = fields.integer("num_global_key_value_heads")
        heads = [dict(full if kind is LayerKind.FULL else shared) for kind in kinds]
    return heads


def _override(fields: ConfigFields, kinds: list[LayerKind], heads: list[dict[str, int]]) -> None:
    """Write ``per_layer_config``, keyed by layer index or layer type, into ``heads``."""
    table = fields.table("per_layer_config")
    for key in table.data if table is not None else ():
        entry = table.table(key) if table is not None else None
        if table is None or entry is None:
            continue
        for layer in _layers_of(table, key, kinds):
            for name in entry.data:
                if name in _HEAD_FIELDS:
                    heads[layer][name] = entry.integer(name)
                elif name == "skip" and not entry.data[name]:
                    continue
                elif name not in fields.data or entry.data[name] != fields.data[name]:
                    raise entry.error(name, f"only {' and '.join(_HEAD_FIELDS)} to differ by layer")


def _layers_of(table: ConfigFields, key: str, kinds: list[LayerKind]) -> list[int]:
    if key in LAYER_TYPES:
        return [index for index, kind in enumerate(kinds) if kind is LAYER_TYPES[key]]
    if key.isascii() and key.isdecimal() and len(key) <= 6 and int(key) < len(kinds):
        return [int(key)]
    raise table.error(key, f"a key that is a layer from 0 to {len(kinds) - 1} or a layer type")


def _check(fields: ConfigFields, layer: LayerConfig, first: LayerConfig, num_heads: int) -> None:
    where = f"{fields.source}: layer {layer.layer}"
    if layer.head_dim % 2:
        raise CheckpointError(f"{where}: head_dim is {layer.head_dim}; wanted an even number")
    if num_heads % layer.num_kv_heads:
        raise CheckpointError(
            f"{where}: num_key_value_heads is {layer.num_kv_heads};"
            f" wanted a divisor of num_attention_heads, {num_heads}"
        )
    if (layer.head_dim, layer.num_kv_heads) != (first.head_dim, first.num_kv_heads):
        raise CheckpointError(
            f"{where}: head_dim {layer.head_dim} and {layer.num_kv_heads} kv heads; wanted those of"
            f" layer {first.layer}, {first.head_dim} and {first.num_kv_heads}: all {layer.kind}"
            " layers share one KV group"
        )
