"""Rotary embedding per layer kind from config.json, as transformers reads it.

Gemma 2 has one flat ``rope_parameters`` for all layers, of old ``rope_theta`` and ``rope_scaling``.
Gemma 3 has an old format (``rope_theta``, ``rope_local_base_freq``, ``rope_scaling``) beside the
nested ``rope_parameters``; Gemma 4 has the latter only.
"""

from collections.abc import Callable, Mapping

from swarepro.checkpoint.config import LayerKind, RopeKind, RopeSpec
from swarepro.checkpoint.fields import ConfigFields
from swarepro.errors import CheckpointError

LAYER_TYPES = {"sliding_attention": LayerKind.SLIDING, "full_attention": LayerKind.FULL}
Ropes = dict[LayerKind, RopeSpec]

_GEMMA4_DEFAULT: Mapping[str, object] = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    "full_attention": {
        "rope_type": "proportional",
        "partial_rotary_factor": 0.25,
        "rope_theta": 1_000_000.0,
    },
}


def gemma2_ropes(fields: ConfigFields) -> Ropes:
    """Return a Gemma 2 config's ropes; raise CheckpointError for one that is not supported."""
    # An empty object is as good as none, in transformers too.
    name = "rope_scaling" if fields.data.get("rope_scaling") else "rope_parameters"
    table = fields.table(name)
    own = {} if table is None else dict(table.data)
    for key in own:
        if table is not None and key in LAYER_TYPES:
            raise table.error(key, "one rotary embedding for all layers of a Gemma 2 model")
    own.setdefault("rope_theta", fields.number("rope_theta", 10_000.0))
    if fields.is_set("partial_rotary_factor"):
        own.setdefault("partial_rotary_factor", fields.data["partial_rotary_factor"])
    shared = _spec(ConfigFields(own, source=fields.source, prefix=f"{fields.prefix}{name}."))
    return dict.fromkeys(LAYER_TYPES.values(), shared)


def gemma3_ropes(fields: ConfigFields) -> Ropes:
    """Return a Gemma 3 config's ropes; raise CheckpointError for one that is not supported."""
    nested = _nested(fields)
    full = dict(nested.get("full_attention", {}))
    sliding = dict(nested.get("sliding_attention", {}))
    scaling = fields.table("rope_scaling")
    if scaling is not None:
        if "rope_type" not in scaling.data and "type" in scaling.data:
            # transformers would keep rope_type "default" here and silently drop the scaling.
            raise scaling.error("type", "the scaling's kind in a field named rope_type")
        full.update(scaling.data)
    full.setdefault("rope_theta", fields.number("rope_theta", 1_000_000.0))
    sliding.setdefault("rope_theta", fields.number("rope_local_base_freq", 10_000.0))
    return _specs(fields, {"full_attention": full, "sliding_attention": sliding})


def gemma4_ropes(fields: ConfigFields) -> Ropes:
    """Return a Gemma 4 config's ropes; raise CheckpointError for one that is not supported."""
    if fields.is_set("rope_scaling"):
        raise fields.error("rope_scaling", "rope_parameters, which Gemma 4 reads instead")
    if not fields.is_set("rope_parameters"):
        fields = ConfigFields({"rope_parameters": _GEMMA4_DEFAULT}, source=fields.source)
    nested = _nested(fields)
    for name in LAYER_TYPES:
        if name not in nested:
            raise CheckpointError(
                f"{fields.source}: {fields.prefix}rope_parameters.{name} is missing;"
                " wanted the rotary parameters of those layers"
            )
    return _specs(fields, nested)


ROPES: Mapping[str, Callable[[ConfigFields], Ropes]] = {
    "gemma2": gemma2_ropes,
    "gemma3_text": gemma3_ropes,
    "gemma4_text": gemma4_ropes,
    "gemma4_unified_text": gemma4_ropes,
}


def _nested(fields: ConfigFields) -> dict[str, dict[str, object]]:
    """Return ``rope_parameters`` by layer type, null entries left out."""
    parameters = fields.table("rope_parameters")
    if parameters is None:
        return {}
    nested: dict[str, dict[str, object]] = {}
    for name in parameters.data:
        if name not in LAYER_TYPES:
            raise parameters.error(name, f"only the keys {' and '.join(LAYER_TYPES)}")
        entry = parameters.table(name)
        if entry is not None:
            nested[name] = dict(entry.data)
    return nested


def _specs(fields: ConfigFields, nested: Mapping[str, dict[str, object]]) -> Ropes:
    return {
        kind: _spec(
            ConfigFields(
                nested[name],
                source=fields.source,
                prefix=f"{fields.prefix}rope_parameters.{name}.",
            )
        )
        for name, kind in LAYER_TYPES.items()
    }


def _spec(fields: ConfigFields) -> RopeSpec:
    name = "rope_type" if "rope_type" in fields.data else "type"
    text = fields.text(name, "default")
    if fields.data.get("type", text) != text:
        raise fields.error("type", f"the same as rope_type, {text!r}")
    if text not in tuple(RopeKind):
        raise fields.error(name, f"one of {', '.join(RopeKind)}")
    kind = RopeKind(text)
    factor = fields.number("factor", None if kind is RopeKind.LINEAR else 1.0)
    partial = fields.number("partial_rotary_factor", 1.0)
    if kind is RopeKind.DEFAULT and factor != 1.0:
        raise fields.error("factor", f"no factor, which {name} 'default' ignores")
    if kind is not RopeKind.PROPORTIONAL and partial != 1.0:
        raise fields.error("partial_rotary_factor", f"1.0 with {name} {text!r}")
    if partial > 1.0:
        raise fields.error("partial_rotary_factor", "a number from 0 to 1")
    return RopeSpec(
        kind=kind,
        theta=fields.number("rope_theta"),
        factor=factor,
        partial_rotary_factor=partial,
    )
