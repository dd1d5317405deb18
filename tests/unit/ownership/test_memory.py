"""What the shadow keeps: at most 64 bytes for each slot of each group, besides the row digests."""

import pytest
import torch

from swarepro.plan import Phase
from tests.unit.ownership.stage import SmallStage


def tensors(found, seen):
    """Yield every tensor that an object of the shadow holds, once."""
    if id(found) in seen:
        return
    seen.add(id(found))
    if isinstance(found, torch.Tensor):
        yield found
        return
    if isinstance(found, dict):
        held = list(found.values())
    elif isinstance(found, list | tuple):
        held = list(found)
    elif type(found).__module__.startswith("swarepro.ownership"):
        names = getattr(type(found), "__slots__", ()) or vars(found)
        held = [getattr(found, name) for name in names]
    else:
        return
    for value in held:
        yield from tensors(value, seen)


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("swa_capacity", [512, 2048])
def test_bytes_by_slot(page_size, swa_capacity):
    stage = SmallStage(capacity=2048, swa_capacity=swa_capacity, page_size=page_size, evict=True)
    for start in range(0, 1984, 64):
        stage.run((0, start, start + 64))
    stage.run((0, 1984, 1985), (1, 0, 3), phase=Phase.DECODE)
    assert stage.log.violations == ()
    events = stage.shadow._events
    slots = sum(states.num_slots for states in events.states.values())
    digests = {states.digests.data_ptr() for states in events.states.values()}
    storages = {x.untyped_storage().data_ptr(): x for x in tensors(events, set())}
    held = sum(
        x.untyped_storage().nbytes() for x in storages.values() if x.data_ptr() not in digests
    )
    assert stage.shadow.num_bytes <= held < stage.shadow.num_bytes * 1.02
    assert stage.shadow.num_bytes <= 64 * slots
    layers = {group: len(pool.spec.layer_ids) for group, pool in stage.cache.pools.items()}
    for group, states in events.states.items():
        assert states.digests.shape == (layers[group], states.num_slots)
        assert states.digests.dtype is torch.int64


def test_before_it_watches_it_keeps_nothing():
    stage = SmallStage()
    assert (
        type(stage.shadow)(
            stage.log, stage=0, pools=stage.cache.pools, row_digests=lambda rows: rows
        ).num_bytes
        == 0
    )
