import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarepro import points
from swarepro.errors import SwareproError
from swarepro.points import CapturePoint, Level, PointKind, Scope

DIMS = frozenset("T C 1 L E H K J D Q F V 2".split())  # noqa: SIM905
ROWS = frozenset({"T", "C", "1", "L"})
PREVIOUS = "@previous"
INDEX = {point.name: index for index, point in enumerate(points.ALL)}

each_point = pytest.mark.parametrize("point", points.ALL, ids=lambda point: point.name)


def test_the_table_holds_every_declared_point_once() -> None:
    declared = [value for value in vars(points).values() if isinstance(value, CapturePoint)]
    assert list(points.ALL) == declared  # the order of the source is the order of execution
    assert len(INDEX) == len(points.ALL)


def test_scopes_follow_each_other() -> None:
    order = [Scope.STEP, Scope.LAYER, Scope.TAIL]
    ranks = [order.index(point.scope) for point in points.ALL]
    assert ranks == sorted(ranks)


@each_point
def test_names_hold_the_layer_exactly_where_there_is_one(point: CapturePoint) -> None:
    fields = [field for _, field, _, _ in string.Formatter().parse(point.name) if field is not None]
    assert fields == (["layer"] if point.scope is Scope.LAYER else [])


@each_point
def test_concrete_names(point: CapturePoint) -> None:
    layer = 5 if point.scope is Scope.LAYER else None
    name = point.concrete(layer)
    assert name == point.name.replace("{layer}", "5")
    assert "{" not in name


def test_concrete_names_of_all_layers_are_distinct() -> None:
    names = [
        point.concrete(layer)
        for point in points.ALL
        for layer in (range(100) if point.scope is Scope.LAYER else [None])
    ]
    assert len(set(names)) == len(names)


@each_point
def test_dims_use_the_known_letters_and_lead_with_rows(point: CapturePoint) -> None:
    assert set(point.dims) <= DIMS
    assert len(set(point.dims)) == len(point.dims)
    assert not point.dims or point.dims[0] in ROWS


@each_point
def test_inputs_are_declared_earlier_or_come_from_before(point: CapturePoint) -> None:
    assert len(set(point.inputs)) == len(point.inputs)
    for name in point.inputs:
        base, is_previous = name.removesuffix(PREVIOUS), name.endswith(PREVIOUS)
        assert "@" not in base, "an unknown suffix"
        source = points.by_name(base)
        if point is points.BOUNDARY_RECV_HIDDEN:
            # The one edge against the order of the table: the previous stage sent it.
            assert source is points.BOUNDARY_SEND_HIDDEN
        elif not is_previous:
            assert INDEX[base] < INDEX[point.name]
        if source.scope is Scope.LAYER and point.scope is not Scope.LAYER:
            assert is_previous, "only the residual leaves a layer"


def test_only_what_enters_or_indexes_has_no_inputs() -> None:
    roots = {point.name for point in points.ALL if not point.inputs}
    assert roots == {"input_ids", "positions", "prefix_len", "full_slots", "route"}


def test_every_value_leads_to_the_token() -> None:
    """No dead end: whatever differs can be followed to the output or to the next stage."""
    used = {name.removesuffix(PREVIOUS) for point in points.ALL for name in point.inputs}
    unused = {point.name for point in points.ALL} - used
    enters_the_residual = {"embedding_output", "boundary_recv_hidden"}  # the first @previous
    assert unused == {"prefix_len", "token"} | enters_the_residual


def test_state_points_are_the_two_views_of_the_pool() -> None:
    state = [point for point in points.ALL if point.kind is PointKind.STATE]
    assert state == [points.KV_SLICE_PRE_WRITE, points.KV_SLICE_POST_WRITE]


def test_a_boundary_level_capture_holds_the_stage_edges_layers_and_logits() -> None:
    names = {point.name for point in points.ALL if point.level is Level.BOUNDARY}
    assert {"embedding_output", "boundary_recv_hidden", "after_layer_{layer}"} <= names
    assert {"boundary_send_hidden", "logits", "token"} <= names
    assert all(point.level is not Level.OFF for point in points.ALL)


def test_by_name() -> None:
    assert points.by_name("L{layer}_o_proj") is points.O_PROJ
    with pytest.raises(SwareproError) as caught:
        points.by_name("logit")
    assert caught.value.hint == "did you mean 'logits'?"


def walk(steps: int, stages: int, layers_per_stage: int) -> list[points.ExecKey]:
    """Return the keys of a whole run in the order in which a runtime meets them."""
    keys = []
    for step in range(steps):
        for stage in range(stages):
            first = stage * layers_per_stage
            for scope in Scope:
                mine = [point for point in points.ALL if point.scope is scope]
                layers: list[int | None] = [None]
                if scope is Scope.LAYER:
                    layers = list(range(first, first + layers_per_stage))
                for layer in layers:
                    for point in mine:
                        for occurrence in (0, 1):
                            keys.append(
                                points.exec_key(
                                    point,
                                    step=step,
                                    stage=stage,
                                    layer=layer,
                                    occurrence=occurrence,
                                )
                            )
    return keys


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.randoms())
def test_keys_sort_into_execution_order(steps: int, stages: int, layers: int, random) -> None:  # type: ignore[no-untyped-def]
    keys = walk(steps, stages, layers)
    assert len(set(keys)) == len(keys), "the order is total"
    shuffled = list(keys)
    random.shuffle(shuffled)
    assert sorted(shuffled) == keys
