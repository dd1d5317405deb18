"""The types of a map: which name of a dump is which point, and how its tensor lies in the file.

The grammar is in docs/import.md. Fields that are not known are refused; nothing in a map executes.
"""

from typing import Annotated, Literal

import msgspec

from swarepro.bundle.schema import Phase

MOST_RULES = 64
Check = Literal["same-layers", "same-steps", "delta"]
"""What an import refuses unless the map allows it; see `swarepro.foreign.sanity`."""
CHECKS: tuple[Check, ...] = ("same-layers", "same-steps", "delta")
Plane = Literal["residual", "sum", "delta"]
Position = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
Size = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class InMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything in a map."""


class SpanRow(InMap, frozen=True, kw_only=True):
    """Rows of one session in a step; rows of a batch lie one span after another.

    Attributes:
        session: from 0.
        start: first position.
        end: one past the last position.
        phase: None = prefill, or decode for one row of a session that has run before.
    """

    session: Position = 0
    start: Position
    end: Position
    phase: Phase | None = None


class StepRow(InMap, frozen=True, kw_only=True):
    """One step, in the order of execution.

    Attributes:
        step: the engine's number of it; None = its place in the list.
        spans: what it computed.
        reset: whether the cache was emptied before it.
    """

    step: Position | None = None
    spans: tuple[SpanRow, ...]
    reset: bool = False


class PointRule(InMap, frozen=True, kw_only=True):
    """Where one capture point comes from.

    Attributes:
        point: the declared point, e.g. ``L{layer}_o_proj``.
        name: pattern of the names, or several: the tensors that ``join`` puts together, in order.
        where: tags that have to have these values.
        layers: only these layers of the model; empty = all.
        layer_offset: is added to the layer in the name.
        layout: of the file's tensor; None = the point's dimensions. One for each of several names.
        rows: ``last`` takes each span's last row.
        join: ``add``, or the letter along which the tensors lie one after another.
        ranks: ``same``: every rank has the whole tensor; or the letter along which it is split.
        parts: what is fused along that letter, in the order of the file: its name, and its size
            over all ranks as letters, e.g. ``{ k = "K D" }``.
        keep: the parts that the point has, in its order; empty = all, as in the file.
        plane: of a hidden state: it is the ``residual``; the ``sum`` of several names is; or it is
            a ``delta``, which is refused.
        dtype: of the numbers, where the file holds bits of another type of the same width.
        sizes: of letters, over those of the map.
    """

    point: str
    name: str | tuple[str, ...]
    where: dict[str, str] = {}
    layers: tuple[Position, ...] = ()
    layer_offset: Annotated[int, msgspec.Meta(ge=-1000, le=1000)] = 0
    layout: str | tuple[str, ...] | None = None
    rows: Literal["all", "last"] = "all"
    join: str | None = None
    ranks: str = "same"
    parts: tuple[dict[str, str], ...] = ()
    keep: tuple[str, ...] = ()
    plane: Plane | None = None
    dtype: str | None = None
    sizes: dict[str, Size] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The patterns, in order."""
        return (self.name,) if isinstance(self.name, str) else self.name


class ForeignMap(InMap, frozen=True, kw_only=True):
    """A whole map.

    Attributes:
        engine: who computed; what the manifest says.
        summary: one sentence.
        model: what the manifest says of it.
        num_layers: of the model; None = one more than the largest layer that was found.
        dtype: of the run; None = that of most of its values.
        device: what the manifest says.
        names: how names are written, see `swarepro.foreign.sources.read_source`; ``index`` takes
            steps and sessions from the index file that `swarepro export` writes.
        fields: which tag holds a field, where it is called otherwise, e.g. ``layer = "layer_id"``.
        sizes: of letters, over all ranks, e.g. ``D = 64``.
        num_ranks: how many split a tensor; None = one more than the largest that was found. Of a
            rank beyond it the remainder counts: that is its place in a stage of a pipeline.
        skip: patterns of names that are of no use here.
        points: at most `MOST_RULES`.
        steps: what ran; None = one session, its steps in the order of their numbers.
        prompts: token ids by session, where the dump has none.
        tokens: generated token ids by session, likewise.
        allow: findings that are known to be no defect of the dump.
    """

    engine: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+-]{0,59}$")]
    summary: str = ""
    model: str = "unknown"
    num_layers: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    dtype: Literal["bf16", "fp16", "fp32"] | None = None
    device: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9:]{1,20}$")] = "cpu"
    names: Literal["plain", "tags", "index"] = "plain"
    fields: dict[str, str] = {}
    sizes: dict[str, Size] = {}
    num_ranks: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None
    skip: tuple[str, ...] = ()
    points: tuple[PointRule, ...]
    steps: tuple[StepRow, ...] | None = None
    prompts: tuple[tuple[TokenId, ...], ...] = ()
    tokens: tuple[tuple[TokenId, ...], ...] = ()
    allow: tuple[Check, ...] = ()
