"""Every capture point, declared once, in execution order.

The runtime passes these constants to its tap; a reader orders what it finds by them. A point says
which earlier points it is computed from, so that a comparison can tell a source from what inherits.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from swarepro.errors import SwareproError
from swarepro.registry import did_you_mean


class PointKind(StrEnum):
    """What a point shows: the pool, the data path, or the indices and choices that steer both."""

    STATE = "state"
    VALUE = "value"
    METADATA = "metadata"


class Scope(StrEnum):
    """Where a point lies in a step of a stage: before, inside, or after its layers."""

    STEP = "step"
    LAYER = "layer"
    TAIL = "tail"


class Level(StrEnum):
    """How much is captured. `OFF` still records the digest of a stage chain's last boundary."""

    OFF = "off"
    BOUNDARY = "boundary"
    OP = "op"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturePoint:
    """One named place on the data path.

    Attributes:
        name: the name users see; layer points hold ``{layer}``, the global layer id.
        scope: before, inside or after the layers.
        kind: state, value or metadata.
        level: the lowest level that captures it.
        dims: one letter per dimension. Dimension 0 is rows: ``T`` the step's tokens, ``C`` the
            positions that its queries can see, ``1`` its last row, ``L`` the stage's layers. Then
            ``E`` hidden, ``H`` query heads, ``K`` kv heads, ``J`` query and kv heads, ``D``
            head_dim, ``Q`` all of q, k and v, ``F`` gate and up, ``V`` vocabulary, ``2`` K and V.
            Empty for a scalar.
        inputs: names of the points that it is computed from; a name ending in ``@previous`` is the
            previous layer's (or the step's) residual.
        optional: a model may lack it; what is computed from it is then computed from its inputs.
    """

    name: str
    scope: Scope
    kind: PointKind
    level: Level
    dims: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    optional: bool = False

    def concrete(self, layer: int | None) -> str:
        """Return the name at ``layer``, e.g. ``L5_o_proj``."""
        return self.name if layer is None else self.name.format(layer=layer)


def _point(
    scope: Scope,
    kind: PointKind,
    level: Level,
    name: str,
    dims: str,
    *inputs: str,
    optional: bool = False,
) -> CapturePoint:
    return CapturePoint(
        name=name,
        scope=scope,
        kind=kind,
        level=level,
        dims=tuple(dims.split()),
        inputs=inputs,
        optional=optional,
    )


_STATE, _VALUE, _META = PointKind.STATE, PointKind.VALUE, PointKind.METADATA
_BOUNDARY, _OP = Level.BOUNDARY, Level.OP

INPUT_IDS = _point(Scope.STEP, _META, _BOUNDARY, "input_ids", "T")
POSITIONS = _point(Scope.STEP, _META, _BOUNDARY, "positions", "T")
PREFIX_LEN = _point(Scope.STEP, _META, _OP, "prefix_len", "")
FULL_SLOTS = _point(Scope.STEP, _META, _OP, "full_slots", "C")
SWA_SLOTS = _point(Scope.STEP, _META, _OP, "swa_slots", "C", "full_slots")
ROUTE = _point(Scope.STEP, _META, _OP, "route", "L")
EMBEDDING_OUTPUT = _point(Scope.STEP, _VALUE, _BOUNDARY, "embedding_output", "T E", "input_ids")
BOUNDARY_RECV_HIDDEN = _point(
    Scope.STEP, _VALUE, _BOUNDARY, "boundary_recv_hidden", "T E", "boundary_send_hidden"
)

INPUT_NORMED = _point(
    Scope.LAYER, _VALUE, _OP, "L{layer}_input_normed", "T E", "after_layer_{layer}@previous"
)
QKV_PROJECTED = _point(
    Scope.LAYER, _VALUE, _OP, "L{layer}_qkv_projected", "T Q", "L{layer}_input_normed"
)
Q_NORMED = _point(
    Scope.LAYER,
    _VALUE,
    _OP,
    "L{layer}_q_normed",
    "T H D",
    "L{layer}_qkv_projected",
    optional=True,
)
K_NORMED = _point(
    Scope.LAYER,
    _VALUE,
    _OP,
    "L{layer}_k_normed",
    "T K D",
    "L{layer}_qkv_projected",
    optional=True,
)
V_NORMED = _point(Scope.LAYER, _VALUE, _OP, "L{layer}_v_normed", "T K D", "L{layer}_qkv_projected")
ROTARY_APPLIED = _point(
    Scope.LAYER,
    _VALUE,
    _OP,
    "L{layer}_rotary_applied",
    "T J D",
    "L{layer}_q_normed",
    "L{layer}_k_normed",
    "positions",
)
KV_SLICE_PRE_WRITE = _point(
    Scope.LAYER, _STATE, _OP, "L{layer}_kv_slice_pre_write", "C 2 K D", "full_slots", "swa_slots"
)
KV_SLICE_POST_WRITE = _point(
    Scope.LAYER,
    _STATE,
    _OP,
    "L{layer}_kv_slice_post_write",
    "C 2 K D",
    "L{layer}_kv_slice_pre_write",
    "L{layer}_rotary_applied",
    "L{layer}_v_normed",
    "full_slots",
    "swa_slots",
)
ATTENTION_OUTPUT = _point(
    Scope.LAYER,
    _VALUE,
    _OP,
    "L{layer}_attention_output",
    "T H D",
    "L{layer}_kv_slice_post_write",
    "L{layer}_rotary_applied",
    "L{layer}_v_normed",
    "route",
)
O_PROJ = _point(Scope.LAYER, _VALUE, _OP, "L{layer}_o_proj", "T E", "L{layer}_attention_output")
ATTN_RESIDUAL = _point(
    Scope.LAYER,
    _VALUE,
    _OP,
    "L{layer}_attn_residual",
    "T E",
    "L{layer}_o_proj",
    "after_layer_{layer}@previous",
)
MLP_GATE_UP = _point(
    Scope.LAYER, _VALUE, _OP, "L{layer}_mlp_gate_up", "T F", "L{layer}_attn_residual"
)
MLP_OUTPUT = _point(Scope.LAYER, _VALUE, _OP, "L{layer}_mlp_output", "T E", "L{layer}_mlp_gate_up")
AFTER_LAYER = _point(
    Scope.LAYER,
    _VALUE,
    _BOUNDARY,
    "after_layer_{layer}",
    "T E",
    "L{layer}_mlp_output",
    "L{layer}_attn_residual",
)

BOUNDARY_SEND_HIDDEN = _point(
    Scope.TAIL, _VALUE, _BOUNDARY, "boundary_send_hidden", "T E", "after_layer_{layer}@previous"
)
FINAL_NORM = _point(Scope.TAIL, _VALUE, _OP, "final_norm", "1 E", "after_layer_{layer}@previous")
LOGITS = _point(Scope.TAIL, _VALUE, _BOUNDARY, "logits", "1 V", "final_norm")
TOKEN = _point(Scope.TAIL, _VALUE, _BOUNDARY, "token", "1", "logits")

ALL: tuple[CapturePoint, ...] = (
    INPUT_IDS,
    POSITIONS,
    PREFIX_LEN,
    FULL_SLOTS,
    SWA_SLOTS,
    ROUTE,
    EMBEDDING_OUTPUT,
    BOUNDARY_RECV_HIDDEN,
    INPUT_NORMED,
    QKV_PROJECTED,
    Q_NORMED,
    K_NORMED,
    V_NORMED,
    ROTARY_APPLIED,
    KV_SLICE_PRE_WRITE,
    KV_SLICE_POST_WRITE,
    ATTENTION_OUTPUT,
    O_PROJ,
    ATTN_RESIDUAL,
    MLP_GATE_UP,
    MLP_OUTPUT,
    AFTER_LAYER,
    BOUNDARY_SEND_HIDDEN,
    FINAL_NORM,
    LOGITS,
    TOKEN,
)

HEAD_DIMS = frozenset("HKJ")
"""Letters of `CapturePoint.dims` that count heads."""

OF_AN_ENGINE = frozenset(point.name for point in (FULL_SLOTS, SWA_SLOTS, ROUTE, KV_SLICE_PRE_WRITE))
"""Slots, the choice of a route, and memory before it is written: no two engines have them alike."""

_ORDER = {point.name: index for index, point in enumerate(ALL)}
_BY_NAME = {point.name: point for point in ALL}
_SHOWN = {
    point.name: re.compile(re.escape(point.name).replace(r"\{layer\}", "(?:0|[1-9][0-9]{0,5})"))
    for point in ALL
}
_SCOPE_ORDER = {Scope.STEP: 0, Scope.LAYER: 1, Scope.TAIL: 2}


def by_name(name: str) -> CapturePoint:
    """Return the declared point called ``name`` (a template, as in `CapturePoint.name`)."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise SwareproError(
            f"no such capture point: {name!r}", hint=did_you_mean(name, _BY_NAME)
        ) from None


def by_shown_name(name: str) -> CapturePoint:
    """Return the declared point that users see as ``name``, e.g. ``L5_o_proj``."""
    for point in ALL:
        if _SHOWN[point.name].fullmatch(name):
            return point
    layer = re.search(r"[0-9]{1,6}", name)
    near = [point.concrete(int(layer[0]) if layer else 0) for point in ALL]
    raise SwareproError(
        f"no such boundary: {name!r}",
        hint=did_you_mean(name, near) or "`swarepro points` lists them",
    )


class ExecKey(NamedTuple):
    """The place of one captured tensor in the total order of a run.

    Stages of a chain run one after another inside a step, hence ``stage`` before ``layer``.
    """

    step: int
    stage: int
    scope: int
    layer: int
    point: int
    occurrence: int


def exec_key(
    point: CapturePoint, *, step: int, stage: int, layer: int | None, occurrence: int
) -> ExecKey:
    """Return the place in execution order of ``point`` at ``step``, ``stage`` and ``layer``."""
    return ExecKey(
        step=step,
        stage=stage,
        scope=_SCOPE_ORDER[point.scope],
        layer=-1 if layer is None else layer,
        point=_ORDER[point.name],
        occurrence=occurrence,
    )
