"""Checks a stage's tables: where its layers find what is their own, and where its rows are."""

from collections.abc import Iterable

import torch

from swarepro.kvcache import KVGroupSpec
from swarepro.ownership.reporter import Reporter
from swarepro.ownership.violations import Owner
from swarepro.ownership.words import POOLS
from swarepro.plan import Span
from swarepro.runtime.parts import LayerPlace


def check_places(
    places: tuple[LayerPlace, ...], specs: Iterable[KVGroupSpec], report: Reporter
) -> None:
    """Each layer of the stage once, in order, with its own config and its own layer of its pool."""
    specs = tuple(specs)
    own = {
        layer: (spec, pool_layer)
        for spec in specs
        for pool_layer, layer in enumerate(spec.layer_ids)
    }
    wrong = _first_wrong(places, own)
    if wrong is None:
        return
    layer, why = wrong
    group = own[layer][0].group if layer in own else None
    report("layer-table", why, layer=layer, group=group)


def _first_wrong(
    places: tuple[LayerPlace, ...], own: dict[int, tuple[KVGroupSpec, int]]
) -> tuple[int, str] | None:
    layers = sorted(own)
    for index, place in enumerate(places):
        layer = place.layer
        if index >= len(layers) or layer != layers[index]:
            wanted = f"layer {layers[index]}" if index < len(layers) else "nothing any more"
            return layer, f"layer {layer} runs where the stage has {wanted}"
        if place.config_layer != layer:
            which = place.config_layer
            local = ", its index in the stage: local and global" if which == index else ": two"
            return layer, (
                f"layer {layer} takes its kind, window and rope from layer {which}{local} layers"
                " are confused"
            )
        spec, pool_layer = own[layer]
        if place.group is not spec.group:
            return layer, (
                f"layer {layer} uses the {POOLS[place.group]} pool, and its keys and values are"
                f" those of the {POOLS[spec.group]} pool"
            )
        if place.pool_layer != pool_layer:
            return layer, (
                f"layer {layer} is layer {pool_layer} of the {POOLS[spec.group]} pool, and uses"
                f" {_pool_layer_text(spec, place.pool_layer)}"
            )
        if place.window_left != spec.window_left:
            return layer, (
                f"queries of layer {layer} see {_window_text(place.window_left)}, and those of the"
                f" {POOLS[spec.group]} pool's layers {_window_text(spec.window_left)}"
            )
    if len(places) < len(layers):
        layer = layers[len(places)]
        return layer, f"layer {layer} has no place in the stage's table"
    return None


def _window_text(window_left: int | None) -> str:
    return "all keys" if window_left is None else f"{window_left + 1} keys, their own among them"


def _pool_layer_text(spec: KVGroupSpec, pool_layer: int) -> str:
    if 0 <= pool_layer < len(spec.layer_ids):
        return f"pool layer {pool_layer}, which is layer {spec.layer_ids[pool_layer]}'s"
    return f"pool layer {pool_layer}, which the pool of {len(spec.layer_ids)} layers does not have"


def check_positions(positions: torch.Tensor, span: Span, report: Reporter) -> None:
    """The rows of a span are at its positions, one after another."""
    found = positions.cpu().to(torch.int64)
    wanted = torch.arange(span.start, span.end)
    if torch.equal(found, wanted):
        return
    first = span.start
    if found.shape == wanted.shape:
        first += int((found != wanted).nonzero()[0])
    report(
        "position-gap",
        f"the rows of session {span.session} at positions {span.start} to {span.end - 1} are"
        f" rotated {_found_text(found, span)}",
        positions=list(range(first, span.end)),
        user=Owner(session=span.session, position=first),
    )


def _found_text(found: torch.Tensor, span: Span) -> str:
    if found.dim() != 1 or found.numel() != span.rows:
        return f"by a tensor of shape {tuple(found.shape)}"
    start, end = int(found[0]), int(found[-1])
    if not torch.equal(found, torch.arange(start, start + span.rows)):
        return f"as if at {start} to {end}, not one after another"
    why = ": they started again"
    if start == 0:
        why = ": they are local to the chunk"
    elif start == 2 * span.start:
        why = ": the prefix is counted twice"
    elif start > span.start:
        why = f": {start - span.start} positions are skipped"
    return f"as if at {start} to {end}{why}"
